//! A memory region (MR), and slices of it.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use ferroce_proto::memory::{AccessFlags, Atomic, Denied, PdId};
use ferroce_sys::memory as sys;
use ferroce_sys::ring::SharedBytes;
use ferroce_wire::number::VirtualAddress;

use crate::range::{AddressRange, Owner};
use crate::watch::Watch;
use crate::{guard, probe};

/// How the memory of a region is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// By pointer: the range was mapped when it was registered, and must stay mapped.
    Ordinary,
    /// Through the kernel, which checks at each access whether memory is mapped (`IBV_ACCESS_ON_DEMAND`). The implicit
    /// region is of this kind and covers all addresses.
    OnDemand,
    /// Without memory: writes are discarded, and reads return zeroes (`ibv_alloc_null_mr`).
    Null,
}

/// The attributes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// The protection domain.
    pub pd: PdId,
    /// How its memory is accessed.
    pub kind: Kind,
    /// Its address in this process.
    pub address: usize,
    /// The address of its first byte in work requests and for peers.
    pub iova: VirtualAddress,
    /// Bytes.
    pub length: u64,
    /// The access flags.
    pub access: AccessFlags,
    /// The number of windows bound to it.
    pub windows: usize,
}

#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) pd: PdId,
    pub(crate) access: AccessFlags,
    pub(crate) kind: Kind,
    pub(crate) iova: u64,
    pub(crate) length: u64,
    /// Its address in this process. `base + length` does not overflow.
    pub(crate) base: usize,
    /// The number of windows bound to it. Incremented only under the read lock of the region's slot.
    pub(crate) windows: AtomicUsize,
    /// It is deregistered, so no window may be bound to it any more. Set under the write lock of its slot.
    pub(crate) revoked: AtomicBool,
    /// What keeps the memory mapped as long as the region exists, if not a promise of the program.
    pub(crate) owner: Option<Owner>,
    /// The parts that the program has unmapped.
    pub(crate) watch: Watch,
}

impl Region {
    /// The registered range.
    pub(crate) fn range(&self) -> AddressRange {
        // SAFETY: the caller that registered it made the promise, which lasts until it is deregistered.
        unsafe { AddressRange::new(self.base, self.length as usize) }
    }

    /// The part of the region at these addresses, if it is within bounds.
    #[inline]
    pub(crate) fn slice(&self, address: u64, length: u64) -> Result<RegionSlice<'_>, Denied> {
        let start = address.checked_sub(self.iova).ok_or(Denied::Bounds)?;
        let end = start.checked_add(length).ok_or(Denied::Bounds)?;
        if end > self.length {
            return Err(Denied::Bounds);
        }
        // Neither overflows: the region is within the address space.
        Ok(RegionSlice {
            region: self,
            address: self.base + start as usize,
            length: length as usize,
            is_protected: false,
        })
    }
}

/// A part of a region, checked to be within its bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionSlice<'a> {
    region: &'a Region,
    address: usize,
    length: usize,
    is_protected: bool,
}

