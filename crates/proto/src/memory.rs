//! Registered memory as the transports see it: they pass keys and ranges, and get a verdict. Addresses are opaque
//! here; the implementation of [`Memory`] owns the bytes.

use alloc::boxed::Box;
use core::fmt;

use ferroce_wire::number::{LKey, Qpn, RKey, VirtualAddress};
use ferroce_wire::transport::Reth;

use crate::reason::{KeyFault, RefusedAccess};
use crate::work::SgList;

mod no_contents;

pub use ferroce_wire::access::AccessFlags;
pub use no_contents::NoContents;

/// A protection domain (PD). A QP can only use memory of its own PD (IBA 10.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PdId(pub u32);

/// The QP that accesses memory, and its PD. A type 2 memory window can be bound to one QP (IBA 10.6.7.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Accessor {
    /// The protection domain.
    pub pd: PdId,
    /// The QPN.
    pub queue_pair: Qpn,
}

/// A memory window bind (IBA 10.6.7.2). Length 0 unbinds the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The window's current or last rkey.
    pub window: RKey,
    /// The new rkey. It may differ from the old one in the low 8 bits only, which the owner chooses.
    pub key: RKey,
    /// The memory region (MR) that the window exposes a part of.
    pub region: LKey,
    /// Start address of that part.
    pub address: VirtualAddress,
    /// Length in bytes.
    pub length: u64,
    /// Remote access rights of the window.
    pub access: AccessFlags,
}

/// A scatter/gather element (SGE): local memory that a work request refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// The lkey of its MR.
    pub key: LKey,
    /// Start address.
    pub address: VirtualAddress,
    /// Length in bytes.
    pub length: u32,
}

/// A range of local memory that a peer's request refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRange {
    /// The rkey in the peer's request.
    pub key: RKey,
    /// Start address.
    pub address: VirtualAddress,
    /// Length in bytes.
    pub length: u32,
}

impl From<&Reth> for RemoteRange {
    fn from(reth: &Reth) -> Self {
        Self { key: reth.key, address: reth.address, length: reth.length }
    }
}

/// Why a memory access was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denied {
    /// No MR or window has this key, or it was deregistered or invalidated.
    Key,
    /// The MR belongs to another PD.
    PdId,
    /// The range is not fully inside the MR.
    Bounds,
    /// The MR or window does not allow this kind of access.
    Access,
    /// An atomic operation at an address that is not a multiple of 8.
    Alignment,
}

/// An atomic operation on 8 bytes (IBA 9.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Writes `swap` if the memory holds `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Adds with wrap-around.
    FetchAdd(u64),
    /// Writes unconditionally (ATOMIC WRITE, IBA A19).
    Write(u64),
}

impl Atomic {
    /// Returns the value after the operation on `original`.
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if original == compare => swap,
            Self::CompareSwap { .. } => original,
            Self::FetchAdd(value) => original.wrapping_add(value),
            Self::Write(value) => value,
        }
    }
}

/// An access that was begun and has not finished. No two unfinished accesses to a memory have the same token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// The answer to an access that may take time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun<T> {
    /// It is done.
    Done(T),
    /// It goes on. [`Memory::poll_finished`] returns the token when it has finished.
    Pending(Token),
}

/// An access that has finished, for [`Endpoint::handle_finished`](crate::endpoint::Endpoint::handle_finished) of the QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The QP that began it.
    pub queue_pair: Qpn,
    /// Its token.
    pub token: Token,
    /// The result.
    pub outcome: Outcome,
}

/// The result of an access that took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The bytes are in memory, for all that read it.
    Written,
    /// The atomic operation was executed; the original value.
    Executed(u64),
    /// The copy failed. Nobody is at fault who named the memory: it was allowed when it began.
    Failed,
}

/// The bytes of a payload that memory has read ahead. The memory may keep its buffers in it: they are free again when it is
/// dropped.
pub struct Staged(Box<dyn AsRef<[u8]> + Send + Sync>);

impl Staged {
    /// Bytes of any owner.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Box::new(bytes))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes().len())
    }
}

/// A payload that was read ahead, for [`Endpoint::handle_read`](crate::endpoint::Endpoint::handle_read) of the QP.
#[derive(Debug)]
pub struct PayloadRead {
    /// The QP that began it.
    pub queue_pair: Qpn,
    /// Its token.
    pub token: Token,
    /// The bytes; `None` if the copy failed.
    pub payload: Option<Staged>,
}

/// Registered memory. Every method checks key, PD, bounds and access rights itself: an earlier check is not a
/// permission, since an MR can be deregistered between two packets of a message.
pub trait Memory {
    /// Checks that a work request may read from this SGE, or write into it.
    fn check_local(&self, pd: PdId, sge: Sge, write: bool) -> Result<(), Denied>;

