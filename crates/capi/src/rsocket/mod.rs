//! rsockets: the `r…` functions of librdmacm, over [`ferroce_rsocket`].
//!
//! Only pointers, `errno` and structures of C are handled here: `sockaddr`, `iovec`, `msghdr`, `fd_set`, `epoll_event`.

pub(crate) mod connect;
pub(crate) mod epoll;
pub(crate) mod iomap;
mod memory;
pub(crate) mod options;
pub(crate) mod poll;
pub(crate) mod transfer;
