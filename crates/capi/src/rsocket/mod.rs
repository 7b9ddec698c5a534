//! rsockets: sockets for streams, over connections of [`ferroce::cm`] (rsocket(7)).
//!
//! On the wire they are rdma-core's. A stream is RDMA writes into a buffer of the peer's, each with 32 bits that say how
//! many bytes it was.
//!
//! | file | what |
//! |---|---|
//! | `wire` | private data and immediate data |
//! | `flow` | what may be sent, and what was received: numbers only |
//! | `link` | a connection: its queue pair, buffers, what is under way |
//! | `socket`, `wait` | how far a socket has come, and threads that wait for it |
//! | `service` | the thread that sees to connections |
//! | `connect`, `transfer`, `poll`, `options`, `iomap` | the calls |
//!
//! Datagrams are not there: `rsocket` says `ENOTSUP`.

pub(crate) mod connect;
mod flow;
pub(crate) mod iomap;
mod link;
pub(crate) mod options;
pub(crate) mod poll;
mod service;
mod settings;
mod socket;
pub(crate) mod transfer;
mod wait;
mod wire;

pub(crate) use connect::leave;
