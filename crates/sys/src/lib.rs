//! System calls: the only crate that opens sockets, waits, handles signals and asks the kernel about memory.
//!
//! This crate knows the operating system. It does not know what the bytes of a packet mean, with one exception:
//! [`steering`] reads the QPN, because the kernel selects the receiving process by it. It does not know queue pairs,
//! memory regions or any other crate of the workspace but `ferroce-sync`.
//!
//! # RoCEv2 sockets
//! - [`Socket`] is one local address and port. [`Socket::send`] gathers up to 64 packets into one system call,
//!   [`Socket::receive`] receives many with one.
//! - [`Slot`] is the share of the QPN space of an address that a process owns, and the mailbox through which other
//!   processes hand off packets that were steered to the wrong process. [`Service`] is a listener of the connection
//!   manager.
//! - [`interface`], [`route`] and [`neighbour`] report local addresses, the path MTU to a destination, and whether the
//!   link-layer address of the next hop is resolved. [`NetlinkMonitor`] reports changes.
//! - [`Processes`] reports when other local processes have ended.
//! - [`capture_link`] connects processes with a process that collects their packets; [`PacketSocket`] captures those of
//!   an interface.
//!
//! # Everything else
//! - [`Poller`], [`poll`], [`Epoll`], [`Event`], [`FileWatch`] and [`clock`]: waiting.
//! - [`UdpSocket`]: an ordinary UDP socket.
//! - [`ring`]: queues in memory that two processes share; [`Hub`] makes and accepts them.
//! - [`PublishedMemory`]: memory that other processes may read.
//! - [`ForkMutex`]: a mutex that is unlocked in a forked child. [`forks`]: how often this process was forked, to detect a forked child.
//! - [`tcp`]: what std does not offer for TCP sockets.
//! - [`signal`], [`thread`], [`exit`], [`file_lock`], [`file_capabilities`], [`random`], [`environment`], [`memory`],
//!   [`usage`]: one system facility each.
//!
//! # rustix and libc
//! Calls go through rustix wherever it has them. Its `linux_raw` backend enters the kernel without the C library, so a
//! preloaded library that replaces `socket` or `accept` (librspreload, which maps sockets to RDMA devices) does not
//! intercept the sockets of those devices. A file that needs libc says why at its top.
//!
//! # What the ICRC needs to know
//! The ICRC covers the IPv4 identification, the "don't fragment" bit and both UDP ports, which the kernel chooses. The
//! choice is predictable: a [`Socket`] is never connected and sets DF, and the identification of a packet is its index
//! in its [`Batch`] if [`Socket::gso`] is on and 0 if it is off. The source port is [`Socket::port`].
//!
//! # Missing kernel features
//! The kernel has to support UDP and nothing else. [`Socket::features`] reports which features are missing or were
//! disabled in [`Options`]; all calls work without them.
#![deny(unsafe_op_in_unsafe_fn)]

mod cancel;
pub mod clock;
pub mod environment;
mod epoll;
mod error;
mod event;
pub mod exit;
pub mod file_capabilities;
pub mod file_lock;
mod file_watch;
mod fork_mutex;
pub mod memory;
mod net;
pub mod poll;
mod published;
pub mod random;
pub mod ring;
pub mod signal;
mod syscall;
pub mod thread;
pub mod usage;

pub use cancel::Uncancellable;
pub use epoll::{Epoll, EpollEvent};
pub use error::Error;
pub use event::Event;
pub use file_watch::FileWatch;
pub use fork_mutex::ForkMutex;
pub use net::batch::{self, Batch};
pub use net::device_fd::forks;
pub use net::hub::{Change, Hub, Incoming, MAX_RING_SIZE, Outgoing};
pub use net::mailbox::{Recipient, Slot};
pub use net::netlink_monitor::{NetlinkGroup, NetlinkMonitor};
pub use net::options::{Features, Options};
pub use net::packet_socket::{self, PacketSocket};
pub use net::process_watch::{ProcessName, Processes};
pub use net::receive::{ReceiveBatch, RxDatagram, RxInfo};
pub use net::slot::Service;
pub use net::socket::Socket;
pub use net::udp::UdpSocket;
pub use net::{
    ROCE_PORT, SOURCE_PORTS, capture_link, forward_header, interface, neighbour, record_header,
    route, steering, tcp,
};
pub use poll::{Interest, Poller, Readiness};
pub use published::{PublishedMemory, Words};

/// Error numbers, for crates that report one without making a system call.
pub mod errno {
    pub use libc::{
        EADDRINUSE, EADDRNOTAVAIL, EAGAIN, EBADF, EBUSY, ECONNREFUSED, EFAULT, EINTR, EINVAL, EIO,
        EISCONN, EMSGSIZE, ENODEV, ENOMEM, ENOSYS, ENOTCONN, EOPNOTSUPP, EPERM, ETIMEDOUT,
    };
}
