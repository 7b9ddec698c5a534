//! What the kernel tells of changes to the network: netlink(7), which needs no privilege.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::error::Error;
use crate::net::netlink;
use crate::syscall::{check_length, errno, set_option};

/// What there are news of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Interfaces come, go, and are switched on and off (`RTNLGRP_LINK`).
    Interfaces = 1,
    /// Neighbours are found, and lost (`RTNLGRP_NEIGH`).
    Neighbours = 3,
}

/// News, behind a descriptor that is readable when there are some.
#[derive(Debug)]
pub struct NetlinkMonitor {
    fd: OwnedFd,
    subject: Subject,
}

impl NetlinkMonitor {
    /// Hears of nothing until it is told to listen.
    pub fn of(subject: Subject) -> Result<Self, Error> {
        let fd = netlink::open_bound()
            .map_err(|error| Error::system("listen for changes of the network", error))?;
        Ok(Self { fd, subject })
    }

    /// Listens, or stops to.
    pub fn listen(&self, listens: bool) -> Result<(), Error> {
        let name =
            if listens { libc::NETLINK_ADD_MEMBERSHIP } else { libc::NETLINK_DROP_MEMBERSHIP };
        set_option(self.fd.as_fd(), libc::SOL_NETLINK, name, self.subject as libc::c_int)
            .map_err(|error| Error::system("listen for changes of the network", error))
    }

    /// Forgets the news so far: who is concerned asks.
    pub fn clear(&self) {
        let mut bytes = [0_u8; 4096];
        loop {
            // SAFETY: the buffer is a local, as long as said.
            let length = check_length(unsafe {
                libc::recv(self.fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0)
            });
            match length {
                Ok(_) => {}
                // More news than it holds: they are all to be forgotten.
                Err(error) if matches!(errno(&error), libc::ENOBUFS | libc::EINTR) => {}
                Err(_) => return,
            }
        }
    }
}

impl AsFd for NetlinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