impl RegionSlice<'_> {
    /// For a region that is protected as a whole ([`crate::table::Protected`]).
    #[inline]
    pub(crate) fn protected(self) -> Self {
        Self { is_protected: true, ..self }
    }

    /// Checks that the program has not unmapped any of it, as far as is known.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Denied> {
        let region = self.region;
        // A protected region had no hole, and the thread that adds one waits for this access.
        let is_watched = !self.is_protected && region.kind == Kind::Ordinary;
        if is_watched && !region.watch.is_whole(self.address, self.length) {
            return Err(Denied::Bounds);
        }
        Ok(())
    }

    /// Calls `act` for an ordinary region while no part of the slice can be unmapped.
    #[inline(always)]
    fn access<T>(&self, act: impl FnOnce() -> Result<T, guard::Fault>) -> Result<T, Denied> {
        let region = self.region;
        // Memory that has an owner has holes in tests and simulations only.
        if self.is_protected
            || region.owner.is_some() && !region.watch.has_holes()
            || region.kind != Kind::Ordinary
        {
            return act().map_err(|_| Denied::Bounds);
        }
        let done = region.watch.access(self.address, self.length, || act().ok());
        done.ok_or(Denied::Bounds)
    }

    /// Reads all of it. The caller has checked that reading is allowed.
    #[inline(always)]
    pub(crate) fn read(&self, out: &mut [u8]) -> Result<(), Denied> {
        if out.len() != self.length {
            return Err(Denied::Bounds);
        }
        match self.region.kind {
            Kind::Ordinary => {
                let from = std::ptr::with_exposed_provenance(self.address);
                // SAFETY: within a region that is protected or whose slot is locked, so it is registered, and readable
                // by the promise of `AddressRange` or because it is in a `Buffer`. `out` is a reference, which that
                // promise excludes.
                self.access(|| unsafe { guard::load(from, out) })?;
            }
            Kind::OnDemand => match sys::read(self.address, out) {
                Ok(length) if length == out.len() => {}
                _ => return Err(Denied::Bounds),
            },
            Kind::Null => out.fill(0),
        }
        Ok(())
    }

    /// Reads all of it through the kernel, if it is still mapped.
    pub(crate) fn read_through_kernel(&self, out: &mut [u8]) -> Result<(), Denied> {
        match self.region.kind {
            Kind::Ordinary if out.len() == self.length => {
                self.access(|| match sys::read(self.address, out) {
                    Ok(length) if length == out.len() => Ok(()),
                    _ => Err(guard::Fault),
                })
            }
            _ => self.read(out),
        }
    }

    /// Writes all of it. The caller has checked that writing is allowed.
    #[inline(always)]
    pub(crate) fn write(&self, data: &[u8]) -> Result<(), Denied> {
        if data.len() != self.length {
            return Err(Denied::Bounds);
        }
        match self.region.kind {
            Kind::Ordinary => {
                let to = std::ptr::with_exposed_provenance_mut(self.address);
                // SAFETY: as in `read`; a range is registered for writing only if it was found writable.
                self.access(|| unsafe { guard::store(to, data) })?;
            }
            // SAFETY: the caller that registered the range allowed it to be written.
            Kind::OnDemand => match unsafe { sys::write(self.address, data) } {
                Ok(length) if length == data.len() => {}
                _ => return Err(Denied::Bounds),
            },
            Kind::Null => {}
        }
        Ok(())
    }

    /// Writes all of it from memory that another process may change meanwhile. The caller has checked that writing is
    /// allowed.
    pub(crate) fn write_shared(&self, data: SharedBytes<'_>) -> Result<(), Denied> {
        match self.region.kind {
            Kind::Ordinary if data.len() == self.length => {
                let to = std::ptr::with_exposed_provenance_mut(self.address);
                // SAFETY: as in `write`; the shared bytes are mapped as long as they are borrowed.
                self.access(|| unsafe { guard::store_shared(to, data.as_ptr(), data.len()) })
            }
            _ => {
                let mut copy = vec![0; data.len()];
                data.copy_to(&mut copy);
                self.write(&copy)
            }
        }
    }

    /// Executes an atomic operation on all of it, which is 8 bytes. The caller has checked that writing is allowed.
    pub(crate) fn atomic(&self, operation: Atomic) -> Result<u64, Denied> {
        // An aligned `iova` may map to an unaligned address, and the processor requires an aligned one.
        if self.address % 8 != 0 || self.length != 8 {
            return Err(Denied::Alignment);
        }
        match self.region.kind {
            Kind::Ordinary => {}
            // No system call does this. The memory may be unmapped after the check; the fault is then caught.
            Kind::OnDemand => {
                probe::range(self.address, self.length, true).map_err(|_| Denied::Bounds)?;
            }
            Kind::Null => return Ok(0),
        }
        let word = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: as in `write`, and aligned.
        self.access(|| unsafe { guard::atomic(word, operation) })
    }
}
