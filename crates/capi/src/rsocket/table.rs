//! Sockets that the program has, by their numbers.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::{Arc, PoisonError, RwLock};

use super::datagram::Datagram;
use super::socket::Socket;
use super::wait::Progress;
use crate::entry::{Errno, Result};

/// A socket of either kind.
#[derive(Clone)]
pub(super) enum Any {
    Stream(Arc<Socket>),
    Datagram(Arc<Datagram>),
}

impl Any {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stream(one), Self::Stream(other)) => Arc::ptr_eq(one, other),
            (Self::Datagram(one), Self::Datagram(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Does something with its state, behind its lock.
    pub(super) fn with<T>(&self, body: impl FnOnce(&mut dyn Progress) -> T) -> T {
        match self {
            Self::Stream(socket) => body(&mut *socket.state()),
            Self::Datagram(socket) => body(&mut *socket.state()),
        }
    }
}

static TABLE: RwLock<BTreeMap<RawFd, Any>> = RwLock::new(BTreeMap::new());

/// Gives one to the program.
pub(super) fn insert(number: RawFd, socket: Any) {
    TABLE.write().unwrap_or_else(PoisonError::into_inner).insert(number, socket);
}

/// The program's socket.
pub(super) fn of(number: c_int) -> Result<Any> {
    find(number).ok_or(Errno(libc::EBADF))
}

pub(super) fn find(number: c_int) -> Option<Any> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
}

/// Takes it back from the program.
pub(super) fn take(number: c_int) -> Result<Any> {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    table.remove(&number).ok_or(Errno(libc::EBADF))
}

/// All that the program has, for who cannot wait: none when somebody is at the table just now.
pub(super) fn all() -> Vec<Any> {
    let table = TABLE.try_read();
    table.map_or_else(|_| Vec::new(), |table| table.values().cloned().collect())
}
