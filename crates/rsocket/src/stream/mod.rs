//! Stream sockets, over reliable connections set up by [`ferroce::cm`].
//!
//! The sender writes into a ring in the receiver's memory by RDMA WRITE with immediate data; the immediate data is the
//! length.
//!
//! | file | content |
//! |---|---|
//! | `wire` | private data and immediate data |
//! | `flow` | credits and buffer space |
//! | `iomap` | buffers that the peer writes to |
//! | `connection` | the QP, its buffers, the sends in flight |
//! | `options` | socket options |
//! | `socket` | the socket's state |
//! | `events` | connection manager events, handled by the service thread |
//! | `connect`, `transfer`, `remote_write` | the calls |

mod connect;
pub(crate) mod connection;
mod events;
pub(crate) mod flow;
mod iomap;
mod options;
mod remote_write;
mod socket;
mod transfer;
pub(crate) mod wire;

pub use remote_write::MapRequest;
pub use socket::StreamSocket;
