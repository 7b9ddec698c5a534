//! Names of Unix sockets, by which the processes of one address find each other.
//!
//! The names are abstract: there are no files, a name is free as soon as its process has ended for any reason, and each
//! network namespace has its own, as for ports. They end with a random number, so that no other program can bind one in
//! advance. Ownership is taken from the kernel's table ([`crate::net::unix_diag`]), not from the name; names of other
//! users are ignored.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use rustix::net::SocketAddrUnix;

use crate::error::Error;
use crate::net::address::scope;
use crate::net::unix_diag::{self, Named};
use crate::{ROCE_PORT, random};

/// The start of the names of sockets that accept rings, with the version of what is in a ring: processes that disagree about it
/// do not find each other's, and exchange packets through sockets.
const RING: &str = "ring5/";

/// The purpose of a named Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The mailbox of a slot. `bind_index` is the number of other processes when the slot was claimed, and so the index of
    /// the socket in the kernel's list.
    Slot { slot: u8, bind_index: u8 },
    /// Announces that the owner of a slot has a service of the connection manager.
    Service { id: u64, slot: u8 },
    /// Other processes connect to it to be notified when the owner of the slot ends.
    Liveness(u8),
    /// Other processes connect to it to offer a ring to the owner of the slot.
    Ring(u8),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot { slot, bind_index } => write!(f, "{slot}-{bind_index}"),
            Self::Service { id, slot } => write!(f, "svc/{id:016x}/{slot}"),
            Self::Liveness(slot) => write!(f, "up/{slot}"),
            Self::Ring(slot) => write!(f, "{RING}{slot}"),
        }
    }
}

impl Role {
    fn parse(text: &str) -> Option<Self> {
        let (role, _random) = text.rsplit_once('/')?;
        let number = |text: &str| text.parse().ok();
        if let Some(live) = role.strip_prefix("up/") {
            return Some(Self::Liveness(number(live)?));
        }
        if let Some(ring) = role.strip_prefix(RING) {
            return Some(Self::Ring(number(ring)?));
        }
        if let Some(service) = role.strip_prefix("svc/") {
            let (id, owner) = service.split_once('/')?;
            return Some(Self::Service {
                id: u64::from_str_radix(id, 16).ok()?,
                slot: number(owner)?,
            });
        }
        let (slot, bind_index) = role.split_once('-')?;
        Some(Self::Slot { slot: number(slot)?, bind_index: number(bind_index)? })
    }
}

/// The prefix of all names of an address: `ferroce/<address>/`. A scope, and a port other than 4791, are part of it.
pub(crate) fn prefix(address: SocketAddr) -> String {
    let mut text = format!("ferroce/{}", address.ip());
    match scope(address) {
        0 => {}
        scope => text.push_str(&format!("%{scope}")),
    }
    if address.port() != ROCE_PORT {
        text.push_str(&format!(":{}", address.port()));
    }
    text.push('/');
    text
}

/// Makes a new name: `ferroce/<address>/<slot>-<bind index>/<random>`, `ferroce/<address>/svc/<service>/<slot>/<random>` or
/// `ferroce/<address>/up/<slot>/<random>`, or [`RING`] in place of `up/`.
pub(crate) fn new(address: SocketAddr, role: Role) -> String {
    format!("{}{role}/{:016x}", prefix(address), random::number())
}

/// The socket address of a name. The longest name is that of a service on a scoped IPv6 address with a port other than
/// 4791: 106 bytes of 107.
pub(crate) fn socket_address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// The effective user ID: only names of this user count.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a user ID that the kernel reports is certainly ours. A user namespace shows all users that it does not map as one
/// number: a process whose own user is not mapped cannot tell its user from others, and trusts none.
pub(crate) fn is_certainly_this_user(uid: u32) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    uid == user()
        && !may_be_anyone(uid, &read("/proc/sys/kernel/overflowuid"), || read("/proc/self/uid_map"))
}

/// Whether a user ID stands for all users that are not mapped, given the contents of these files.
fn may_be_anyone(uid: u32, overflow_uid: &str, uid_map: impl FnOnce() -> String) -> bool {
    uid == overflow_uid.trim().parse().unwrap_or(65_534)
        // All users are mapped: it is a user as others are.
        && !uid_map().split_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether a socket belongs to this user. If the kernel does not report owners, all do.
pub(crate) fn belongs_to_this_user(socket: &Named) -> bool {
    socket.user.is_none_or(|owner| owner == user())
}

/// The slots and services of an address that processes of this user own.
#[derive(Debug)]
pub(crate) struct Directory(Vec<(Role, Named)>);

impl Directory {
    pub(crate) fn read(address: SocketAddr) -> Result<Self, Error> {
        let prefix = prefix(address);
        let sockets = unix_diag::named(&prefix)
            .map_err(|error| Error::system("read the table of Unix sockets", error))?;
        let sockets = sockets.into_iter().filter(belongs_to_this_user);
        let entry = |socket: Named| Some((Role::parse(&socket.name[prefix.len()..])?, socket));
        Ok(Self(sockets.filter_map(entry).collect()))
    }

    /// The claimed slots.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u8> {
        self.0.iter().filter_map(|(role, _)| match role {
            Role::Slot { slot, .. } => Some(*slot),
            _ => None,
        })
    }

    /// The services with the slots of their owners.
    pub(crate) fn services(&self) -> impl Iterator<Item = (u64, u8)> {
        self.0.iter().filter_map(|(role, _)| match role {
            Role::Service { id, slot } => Some((*id, *slot)),
            _ => None,
        })
    }

    /// The mailbox of a slot.
    pub(crate) fn mailbox(&self, slot: u8) -> Option<&Named> {
        let matches =
            |role: &Role| matches!(role, Role::Slot { slot: found, .. } if *found == slot);
        self.0.iter().find(|(role, _)| matches(role)).map(|(_, socket)| socket)
    }

    /// The liveness socket of a slot's owner.
    pub(crate) fn liveness(&self, slot: u8) -> Option<&Named> {
        self.find(Role::Liveness(slot))
    }

    /// The socket at which a slot's owner accepts rings.
    pub(crate) fn ring(&self, slot: u8) -> Option<&Named> {
        self.find(Role::Ring(slot))
    }

    fn find(&self, wanted: Role) -> Option<&Named> {
        self.0.iter().find(|(role, _)| *role == wanted).map(|(_, socket)| socket)
    }

    /// Whether the kernel's list of sockets is in the order of the slots, as far as the names show: it is if no process
    /// ended before one with a higher slot.
    pub(crate) fn is_in_order(&self) -> bool {
        let count = self.slots().count();
        self.0.iter().all(|(role, _)| match role {
            Role::Slot { slot, bind_index } => slot == bind_index && usize::from(*slot) < count,
            _ => true,
        })
    }

    /// How many processes claim a role: more than one only for the moment in which two claim it at the same time.
    pub(crate) fn claims(&self, role: Role) -> usize {
        match role {
            Role::Slot { slot: wanted, .. } => self.slots().filter(|&slot| slot == wanted).count(),
            Role::Service { id: wanted, .. } => {
                self.services().filter(|&(id, _)| id == wanted).count()
            }
            Role::Liveness(_) | Role::Ring(_) => {
                self.0.iter().filter(|(held, _)| *held == role).count()
            }
        }
    }
}

#[cfg(test)]
mod tests;