    /// Reads all of a local SGE to be sent.
    fn read_local(&self, pd: PdId, sge: Sge, out: &mut [u8]) -> Result<(), Denied>;

    /// Whether any access answers [`Begun::Pending`]. Where it is false, the branches for these are not compiled.
    const CAN_PEND: bool = false;

    /// As [`Memory::write_local`], but may answer that it takes time: the memory has copied `data` then, and the checks
    /// have passed. Accesses that are unfinished at the same time may be executed in any order.
    #[inline(always)]
    fn begin_write_local(
        &mut self,
        by: Accessor,
        sge: Sge,
        data: &[u8],
    ) -> Result<Begun<()>, Denied> {
        self.write_local(by.pd, sge, data).map(Begun::Done)
    }

    /// As [`Memory::write_remote`], but may answer that it takes time.
    #[inline(always)]
    fn begin_write_remote(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        data: &[u8],
    ) -> Result<Begun<()>, Denied> {
        self.write_remote(by, range, data).map(Begun::Done)
    }

    /// As [`Memory::atomic`], but may answer that it takes time.
    #[inline(always)]
    fn begin_atomic(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        operation: Atomic,
    ) -> Result<Begun<u64>, Denied> {
        self.atomic(by, range, operation).map(Begun::Done)
    }

    /// Prepares `length` bytes of a send request from `offset` on to be read. `Done`: [`Memory::read_local`] reads them when
    /// a packet is encoded. `Pending`: they are read ahead, as one piece.
    #[inline(always)]
    fn begin_read_local(
        &mut self,
        by: Accessor,
        sg_list: &SgList,
        offset: u64,
        length: u32,
    ) -> Result<Begun<()>, Denied> {
        let _ = (by, sg_list, offset, length);
        Ok(Begun::Done(()))
    }

    /// Prepares a range that a peer's RDMA READ requested to be read, as [`Memory::begin_read_local`]. `duplicate`: for
    /// [`Memory::read_remote_duplicate`].
    #[inline(always)]
    fn begin_read_remote(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        duplicate: bool,
    ) -> Result<Begun<()>, Denied> {
        let _ = (by, range, duplicate);
        Ok(Begun::Done(()))
    }

    /// The next write or atomic operation that has finished.
    fn poll_finished(&mut self) -> Option<Finished> {
        None
    }

    /// The next payload that was read ahead.
    fn poll_read(&mut self) -> Option<PayloadRead> {
        None
    }

    /// Writes received bytes to the start of a local SGE. Bytes beyond the SGE are denied.
    fn write_local(&mut self, pd: PdId, sge: Sge, data: &[u8]) -> Result<(), Denied>;

    /// Checks that the peer of QP `by` may access this range.
    fn check_remote(
        &self,
        by: Accessor,
        range: RemoteRange,
        access: AccessFlags,
    ) -> Result<(), Denied>;

    /// Checks that the peer of QP `by` may access the MR or window with this rkey, at any address in it.
    fn check_remote_key(&self, by: Accessor, key: RKey, access: AccessFlags) -> Result<(), Denied>;

    /// Reads all of a range that a peer's RDMA READ requested.
    fn read_remote(&self, by: Accessor, range: RemoteRange, out: &mut [u8]) -> Result<(), Denied>;

    /// Reads a range for a duplicate of an RDMA READ that was executed before. The peer may already have the data,
    /// and the owner of the memory may have returned it to the system without deregistering the MR.
    fn read_remote_duplicate(
        &self,
        by: Accessor,
        range: RemoteRange,
        out: &mut [u8],
    ) -> Result<(), Denied> {
        self.read_remote(by, range, out)
    }

    /// Writes a peer's payload; `data` is as long as the range.
    fn write_remote(&mut self, by: Accessor, range: RemoteRange, data: &[u8])
    -> Result<(), Denied>;

    /// Executes an atomic operation on the 8 bytes of `range` and returns the original value.
    fn atomic(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        operation: Atomic,
    ) -> Result<u64, Denied>;

    /// Invalidates an rkey, for a SEND with invalidate or a local work request (IBA 10.6.5). Type 2 windows can be
    /// invalidated; type 1 windows and ordinary MRs cannot.
    fn invalidate(&mut self, by: Accessor, key: RKey) -> Result<(), Denied>;

    /// Why an access was denied, in detail, for a message. Called only after it was: what it finds may have changed
    /// since.
    fn explain(&self, by: Accessor, access: &RefusedAccess, denied: Denied) -> KeyFault {
        let _ = (by, access);
        denied.into()
    }

    /// Binds or unbinds a memory window (IBA 10.6.7.2).
    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied>;
}
