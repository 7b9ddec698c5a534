//! Carries a program's TCP connections over RDMA: `ferroce run --sockets` preloads it (`LD_PRELOAD`).
//!
//! It interposes the socket functions of the C library. A listening socket gets an rsocket that listens at the same
//! address, and a socket that connects tries an rsocket first and TCP if the peer has none. All other sockets, and
//! everything that is not a socket, go through untouched ([decision 16](../../../docs/adr/0016-sockets.md)).
//!
//! The program's descriptor is always a kernel TCP socket, so numbers, `fstat`, `dup` and options are the kernel's. The
//! `table` records which of them have an rsocket. rsockets are those of `librdmacm.so.1`, loaded when the first TCP
//! socket listens or connects.
//!
//! | file | content |
//! |---|---|
//! | `calls` | the interposed functions |
//! | `next` | the C library's functions |
//! | `rdma` | rsockets |
//! | `table` | the managed descriptors |
//! | `connect`, `listen`, `transfer`, `options`, `descriptors` | the calls on managed descriptors |
//! | `closer` | closes nonblocking connections in the background |
//! | `wait` | poll(2) and select(2) |
//! | `epoll`, `interest` | epoll(7) |
//!
//! It depends on `libc` only, and on no other crate of the workspace: the state of the libraries must exist once in a
//! process, in librdmacm.
//!
//! # What it does not reach
//! - Programs that are linked statically, or make system calls themselves, as Go's do; `io_uring`; streams of stdio
//!   (`fdopen`) on a socket.
//! - Connections that a process hands to a child: they stay with the process that made them.

#[cfg(not(test))]
mod address;
#[cfg(not(test))]
mod calls;
#[cfg(not(test))]
mod closer;
#[cfg(not(test))]
mod connect;
#[cfg(not(test))]
mod descriptors;
#[cfg(not(test))]
mod epoll;
mod interest;
#[cfg(not(test))]
mod listen;
#[cfg(not(test))]
mod lock;
#[cfg(not(test))]
mod next;
#[cfg(not(test))]
mod options;
#[cfg(not(test))]
mod rdma;
#[cfg(not(test))]
mod table;
#[cfg(not(test))]
mod transfer;
#[cfg(not(test))]
mod wait;
