//! Names of our Unix sockets, and how the processes of one address find each other by them.
//!
//! The names are abstract: no files, free again the moment a process ends however it ends, and apart for each network
//! namespace, as ports are. They end with a random number, so nobody can take one in advance, and say nothing about
//! who bound them: that is what the kernel's table says ([`crate::net::unix_diag`]). A name of another user is ignored.

use std::fmt;
use std::io;
use std::mem::{offset_of, size_of};
use std::net::SocketAddr;

use libc::{sa_family_t, sockaddr_un, socklen_t};

use crate::net::address::scope;
use crate::net::unix_diag::{self, Named};
use crate::syscall::zeroed;
use crate::{ROCE_PORT, random};

/// What a Unix socket of ours is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The mailbox of a slot, whose process was started when there were so many others.
    Slot { slot: u8, place: u8 },
    /// Says that a slot's owner has a service of the connection manager.
    Service { id: u64, slot: u8 },
    /// Other processes connect to it to learn when the slot's owner ends.
    Liveness(u8),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot { slot, place } => write!(f, "{slot}-{place}"),
            Self::Service { id, slot } => write!(f, "svc/{id:016x}/{slot}"),
            Self::Liveness(slot) => write!(f, "up/{slot}"),
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
        if let Some(service) = role.strip_prefix("svc/") {
            let (id, owner) = service.split_once('/')?;
            return Some(Self::Service {
                id: u64::from_str_radix(id, 16).ok()?,
                slot: number(owner)?,
            });
        }
        let (slot, place) = role.split_once('-')?;
        Some(Self::Slot { slot: number(slot)?, place: number(place)? })
    }
}

/// What all names of an address begin with: `ferroce/<address>/`. A scope and an unusual port are part of the address.
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

/// A new name: `ferroce/<address>/<slot>-<place>/<random>`, `ferroce/<address>/svc/<service>/<slot>/<random>` or
/// `ferroce/<address>/up/<slot>/<random>`.
pub(crate) fn new(address: SocketAddr, role: Role) -> String {
    format!("{}{role}/{:016x}", prefix(address), random::number())
}

/// A name in the kernel's form, and its length.
pub(crate) fn raw(name: &str) -> (sockaddr_un, socklen_t) {
    // SAFETY: a sockaddr_un is numbers.
    let mut raw: sockaddr_un = unsafe { zeroed() };
    raw.sun_family = libc::AF_UNIX as sa_family_t;
    // The longest name is that of a service on a scoped IPv6 address with an unusual port: 106 bytes of 107.
    for (to, from) in raw.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    let length = offset_of!(sockaddr_un, sun_path) + 1 + name.len();
    (raw, length.min(size_of::<sockaddr_un>()) as socklen_t)
}

/// The user whose names count.
pub(crate) fn user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether a socket is one of this user's. Where the kernel does not tell, all are.
pub(crate) fn is_ours(socket: &Named) -> bool {
    socket.user.is_none_or(|owner| owner == user())
}

/// The slots and services of an address that this user's processes have.
#[derive(Debug)]
pub(crate) struct Directory(Vec<(Role, Named)>);

impl Directory {
    pub(crate) fn read(address: SocketAddr) -> io::Result<Self> {
        let prefix = prefix(address);
        let sockets = unix_diag::named(&prefix)?.into_iter().filter(is_ours);
        let entry = |socket: Named| Some((Role::parse(&socket.name[prefix.len()..])?, socket));
        Ok(Self(sockets.filter_map(entry).collect()))
    }

    /// The slots that are taken.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u8> {
        self.0.iter().filter_map(|(role, _)| match role {
            Role::Slot { slot, .. } => Some(*slot),
            Role::Service { .. } | Role::Liveness(_) => None,
        })
    }

    /// The services, and the slots of their owners.
    pub(crate) fn services(&self) -> impl Iterator<Item = (u64, u8)> {
        self.0.iter().filter_map(|(role, _)| match role {
            Role::Slot { .. } | Role::Liveness(_) => None,
            Role::Service { id, slot } => Some((*id, *slot)),
        })
    }

    /// The mailbox of a slot.
    pub(crate) fn mailbox(&self, slot: u8) -> Option<&Named> {
        let is_its = |role: &Role| matches!(role, Role::Slot { slot: its, .. } if *its == slot);
        self.0.iter().find(|(role, _)| is_its(role)).map(|(_, socket)| socket)
    }

    /// The socket by which the end of a slot's owner is seen.
    pub(crate) fn liveness(&self, slot: u8) -> Option<&Named> {
        self.0.iter().find(|(role, _)| *role == Role::Liveness(slot)).map(|(_, socket)| socket)
    }

    /// Whether no process has ended before one with a higher slot, as far as can be told: then the kernel has the sockets
    /// in the order of the slots.
    pub(crate) fn is_in_order(&self) -> bool {
        let count = self.slots().count();
        self.0.iter().all(|(role, _)| match role {
            Role::Slot { slot, place } => slot == place && usize::from(*slot) < count,
            Role::Service { .. } | Role::Liveness(_) => true,
        })
    }

    /// How many processes claim this, which is one but for the moment in which two find out that they both want it.
    pub(crate) fn claims(&self, role: Role) -> usize {
        match role {
            Role::Slot { slot: wanted, .. } => self.slots().filter(|&slot| slot == wanted).count(),
            Role::Service { id: wanted, .. } => {
                self.services().filter(|&(id, _)| id == wanted).count()
            }
            Role::Liveness(_) => self.0.iter().filter(|(held, _)| *held == role).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_back() {
        for role in [
            Role::Slot { slot: 0, place: 0 },
            Role::Slot { slot: 254, place: 13 },
            Role::Service { id: u64::MAX, slot: 7 },
            Role::Liveness(9),
        ] {
            assert_eq!(Role::parse(&format!("{role}/0123")), Some(role));
        }
        for other in [
            "",
            "7",
            "7/1",
            "x-0/1",
            "256-0/1",
            "svc/1",
            "svc/1/2",
            "svc/x/1/2",
            "up/1",
            "up/x/1",
            "lock",
        ] {
            assert_eq!(Role::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_longest_name_fits() {
        let address = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".parse().unwrap();
        let name = new(address, Role::Service { id: u64::MAX, slot: 255 });
        let (raw, length) = raw(&name);
        assert!(raw.sun_path.len() > name.len() && length as usize == 3 + name.len());
    }
}
