//! Implements [`Memory`], which the transports use: every access looks up its key and is checked separately.

use ferroce_proto::memory::{
    AccessFlags, Accessor, Atomic, Bind, Denied, Memory, PdId, RemoteRange, Sge,
};
use ferroce_proto::reason::{KeyFault, RefusedAccess};
use ferroce_wire::number::{LKey, RKey};

use crate::explain;
use crate::region::{Region, RegionSlice};
use crate::registry::Registry;
use crate::table::Object;

const NONE: AccessFlags = AccessFlags::empty();

/// The access flags that a work request requires. Local reads are always allowed (IBA 10.6.3.1).
pub(crate) fn local_access(write: bool) -> AccessFlags {
    if write { AccessFlags::LOCAL_WRITE } else { NONE }
}

/// The bytes that the program copies at a time: unmapping and deregistering wait for one of these copies.
const COPY: usize = 1 << 16;

impl Registry {
    /// Copies bytes at an offset of a region to `out`, for the program itself, whose PD does not matter.
    pub fn copy_out(&self, key: LKey, offset: u64, out: &mut [u8]) -> Result<(), Denied> {
        for (number, part) in out.chunks_mut(COPY).enumerate() {
            let place = (offset.wrapping_add((number * COPY) as u64), part.len() as u64);
            self.own(key, place, false, |slice| slice.read(part))?;
        }
        Ok(())
    }

    /// Copies `data` to an offset of a region, for the program itself. The program has promised nothing about writing to memory
    /// that it has registered by address without `LOCAL_WRITE`.
    pub fn copy_in(&self, key: LKey, offset: u64, data: &[u8]) -> Result<(), Denied> {
        for (number, part) in data.chunks(COPY).enumerate() {
            let place = (offset.wrapping_add((number * COPY) as u64), part.len() as u64);
            self.own(key, place, true, |slice| slice.write(part))?;
        }
        Ok(())
    }

    /// Calls `then` for a part of a region while it cannot be deregistered.
    fn own<T>(
        &self,
        key: LKey,
        (offset, length): (u64, u64),
        write: bool,
        then: impl FnOnce(RegionSlice<'_>) -> Result<T, Denied>,
    ) -> Result<T, Denied> {
        fn part(
            region: &Region,
            (offset, length): (u64, u64),
            write: bool,
        ) -> Result<RegionSlice<'_>, Denied> {
            let is_writable =
                region.owner.is_some() || region.access.contains(AccessFlags::LOCAL_WRITE);
            if write && !is_writable {
                return Err(Denied::Access);
            }
            region.slice(region.iova.checked_add(offset).ok_or(Denied::Bounds)?, length)
        }
        let place = (offset, length);
        if let Some(region) = self.table.protect(key.0) {
            return then(part(&region, place, write)?.protected());
        }
        let entry = self.table.read(key.0).ok_or(Denied::Key)?;
        let Object::Region(region) = &entry.object else { return Err(Denied::Key) };
        then(part(region, place, write)?)
    }

    /// Checks a local access, and calls `then` while the region cannot be deregistered.
    #[inline(always)]
    pub(crate) fn local<T>(
        &self,
        pd: PdId,
        key: LKey,
        (address, length): (u64, u64),
        access: AccessFlags,
        then: impl FnOnce(RegionSlice<'_>) -> Result<T, Denied>,
    ) -> Result<T, Denied> {
        if let Some(region) = self.table.protect(key.0) {
            return then(in_region(&region, pd, (address, length), access)?.protected());
        }
        let entry = self.table.read(key.0).ok_or(Denied::Key)?;
        // A window has no lkey.
        let Object::Region(region) = &entry.object else { return Err(Denied::Key) };
        then(in_region(region, pd, (address, length), access)?)
    }

    /// Checks a remote access, and calls `then` while the region or window cannot be removed.
    #[inline(always)]
    pub(crate) fn remote<T>(
        &self,
        by: Accessor,
        key: RKey,
        (address, length): (u64, u64),
        access: AccessFlags,
        then: impl FnOnce(RegionSlice<'_>) -> Result<T, Denied>,
    ) -> Result<T, Denied> {
        if let Some(region) = self.table.protect(key.0) {
            return then(in_region(&region, by.pd, (address, length), access)?.protected());
        }
        let entry = self.table.read(key.0).ok_or(Denied::Key)?;
        then(match &entry.object {
            Object::Region(region) => in_region(region, by.pd, (address, length), access)?,
            Object::Window(window) => window.slice(by, address, length, access)?,
            Object::None => return Err(Denied::Key),
        })
    }
}

#[inline(always)]
fn in_region(
    region: &Region,
    pd: PdId,
    (address, length): (u64, u64),
    access: AccessFlags,
) -> Result<RegionSlice<'_>, Denied> {
    check_region(region, pd, access)?;
    region.slice(address, length)
}

#[inline(always)]
fn check_region(region: &Region, pd: PdId, access: AccessFlags) -> Result<(), Denied> {
    if region.pd != pd {
        return Err(Denied::PdId);
    }
    if region.access.contains(access) { Ok(()) } else { Err(Denied::Access) }
}

/// An SGE or remote range of length zero accesses nothing, so nothing is checked (IBA C9-88 for remote accesses; work
/// requests use key 0 in such SGEs).
impl Memory for &Registry {
    fn check_local(&self, pd: PdId, sge: Sge, write: bool) -> Result<(), Denied> {
        if sge.length == 0 {
            return Ok(());
        }
        let part = (sge.address.0, u64::from(sge.length));
        self.local(pd, sge.key, part, local_access(write), |slice| slice.check())
    }

