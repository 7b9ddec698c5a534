//! Datagram sockets, over UD queue pairs.
//!
//! Each has a UDP socket of the kernel, which owns the port. The first datagram to a peer is sent by UDP, with a header
//! that announces the sender's QPN; the peer replies with its own, and later datagrams are sent from QP to QP.
//!
//! | file | content |
//! |---|---|
//! | `wire` | the two headers |
//! | `udp` | the UDP socket |
//! | `queue` | the QP of one local address, and its buffers |
//! | `peers` | peers whose QPN is known |
//! | `socket` | the socket's state |
//! | `announce` | datagrams received by UDP, handled by the service thread |
//! | `transfer`, `options` | the calls |

mod announce;
mod options;
mod peers;
mod queue;
mod socket;
mod transfer;
mod udp;
mod wire;

pub use socket::DatagramSocket;
pub use transfer::ReceivedDatagram;
