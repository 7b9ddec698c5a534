//! Datagram sockets, over queue pairs of unreliable datagrams.
//!
//! Each has a UDP socket of the system's, which has the port. The first datagram to a peer goes by it, behind a header that
//! tells of our queue pair; the peer's socket answers with its own, and what follows goes between the two.
//!
//! | file | what |
//! |---|---|
//! | `wire` | the two headers |
//! | `udp` | the system's socket |
//! | `queue` | a queue pair of one of our addresses, and its buffers |
//! | `peers` | whose queue pair is known |
//! | `socket` | all of it together, and threads that wait for it |
//! | `announce` | what comes by UDP |
//! | `transfer`, `options` | the calls |

mod announce;
mod options;
mod peers;
mod queue;
mod socket;
mod transfer;
mod udp;
mod wire;

pub(super) use socket::{Datagram, Received};
pub(super) use wire::mapped;
