//! What std does not offer for TCP sockets: the kernel's counters, keepalive, receiving without copying, and transfers
//! between a socket and memory that other threads access.
//!
//! libc: rustix has no `TCP_INFO`, and its receive and send calls take slices, which memory that peers write must not
//! become.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::time::Duration;

use libc::{c_void, socklen_t};
use rustix::net::sockopt;

use crate::syscall::{check, check_length, zeroed};

/// Figures of a connection (`TCP_INFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Segments retransmitted since the connection exists.
    pub retransmits: u32,
    /// The maximum segment size for sending, in bytes.
    pub mss: u32,
    /// The smoothed round-trip time.
    pub rtt: Duration,
}

/// Reads the figures of a connection.
pub fn info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    // SAFETY: the structure is numbers.
    let mut info: libc::tcp_info = unsafe { zeroed() };
    let mut length = size_of::<libc::tcp_info>() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes; an older one writes fewer, and the rest stays zero.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast::<c_void>(),
            &raw mut length,
        )
    })?;
    Ok(TcpInfo {
        retransmits: info.tcpi_total_retrans,
        mss: info.tcpi_snd_mss,
        rtt: Duration::from_micros(info.tcpi_rtt.into()),
    })
}

/// Has the kernel probe an idle connection after `idle`, so that a peer whose host is gone ends it within about a minute
/// more.
pub fn set_keepalive(socket: BorrowedFd<'_>, idle: Duration) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(10))?;
    Ok(sockopt::set_tcp_keepcnt(socket, 6)?)
}

/// Receives up to `length` bytes and discards them in the kernel, without copying them (`MSG_TRUNC`, tcp(7)). Returns 0
/// at the end of the stream.
pub fn discard(socket: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
    retry(|| {
        // SAFETY: with this flag the kernel writes no bytes of a stream; if it did, the null pointer would be an error.
        unsafe { libc::recv(socket.as_raw_fd(), null_mut(), length, libc::MSG_TRUNC) }
    })
}

/// Receives up to `length` bytes. Returns 0 at the end of the stream.
///
/// # Safety
/// The range is mapped, and its bytes may be overwritten.
pub unsafe fn receive(socket: BorrowedFd<'_>, to: *mut u8, length: usize) -> io::Result<usize> {
    // SAFETY: the caller's promise.
    retry(|| unsafe { libc::recv(socket.as_raw_fd(), to.cast(), length, 0) })
}

/// Sends up to `length` bytes.
///
/// # Safety
/// The range is mapped. Its bytes may change meanwhile: then the kernel sends some of both.
pub unsafe fn send(socket: BorrowedFd<'_>, from: *const u8, length: usize) -> io::Result<usize> {
    // SAFETY: the caller's promise.
    retry(|| unsafe { libc::send(socket.as_raw_fd(), from.cast(), length, libc::MSG_NOSIGNAL) })
}

/// Repeats a call that a signal interrupted.
fn retry(call: impl Fn() -> isize) -> io::Result<usize> {
    loop {
        match check_length(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests;
