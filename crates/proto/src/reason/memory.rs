//! Accesses to memory that a key does not allow.

use core::fmt;

use ferroce_wire::number::Qpn;

use crate::memory::{AccessFlags, Denied, PdId, RemoteRange, Sge};

/// An access to memory that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedAccess {
    /// The peer's request names an rkey; a local work request names an lkey.
    pub is_remote: bool,
    /// The key.
    pub key: u32,
    /// The first address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// The access flags that it needs.
    pub needs: AccessFlags,
}

impl RefusedAccess {
    /// An access by the peer.
    pub fn remote(range: RemoteRange, needs: AccessFlags) -> Self {
        let RemoteRange { key, address, length } = range;
        Self { is_remote: true, key: key.0, address: address.0, length: length.into(), needs }
    }

    /// An access by a local work request.
    pub fn local(sge: Sge, writes: bool) -> Self {
        let needs = if writes { AccessFlags::LOCAL_WRITE } else { AccessFlags::empty() };
        let Sge { key, address, length } = sge;
        Self { is_remote: false, key: key.0, address: address.0, length: length.into(), needs }
    }
}

/// What a key refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// A memory region.
    Region,
    /// A memory window.
    Window,
}

/// Why a key does not allow an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// No object has the key, and none had it lately.
    Unknown,
    /// The object was deregistered, deallocated or bound with another key.
    Deregistered,
    /// The object is in another protection domain.
    OtherPd {
        /// The PD of the object.
        object: PdId,
        /// The PD of the queue pair.
        queue_pair: PdId,
    },
    /// The range is not inside the object.
    Outside {
        /// What it is outside of.
        object: Object,
        /// The first address of the object.
        start: u64,
        /// Its length in bytes.
        size: u64,
    },
    /// The object does not allow the access.
    MissingAccess {
        /// The object.
        object: Object,
        /// The access flags that it lacks.
        missing: AccessFlags,
    },
    /// The program has unmapped the memory.
    Unmapped,
    /// The address is not a multiple of 8.
    Misaligned,
    /// The memory window is not bound.
    Unbound,
    /// The memory window is bound to another queue pair.
    OtherQueuePair(Qpn),
    /// The key is one of a memory window, which has no lkey.
    NoLkey,
    /// The key allows the access, but the copy to or from the memory failed.
    CopyFailed,
}

impl KeyFault {
    pub(crate) const fn number(self) -> u16 {
        match self {
            Self::Unknown => 1,
            Self::Deregistered => 2,
            Self::OtherPd { .. } => 3,
            Self::Outside { .. } => 4,
            Self::MissingAccess { .. } => 5,
            Self::Unmapped => 6,
            Self::Misaligned => 7,
            Self::Unbound => 8,
            Self::OtherQueuePair(_) => 9,
            Self::NoLkey => 10,
            Self::CopyFailed => 11,
        }
    }
}

/// What a denial says by itself, where nothing more is known.
impl From<Denied> for KeyFault {
    fn from(denied: Denied) -> Self {
        let (object, none) = (Object::Region, AccessFlags::empty());
        match denied {
            Denied::Key => Self::Unknown,
            Denied::PdId => Self::OtherPd { object: PdId(0), queue_pair: PdId(0) },
            Denied::Bounds => Self::Unmapped,
            Denied::Access => Self::MissingAccess { object, missing: none },
            Denied::Alignment => Self::Misaligned,
        }
    }
}

/// Access flags by their names in `enum ibv_access_flags`, without the prefix.
pub(super) struct Flags(pub(super) AccessFlags);

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags_names(self.0, f)
    }
}

fn bitflags_names(flags: AccessFlags, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut rest = false;
    for (name, _) in flags.iter_names() {
        write!(f, "{}{name}", if rest { " and " } else { "" })?;
        rest = true;
    }
    if rest { Ok(()) } else { f.write_str("an access flag") }
}

pub(super) fn write(
    f: &mut fmt::Formatter<'_>,
    access: &RefusedAccess,
    fault: KeyFault,
) -> fmt::Result {
    let RefusedAccess { is_remote, key, address, length, needs } = *access;
    let verb = match is_remote {
        true if needs.contains(AccessFlags::REMOTE_WRITE) => "the peer's RDMA WRITE",
        true if needs.contains(AccessFlags::REMOTE_READ) => "the peer's RDMA READ",
        true if needs.contains(AccessFlags::REMOTE_ATOMIC) => "the peer's atomic operation",
        true => "the peer's FLUSH",
        false if needs.contains(AccessFlags::LOCAL_WRITE) => "writing received data",
        false => "reading the data to send",
    };
    let name = if is_remote { "rkey" } else { "lkey" };
    write!(f, "refused {verb} of {length} bytes at {address:#x}: {name} {key:#x} ")?;
    match fault {
        KeyFault::Unknown => f.write_str("is unknown"),
        KeyFault::Deregistered => f.write_str("was deregistered"),
        KeyFault::OtherPd { object, queue_pair } => write!(
            f,
            "belongs to another protection domain ({}, the queue pair is in {})",
            object.0, queue_pair.0
        ),
        KeyFault::Outside { object, start, size } => {
            let object = noun(object);
            write!(f, "is {object} of {size} bytes at {start:#x}, the access ")?;
            let (end, last) = (address.saturating_add(length), start.saturating_add(size));
            match (start.saturating_sub(address), end.saturating_sub(last)) {
                (0, behind) => write!(f, "ends {behind} bytes behind it"),
                (before, 0) => write!(f, "begins {before} bytes before it"),
                (before, behind) => {
                    write!(f, "begins {before} bytes before and ends {behind} bytes behind it")
                }
            }
        }
        KeyFault::MissingAccess { object, missing } => {
            write!(f, "is {} without {}", noun(object), Flags(missing))
        }
        KeyFault::Unmapped => {
            f.write_str("is registered, but the program has unmapped the memory (munmap, free)")
        }
        KeyFault::Misaligned => f.write_str("is used at an address that is no multiple of 8"),
        KeyFault::Unbound => f.write_str("is a memory window that is not bound"),
        KeyFault::OtherQueuePair(owner) => {
            write!(f, "is a memory window that QP {:#08x} has bound for itself", owner.0)
        }
        KeyFault::NoLkey => f.write_str("is a memory window, which has no lkey"),
        KeyFault::CopyFailed => f.write_str("allows it, but the copy to or from the memory failed"),
    }
}

const fn noun(object: Object) -> &'static str {
    match object {
        Object::Region => "an MR",
        Object::Window => "a memory window",
    }
}

pub(super) const fn bind_refusal(denied: Denied) -> &'static str {
    match denied {
        Denied::Key => {
            "one of the keys is unknown, or the new key differs in more than the low 8 bits"
        }
        Denied::PdId => "window, region and queue pair are not in one protection domain",
        Denied::Bounds => "the range is not inside the region",
        Denied::Access => {
            "the region lacks MW_BIND or LOCAL_WRITE, the access flags are not allowed for windows, or a type 2 window is bound already"
        }
        Denied::Alignment => "the address is not aligned",
    }
}

pub(super) const fn invalidate_refusal(denied: Denied) -> &'static str {
    match denied {
        Denied::Key => "no window that this queue pair has bound has it",
        Denied::PdId => "it belongs to another protection domain",
        _ => "only memory windows of type 2 can be invalidated",
    }
}
