//! The network as the operating system gives it: UDP sockets that carry RoCEv2, and waiting for them.
//!
//! System calls live here alone. This crate knows sockets, addresses and interfaces; it does not know what the bytes
//! mean, with one exception: [`steering`] reads the queue pair's number, because the kernel must choose a process by
//! it.
//!
//! - [`Socket`] is one local address and port. [`Socket::send`] gathers up to 64 packets into one system call,
//!   [`Socket::receive`] takes many from one.
//! - [`Slot`] is a process's share of the queue pair numbers of an address, and the mailbox through which other
//!   processes hand it the packets that reached them by mistake. [`Service`] is a connection manager's listener.
//! - [`interface`], [`route`] and [`neighbour`] say which addresses there are, what fits on the way to another, and whether
//!   the next host on it has been found.
//! - [`Processes`] says when other processes of this machine have ended.
//! - [`Poller`], [`Event`] and [`clock`] are how a thread waits.
//!
//! # What the ICRC needs to know
//! The ICRC covers the IPv4 identification, the "don't fragment" bit and both UDP ports, which a UDP socket chooses by
//! itself. It chooses predictably: a [`Socket`] is never connected and never lets a router fragment, so DF is 1, and
//! the identification of a packet is its index in its [`Batch`] where [`Socket::gso`] is on, and 0 where it is off.
//! The source port is [`Socket::port`].
//!
//! # Where a feature is missing
//! Nothing here is required of the kernel but UDP. What is missing, or was forced off in [`Options`], shows in
//! [`Socket::features`], and the calls work without it.
#![deny(unsafe_op_in_unsafe_fn)]

mod address;
pub mod batch;
pub mod clock;
mod control;
mod diag;
pub mod environment;
mod error;
mod event;
mod fork;
mod forward;
pub mod interface;
pub mod lock;
mod mailbox;
mod multicast;
mod name;
pub mod neighbour;
mod netlink;
mod news;
mod options;
mod peek;
mod poll;
mod processes;
pub mod random;
mod receive;
mod report;
pub mod route;
pub mod secure;
mod send;
pub mod signal;
mod slot;
mod socket;
mod start_lock;
pub mod steering;
mod system;
#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use error::Error;
pub use event::Event;
pub use mailbox::Recipient;
pub use news::{NetlinkMonitor, Subject};
pub use options::{Features, Options};
pub use poll::{Interest, Poller, Readiness};
pub use processes::{ProcessName, Processes};
pub use receive::{ReceiveBatch, RxDatagram, RxInfo};
pub use slot::{Service, Slot};
pub use socket::Socket;

/// Numbers of the operating system's errors, for those who have to name one without calling it.
pub mod errno {
    pub use libc::{
        EADDRINUSE, EADDRNOTAVAIL, EAGAIN, EBADF, EBUSY, ECONNREFUSED, EFAULT, EINTR, EINVAL, EIO,
        EISCONN, EMSGSIZE, ENODEV, ENOMEM, ENOSYS, ENOTCONN, EOPNOTSUPP, EPERM, ETIMEDOUT,
    };
}

/// The UDP destination port of RoCEv2, registered with IANA (IBA A17.3.1.1).
pub const ROCE_PORT: u16 = 4791;

/// The ports that RoCEv2 packets come from: the dynamic range, whose 14 bits spread connections over equal paths
/// (IBA A17.3.1.1).
pub const SOURCE_PORTS: std::ops::RangeInclusive<u16> = 0xc000..=0xffff;