    fn read_local(&self, pd: PdId, sge: Sge, out: &mut [u8]) -> Result<(), Denied> {
        if sge.length == 0 && out.is_empty() {
            return Ok(());
        }
        let part = (sge.address.0, u64::from(sge.length));
        self.local(pd, sge.key, part, NONE, |slice| slice.read(out))
    }

    fn write_local(&mut self, pd: PdId, sge: Sge, data: &[u8]) -> Result<(), Denied> {
        if data.len() > sge.length as usize {
            return Err(Denied::Bounds);
        }
        if data.is_empty() {
            return Ok(());
        }
        // Only the written part is checked: the SGE of a receive may be longer than the message.
        let part = (sge.address.0, data.len() as u64);
        self.local(pd, sge.key, part, local_access(true), |slice| slice.write(data))
    }

    fn check_remote(
        &self,
        by: Accessor,
        range: RemoteRange,
        access: AccessFlags,
    ) -> Result<(), Denied> {
        if range.length == 0 {
            return Ok(());
        }
        let part = (range.address.0, u64::from(range.length));
        self.remote(by, range.key, part, access, |slice| slice.check())
    }

    fn check_remote_key(&self, by: Accessor, key: RKey, access: AccessFlags) -> Result<(), Denied> {
        let entry = self.table.read(key.0).ok_or(Denied::Key)?;
        match &entry.object {
            Object::Region(region) => check_region(region, by.pd, access),
            Object::Window(window) => window.check_access(by, access).map(drop),
            Object::None => Err(Denied::Key),
        }
    }

    fn read_remote(&self, by: Accessor, range: RemoteRange, out: &mut [u8]) -> Result<(), Denied> {
        if range.length == 0 && out.is_empty() {
            return Ok(());
        }
        let part = (range.address.0, u64::from(range.length));
        self.remote(by, range.key, part, AccessFlags::REMOTE_READ, |slice| slice.read(out))
    }

    /// Reads through the kernel, because the memory may be unmapped: hardware would have pinned the pages and read their old
    /// contents. A program that knows from its peer that a READ has completed may free the memory before it deregisters it
    /// (UCX does), and a duplicate READ then finds nothing mapped.
    fn read_remote_duplicate(
        &self,
        by: Accessor,
        range: RemoteRange,
        out: &mut [u8],
    ) -> Result<(), Denied> {
        if range.length == 0 && out.is_empty() {
            return Ok(());
        }
        let part = (range.address.0, u64::from(range.length));
        let access = AccessFlags::REMOTE_READ;
        self.remote(by, range.key, part, access, |slice| slice.read_through_kernel(out))
    }

    fn write_remote(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        data: &[u8],
    ) -> Result<(), Denied> {
        if range.length == 0 && data.is_empty() {
            return Ok(());
        }
        let part = (range.address.0, u64::from(range.length));
        self.remote(by, range.key, part, AccessFlags::REMOTE_WRITE, |slice| slice.write(data))
    }

    fn atomic(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        operation: Atomic,
    ) -> Result<u64, Denied> {
        // IBA 9.4.5.
        if range.address.0 % 8 != 0 {
            return Err(Denied::Alignment);
        }
        let access = match operation {
            // IBA A19: a write that is not torn.
            Atomic::Write(_) => AccessFlags::REMOTE_WRITE,
            _ => AccessFlags::REMOTE_ATOMIC,
        };
        self.remote(by, range.key, (range.address.0, 8), access, |slice| slice.atomic(operation))
    }

    fn explain(&self, by: Accessor, access: &RefusedAccess, denied: Denied) -> KeyFault {
        explain::explain(self, by, access, denied)
    }

    fn invalidate(&mut self, by: Accessor, key: RKey) -> Result<(), Denied> {
        self.invalidate_window(by, key)
    }

    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        self.bind_window(by, bind)
    }
}
