//! Notifications of the kernel about changes of the network: rtnetlink(7) multicast groups, which need no privilege.
//!
//! libc: rustix does not have `NETLINK_ADD_MEMBERSHIP`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::error::Error;
use crate::net::netlink;
use crate::syscall::set_option;

/// What to be notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetlinkGroup {
    /// Interfaces that appear, disappear, or change their state (`RTNLGRP_LINK`).
    Interfaces = 1,
    /// Neighbours that are resolved or become unreachable (`RTNLGRP_NEIGH`).
    Neighbours = 3,
}

/// A descriptor that is readable while notifications are queued.
#[derive(Debug)]
pub struct NetlinkMonitor {
    fd: OwnedFd,
    group: NetlinkGroup,
}

impl NetlinkMonitor {
    /// Opens a monitor. It receives nothing until [`NetlinkMonitor::set_subscribed`].
    pub fn new(group: NetlinkGroup) -> Result<Self, Error> {
        let fd = netlink::open_bound()
            .map_err(|error| Error::system("monitor the network for changes", error))?;
        Ok(Self { fd, group })
    }

    /// Subscribes or unsubscribes.
    pub fn set_subscribed(&self, subscribed: bool) -> Result<(), Error> {
        let name =
            if subscribed { libc::NETLINK_ADD_MEMBERSHIP } else { libc::NETLINK_DROP_MEMBERSHIP };
        set_option(self.fd.as_fd(), libc::SOL_NETLINK, name, self.group as libc::c_int)
            .map_err(|error| Error::system("monitor the network for changes", error))
    }

    /// Discards the queued notifications: the caller queries the state that it needs.
    pub fn drain(&self) {
        let mut bytes = [0_u8; 4096];
        loop {
            match recv(&self.fd, &mut bytes, RecvFlags::empty()) {
                // ENOBUFS: the queue overflowed.
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
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
