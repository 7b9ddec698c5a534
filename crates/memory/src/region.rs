//! One registered region, and a place within it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ferroce_proto::memory::{AccessFlags, Atomic, Denied, PdId};
use ferroce_wire::number::VirtualAddress;

use crate::buffer::Buffer;
use crate::pinned::Released;
use crate::range::AddressRange;
use crate::watch::Watch;
use crate::{guard, probe, system};

/// How the bytes of a region are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// By pointer: the range was there when it was registered, and stays.
    Ordinary,
    /// By way of the kernel, which looks at each access whether memory is there (`IBV_ACCESS_ON_DEMAND`). The implicit
    /// region is one of these, over all addresses.
    OnDemand,
    /// There are none: what is written is gone, and zeroes are read (`ibv_alloc_null_mr`).
    Null,
}

/// What is known of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// The protection domain.
    pub pd: PdId,
    /// How its bytes are reached.
    pub kind: Kind,
    /// Where it is in this process.
    pub address: usize,
    /// The address of its first byte, as work requests and peers count.
    pub iova: VirtualAddress,
    /// Bytes.
    pub length: u64,
    /// What it may be used for.
    pub access: AccessFlags,
    /// Windows that are bound to it.
    pub windows: usize,
}

#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) pd: PdId,
    pub(crate) access: AccessFlags,
    pub(crate) kind: Kind,
    pub(crate) iova: u64,
    pub(crate) length: u64,
    /// Where it starts. With `length`, within the address space.
    pub(crate) base: usize,
    /// Windows that are bound to it. Grows only under the read lock of the region's slot.
    pub(crate) windows: AtomicUsize,
    /// Our own memory lasts at least as long as the region.
    pub(crate) owner: Option<Arc<Buffer>>,
    /// What of it the program has unmapped.
    pub(crate) watch: Watch,
    /// Tells who waits when the last user of the region is gone.
    pub(crate) released: Released,
}

impl Region {
    /// The range that was registered, as its owner named it.
    pub(crate) fn range(&self) -> AddressRange {
        // SAFETY: whoever registered it made the promise, which lasts until it is deregistered.
        unsafe { AddressRange::new(self.base, self.length as usize) }
    }

    /// The part of the region at these addresses, if all of it is.
    #[inline]
    pub(crate) fn place(&self, address: u64, length: u64) -> Result<Place<'_>, Denied> {
        let start = address.checked_sub(self.iova).ok_or(Denied::Bounds)?;
        let end = start.checked_add(length).ok_or(Denied::Bounds)?;
        if end > self.length {
            return Err(Denied::Bounds);
        }
        // Both fit: the region is within the address space.
        Ok(Place { region: self, address: self.base + start as usize, length: length as usize })
    }
}

/// A part of a region that was seen to be within it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    region: &'a Region,
    address: usize,
    length: usize,
}

impl Place<'_> {
    /// Whether the program has unmapped none of it, as far as is known.
    pub(crate) fn check(&self) -> Result<(), Denied> {
        self.access(|| Ok(()))
    }

    /// Does something with the memory of an ordinary region, while no part of it is unmapped.
    #[inline]
    fn access<T>(&self, act: impl FnOnce() -> Result<T, guard::Fault>) -> Result<T, Denied> {
        let region = self.region;
        if region.owner.is_some() || region.kind != Kind::Ordinary {
            return act().map_err(|_| Denied::Bounds);
        }
        let done = region.watch.access(self.address, self.length, || act().ok());
        done.ok_or(Denied::Bounds)
    }

    /// Where it is, if that is sure to stay.
    pub(crate) fn pointer(&self) -> Option<*mut u8> {
        let ordinary = self.region.kind == Kind::Ordinary;
        ordinary.then(|| std::ptr::with_exposed_provenance_mut(self.address))
    }

    /// Reads all of it. The caller has seen that reading is allowed.
    #[inline]
    pub(crate) fn read(&self, out: &mut [u8]) -> Result<(), Denied> {
        if out.len() != self.length {
            return Err(Denied::Bounds);
        }
        match self.region.kind {
            Kind::Ordinary => {
                let from = std::ptr::with_exposed_provenance(self.address);
                // SAFETY: within a region whose slot is locked, so it is registered, and its range readable by the promise
                // of `AddressRange` or because it is ours. `out` is a reference, which that promise excludes.
                self.access(|| unsafe { guard::load(from, out) })?;
            }
            Kind::OnDemand => match system::read_memory(self.address, out) {
                Ok(length) if length == out.len() => {}
                _ => return Err(Denied::Bounds),
            },
            Kind::Null => out.fill(0),
        }
        Ok(())
    }

    /// Reads all of it, if it is still mapped.
    pub(crate) fn read_carefully(&self, out: &mut [u8]) -> Result<(), Denied> {
        match self.region.kind {
            Kind::Ordinary if out.len() == self.length => {
                self.access(|| match system::read_memory(self.address, out) {
                    Ok(length) if length == out.len() => Ok(()),
                    _ => Err(guard::Fault),
                })
            }
            _ => self.read(out),
        }
    }

    /// Writes all of it. The caller has seen that writing is allowed, so the region was registered for that.
    #[inline]
    pub(crate) fn write(&self, data: &[u8]) -> Result<(), Denied> {
        if data.len() != self.length {
            return Err(Denied::Bounds);
        }
        match self.region.kind {
            Kind::Ordinary => {
                let to = std::ptr::with_exposed_provenance_mut(self.address);
                // SAFETY: as in `read`; only a range that was seen to be writable is registered for writing.
                self.access(|| unsafe { guard::store(to, data) })?;
            }
            // SAFETY: whoever registered the range allowed it to be written.
            Kind::OnDemand => match unsafe { system::write_memory(self.address, data) } {
                Ok(length) if length == data.len() => {}
                _ => return Err(Denied::Bounds),
            },
            Kind::Null => {}
        }
        Ok(())
    }

    /// An atomic operation on all of it, which is 8 bytes. The caller has seen that writing is allowed.
    pub(crate) fn atomic(&self, what: Atomic) -> Result<u64, Denied> {
        // An aligned `iova` may stand for an address that is not: the processor asks for that one.
        if self.address % 8 != 0 || self.length != 8 {
            return Err(Denied::Alignment);
        }
        match self.region.kind {
            Kind::Ordinary => {}
            // No system call does this. What is mapped now may be gone in a moment.
            Kind::OnDemand => {
                probe::range(self.address, self.length, true).map_err(|_| Denied::Bounds)?;
            }
            Kind::Null => return Ok(0),
        }
        let place = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: as in `write`, and aligned.
        self.access(|| unsafe { guard::atomic(place, what) })
    }
}
