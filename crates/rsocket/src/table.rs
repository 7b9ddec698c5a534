//! The program's sockets by descriptor.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, PoisonError, RwLock};

use crate::datagram::DatagramSocket;
use crate::error::{Errno, Result};
use crate::stream::StreamSocket;
use crate::wait::Pollable;

/// A socket of either kind.
#[derive(Clone)]
pub enum Socket {
    /// A stream.
    Stream(Arc<StreamSocket>),
    /// A datagram socket.
    Datagram(Arc<DatagramSocket>),
}

impl Socket {
    /// Whether both are the same socket.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stream(one), Self::Stream(other)) => Arc::ptr_eq(one, other),
            (Self::Datagram(one), Self::Datagram(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Calls `body` with the socket's state, locked.
    pub(crate) fn with<T>(&self, body: impl FnOnce(&mut dyn Pollable) -> T) -> T {
        match self {
            Self::Stream(socket) => body(&mut *socket.state()),
            Self::Datagram(socket) => body(&mut *socket.state()),
        }
    }

    /// The address family, `AF_INET` or `AF_INET6`.
    pub fn family(&self) -> i32 {
        match self {
            Self::Stream(socket) => socket.family(),
            Self::Datagram(socket) => socket.family(),
        }
    }
}

static TABLE: RwLock<BTreeMap<RawFd, Socket>> = RwLock::new(BTreeMap::new());

/// Enters a socket and returns its descriptor.
pub fn insert(socket: Socket) -> Result<RawFd> {
    let fd = match &socket {
        Socket::Stream(socket) => socket.descriptor()?,
        Socket::Datagram(socket) => socket.descriptor(),
    };
    TABLE.write().unwrap_or_else(PoisonError::into_inner).insert(fd, socket);
    Ok(fd)
}

/// Returns the socket with this descriptor, or `EBADF`.
pub fn get(fd: RawFd) -> Result<Socket> {
    find(fd).ok_or(Errno(libc::EBADF))
}

/// Returns the stream with this descriptor: `EBADF` if there is no socket, `EOPNOTSUPP` if it is a datagram socket.
pub fn stream(fd: RawFd) -> Result<Arc<StreamSocket>> {
    match get(fd)? {
        Socket::Stream(socket) => Ok(socket),
        Socket::Datagram(_) => Err(Errno(libc::EOPNOTSUPP)),
    }
}

/// Returns the socket with this descriptor, if there is one.
pub fn find(fd: RawFd) -> Option<Socket> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner).get(&fd).cloned()
}

/// Removes and closes a socket: `EBADF` if there is none. Returns when everything sent has been acknowledged by the
/// peer.
pub fn close(fd: RawFd) -> Result<()> {
    let removed = TABLE.write().unwrap_or_else(PoisonError::into_inner).remove(&fd);
    match removed.ok_or(Errno(libc::EBADF))? {
        Socket::Stream(socket) => socket.close(None),
        Socket::Datagram(socket) => socket.close(None),
    }
    Ok(())
}

/// Returns all sockets without blocking: none if another thread is changing the table.
pub(crate) fn try_all() -> Vec<Socket> {
    let table = TABLE.try_read();
    table.map_or_else(|_| Vec::new(), |table| table.values().cloned().collect())
}
