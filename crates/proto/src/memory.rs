//! Registered memory, as the transports see it: keys and SGEs go in, a verdict comes out. No address here can be
//! dereferenced; whoever implements [`Memory`] owns the bytes.

use ferroce_wire::number::{LKey, Qpn, RKey, VirtualAddress};
use ferroce_wire::transport::Reth;

pub use ferroce_wire::access::AccessFlags;

/// A protection domain: memory and queue pairs of different ones do not meet (IBA 10.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PdId(pub u32);

/// Who reaches for memory: a queue pair, with the domain that it is of. A window of type 2 may be one queue pair's alone
/// (IBA 10.6.7.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Accessor {
    /// The protection domain.
    pub pd: PdId,
    /// The queue pair's own number.
    pub queue_pair: Qpn,
}

/// What a memory window is to show (IBA 10.6.7.2). Length 0 shows nothing: the window is unbound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The window, by the key that it has, or had last.
    pub window: RKey,
    /// The key that it gets: the same in all but its last 8 bits, which are the owner's to choose.
    pub key: RKey,
    /// The region that it shows a part of.
    pub region: LKey,
    /// Where that part starts.
    pub address: VirtualAddress,
    /// Its bytes.
    pub length: u64,
    /// What a peer may do there.
    pub access: AccessFlags,
}

/// A part of local memory that a work request names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// The key it was registered under.
    pub key: LKey,
    /// Where it starts.
    pub address: VirtualAddress,
    /// Bytes.
    pub length: u32,
}

/// A part of memory that a peer names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRange {
    /// The key that the peer presents.
    pub key: RKey,
    /// Where it starts.
    pub address: VirtualAddress,
    /// Bytes.
    pub length: u32,
}

impl From<&Reth> for RemoteRange {
    fn from(reth: &Reth) -> Self {
        Self { key: reth.key, address: reth.address, length: reth.length }
    }
}

/// Why memory may not be used so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denied {
    /// No region or window has this key, or none any more.
    Key,
    /// The key is another protection domain's.
    PdId,
    /// Not all of the SGE lies within the region.
    Bounds,
    /// The region does not allow this kind of access.
    Access,
    /// An atomic operation at an address that is no multiple of 8.
    Alignment,
}

/// An atomic operation on 8 bytes (IBA 9.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Writes `swap` if `compare` is there.
    CompareSwap {
        /// What must be there.
        compare: u64,
        /// What is written then.
        swap: u64,
    },
    /// Adds, wrapping.
    FetchAdd(u64),
    /// Writes, without looking (IBA A19).
    Write(u64),
}

impl Atomic {
    /// What the operation leaves where `original` was.
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if original == compare => swap,
            Self::CompareSwap { .. } => original,
            Self::FetchAdd(value) => original.wrapping_add(value),
            Self::Write(value) => value,
        }
    }
}

/// Registered memory. Every method checks key, domain, bounds and access itself: a verdict given before is no
/// permission, for a region can go between two packets of a message.
pub trait Memory {
    /// Whether a work request may use this SGE: to read from, or to write into.
    fn check_local(&self, pd: PdId, sge: Sge, write: bool) -> Result<(), Denied>;

    /// Reads a local SGE to be sent, all of it.
    fn read_local(&self, pd: PdId, sge: Sge, out: &mut [u8]) -> Result<(), Denied>;

    /// Writes received bytes into the start of a local SGE. Bytes beyond the SGE are denied.
    fn write_local(&mut self, pd: PdId, sge: Sge, data: &[u8]) -> Result<(), Denied>;

    /// Whether a peer may access this SGE so, through the queue pair `by`.
    fn check_remote(
        &self,
        by: Accessor,
        range: RemoteRange,
        access: AccessFlags,
    ) -> Result<(), Denied>;

    /// Whether a peer may access so the region or window that this key names, wherever in it.
    fn check_remote_key(&self, by: Accessor, key: RKey, access: AccessFlags) -> Result<(), Denied>;

    /// Reads a SGE that a peer asked for, all of it.
    fn read_remote(&self, by: Accessor, range: RemoteRange, out: &mut [u8]) -> Result<(), Denied>;

    /// Reads a SGE that a peer was given before, and asks for again. It may not want it any more, and the owner of the
    /// memory, who knows that, may have given it back to the system without a word to us.
    fn read_remote_again(
        &self,
        by: Accessor,
        range: RemoteRange,
        out: &mut [u8],
    ) -> Result<(), Denied> {
        self.read_remote(by, range, out)
    }

    /// Writes a peer's bytes, exactly as many as the SGE has.
    fn write_remote(&mut self, by: Accessor, range: RemoteRange, data: &[u8])
    -> Result<(), Denied>;

    /// Does an atomic operation on the 8 bytes at `SGE`, and returns what was there.
    fn atomic(&mut self, by: Accessor, range: RemoteRange, what: Atomic) -> Result<u64, Denied>;

    /// Makes a key invalid: the peer's wish in a SEND with invalidate, or a local work request's (IBA 10.6.5). Windows
    /// of type 2 can be made invalid, those of type 1 and ordinary regions cannot.
    fn invalidate(&mut self, by: Accessor, key: RKey) -> Result<(), Denied>;

    /// Binds a window, or unbinds it (IBA 10.6.7.2).
    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied>;
}
