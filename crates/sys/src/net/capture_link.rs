//! Connections between processes that have devices and a process that collects their packets (`ferroce capture`).
//!
//! The collector listens on an abstract Unix socket whose name holds its parameters and ends with a random number. A
//! process looks for such names when it opens a device; those that run already are notified through their liveness
//! sockets (`process_watch`) and then look. A process connects and passes the memory of a ring for its
//! packets, as processes do for the packets between them (`hub`). Other messages follow in both directions;
//! their meaning is the caller's.
//!
//! As everywhere, names of other users are ignored, whoever bound them, and both sides ask the kernel for the user at the
//! other end of a connection. A forked child loses the sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::net::device_fd::DeviceFd;
use crate::net::peer_socket::{
    accept_all, connect, listen, send_ring, take_ring, wait, wait_for_end,
};
use crate::net::process_watch::CAPTURE_NOTICE;
use crate::net::{unix_diag, unix_name};
use crate::random;
use crate::ring::{Consumer, MAX_SIZE, Producer, RingFile};

/// The prefix of all names.
const PREFIX: &str = "ferroce/capture/";

/// "Ferroce capture", version 2: the first message on a connection.
const OFFER: &[u8] = b"Fc\0\x02";

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// The longest message.
pub const MAX_MESSAGE: usize = 512;

/// How often a connection is tried again if the collector has not accepted earlier ones, a millisecond apart.
const ATTEMPTS: u32 = 100;

/// What a collector asks of the processes; part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// A process whose ring is full waits, instead of dropping packets.
    pub block: bool,
    /// The maximum number of bytes per frame.
    pub snap_len: u32,
    /// The size of the ring of a process in bytes.
    pub ring: u32,
}

impl Parameters {
    fn name(self) -> String {
        let policy = if self.block { "block" } else { "drop" };
        format!("{PREFIX}{policy}/{}/{}/{:016x}", self.snap_len, self.ring, random::number())
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('/');
        let block = match parts.next()? {
            "block" => true,
            "drop" => false,
            _ => return None,
        };
        let mut number = || parts.next()?.parse().ok();
        let parameters = Self { block, snap_len: number()?, ring: number()? };
        (parts.count() == 1).then_some(parameters)
    }
}

/// A collector that processes of this user can connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorName {
    name: String,
    /// What it asks for.
    pub parameters: Parameters,
}

/// The collectors of this user in this network namespace.
pub fn collectors() -> io::Result<Vec<CollectorName>> {
    let named = unix_diag::named(PREFIX)?.into_iter();
    let ours = named.filter(unix_name::belongs_to_this_user);
    let parsed = ours.filter_map(|socket| {
        let parameters = Parameters::parse(&socket.name)?;
        Some(CollectorName { name: socket.name, parameters })
    });
    let mut found: Vec<_> = parsed.collect();
    // Accepted connections have the name of the listener.
    found.sort_by(|left, right| left.name.cmp(&right.name));
    found.dedup();
    Ok(found)
}

/// Asks the processes of this user that have devices to look for collectors. Returns how many sockets were notified; a
/// process has one for each address.
pub fn notify_processes() -> io::Result<usize> {
    let is_liveness = |name: &str| name.split('/').nth(2) == Some("up");
    let mut notified = 0;
    for socket in unix_diag::named("ferroce/")? {
        if !unix_name::belongs_to_this_user(&socket) || !is_liveness(&socket.name) {
            continue;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if connect(&socket.name).is_ok_and(|fd| send(&fd, CAPTURE_NOTICE, flags).is_ok()) {
            notified += 1;
        }
    }
    Ok(notified)
}

/// A collector's listening socket. Readable when processes want to connect.
#[derive(Debug)]
pub struct CaptureListener {
    fd: DeviceFd,
}

impl CaptureListener {
    /// Opens it under a new name.
    pub fn bind(parameters: Parameters) -> io::Result<Self> {
        Ok(Self { fd: listen(&parameters.name(), BACKLOG)? })
    }

    /// Accepts the connections of this user's processes, and closes those of others.
    pub fn accept(&self) -> Vec<Connection> {
        accept_all(&self.fd).into_iter().map(|fd| Connection { fd }).collect()
    }
}

impl AsFd for CaptureListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A connection between a process and a collector. Readable when a message has arrived or the other end is gone.
#[derive(Debug)]
pub struct Connection {
    fd: DeviceFd,
}

impl Connection {
    /// Connects to a collector and passes it a ring.
    pub fn open(collector: &CollectorName) -> io::Result<(Self, Producer)> {
        let mut attempts = ATTEMPTS;
        let fd = loop {
            attempts -= 1;
            match connect(&collector.name) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && attempts > 0 => {}
                connected => break connected?,
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let file = RingFile::create(collector.parameters.ring as usize)?;
        let producer = Producer::new(&file)?;
        send_ring(&fd, OFFER, &file)?;
        Ok((Self { fd }, producer))
    }

    /// For a collector: maps the ring that the first message carries. `None` if it is not such a message.
    pub fn take_ring(&self) -> Option<Consumer> {
        take_ring(&self.fd, OFFER, MAX_SIZE)
    }

    /// The process at the other end, or 0 if it is in another PID namespace.
    pub fn process(&self) -> u32 {
        socket_peercred(&self.fd)
            .map_or(0, |peer| u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0))
    }

    /// Sends a message. Returns false if the other end has too many unread messages.
    ///
    /// # Errors
    ///
    /// If the other end is gone.
    pub fn send(&self, message: &[u8]) -> io::Result<bool> {
        loop {
            match send(&self.fd, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// As [`Connection::send`], but waits up to a second.
    pub fn send_patiently(&self, message: &[u8]) -> io::Result<bool> {
        for _ in 0..10 {
            if self.send(message)? {
                return Ok(true);
            }
            wait(&self.fd, PollFlags::OUT, Some(Duration::from_millis(100)));
        }
        Ok(false)
    }

    /// Takes a message: its length, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the other end is gone.
    pub fn receive(&self, buffer: &mut [u8; MAX_MESSAGE]) -> io::Result<Option<usize>> {
        loop {
            match recv(&self.fd, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((_, length)) => return Ok(Some(length.min(MAX_MESSAGE))),
                // The other end is gone and has left messages unread: said once, before the messages that it has sent.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until there is a message or the other end is gone.
    pub fn wait_for_message(&self) {
        wait(&self.fd, PollFlags::IN, None);
    }

    /// Waits until the other end is gone, but no longer than `timeout`. Returns whether it is.
    pub fn wait_for_end(&self, timeout: Duration) -> bool {
        wait_for_end(&self.fd, timeout)
    }

    /// Ends the connection: both sides see that the other is gone.
    pub fn close(&self) {
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
