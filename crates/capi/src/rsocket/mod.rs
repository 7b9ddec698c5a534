//! rsockets: sockets for streams, over connections of [`ferroce::cm`], and for datagrams (rsocket(7)).
//!
//! On the wire they are rdma-core's. A stream is RDMA writes into a buffer of the peer's, each with 32 bits that say how
//! many bytes it was. Datagrams are sends of unreliable datagram queue pairs: see [`datagram`].
//!
//! | file | what |
//! |---|---|
//! | `table` | the sockets that the program has |
//! | `wait` | threads that wait for sockets |
//! | `service` | the thread that sees to sockets |
//! | `completions` | where requests complete |
//! | `settings` | how large things are |
//! | `connect`, `transfer`, `poll`, `epoll`, `options` | the calls, of both kinds of sockets |
//!
//! Streams alone:
//!
//! | file | what |
//! |---|---|
//! | `wire` | private data and immediate data |
//! | `flow` | what may be sent, and what was received: numbers only |
//! | `link` | a connection: its queue pair, buffers, what is under way |
//! | `socket` | how far a socket has come |
//! | `iomap` | buffers that the peer writes to, and their calls |

mod completions;
pub(crate) mod connect;
mod datagram;
pub(crate) mod epoll;
mod flow;
pub(crate) mod iomap;
mod link;
pub(crate) mod options;
pub(crate) mod poll;
mod service;
mod settings;
mod socket;
mod table;
pub(crate) mod transfer;
mod wait;
mod wire;

pub(crate) use connect::leave;
