//! Multicast groups that a QP is attached to (IBA 10.5).

use alloc::vec::Vec;
use core::net::IpAddr;

use ferroce_wire::address::Gid;

/// Why a queue pair was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// The address is not a multicast address.
    NotMulticast,
    /// The QP is attached to its maximum number of groups.
    Full,
}

/// A bounded set of groups.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    members: Vec<Gid>,
    capacity: usize,
}

impl Groups {
    /// Creates an empty set for up to `capacity` groups.
    pub fn new(capacity: usize) -> Self {
        Self { members: Vec::new(), capacity }
    }

    /// Attaches to a group (IBA 11.3.1); a no-op when already attached.
    pub fn attach(&mut self, group: Gid) -> Result<(), AttachError> {
        if !is_multicast(group) {
            return Err(AttachError::NotMulticast);
        }
        if self.contains(group) {
            return Ok(());
        }
        if self.members.len() >= self.capacity {
            return Err(AttachError::Full);
        }
        self.members.push(group);
        Ok(())
    }

    /// Detaches from a group (IBA 11.3.2). Returns whether it was attached.
    pub fn detach(&mut self, group: Gid) -> bool {
        let place = self.members.iter().position(|&member| member == group);
        place.map(|place| self.members.swap_remove(place)).is_some()
    }

    /// Whether the QP is attached to this group.
    pub fn contains(&self, group: Gid) -> bool {
        self.members.contains(&group)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The groups, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Gid> + '_ {
        self.members.iter().copied()
    }
}

/// A group's GID is an IPv6 multicast address, or an IPv4 one mapped into IPv6 (IBA 4.1.1, A17.4.2).
fn is_multicast(gid: Gid) -> bool {
    match gid.to_ip() {
        IpAddr::V4(address) => address.is_multicast(),
        IpAddr::V6(address) => address.is_multicast(),
    }
}
