//! rsockets: stream and datagram sockets over RDMA, compatible on the wire with rdma-core's (rsocket(7)).
//!
//! A stream is a sequence of RDMA WRITEs with immediate data into a ring in the peer's memory: see [`StreamSocket`].
//! Datagrams are sends between UD queue pairs: see [`DatagramSocket`]. Connections are set up by [`ferroce::cm`].
//!
//! Programs know sockets by file descriptor: [`table`]. Arguments are slices, addresses and numbers; C pointers belong
//! to the crate that exports the C functions. Flags, levels and option names are those of the C library.
//!
//! | file | content |
//! |---|---|
//! | `stream/`, `datagram/` | the two kinds of sockets |
//! | `table` | the program's sockets by descriptor |
//! | `poll`, `epoll` | waiting for several descriptors |
//! | `wait` | threads that block on sockets |
//! | `service` | the service thread |
//! | `completions` | a CQ with its channel |
//! | `settings`, `options`, `fcntl` | sizes, socket options, file flags |
#![forbid(unsafe_code)]

// Unit tests open sockets: this moves them to a network namespace of their own.
#[cfg(test)]
use ferroce_test_support as _;

mod completions;
mod datagram;
pub mod epoll;
mod error;
mod fcntl;
mod options;
mod poll;
mod service;
mod settings;
mod stream;
mod sync;
pub mod table;
mod wait;

use std::time::{Duration, Instant};

pub use datagram::{DatagramSocket, ReceivedDatagram};
pub use error::{Errno, Result};
pub use ferroce_sys::EpollEvent;
pub use ferroce_sys::poll::PollEntry;
pub use poll::poll;
pub use stream::{MapRequest, StreamSocket};
pub use table::Socket;

/// How long [`close_all`] waits for acknowledgements.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Closes all sockets of this process when it ends: data in flight is delivered within 2 s, and peers are notified.
pub fn close_all() {
    let deadline = Some(Instant::now() + EXIT_TIMEOUT);
    for socket in table::try_all() {
        match socket {
            Socket::Stream(socket) if socket.is_own() => socket.close(deadline),
            Socket::Datagram(socket) if socket.is_own() => socket.close(deadline),
            Socket::Stream(_) | Socket::Datagram(_) => {}
        }
    }
}
