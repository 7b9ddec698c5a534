//! Registered memory as the transports see it: every access is looked up and checked by itself.

use std::ptr::NonNull;
use std::sync::Arc;

use ferroce_proto::memory::{
    AccessFlags, Accessor, Atomic, Bind, Denied, Memory, PdId, RemoteRange, Sge,
};
use ferroce_wire::number::{LKey, RKey};

use crate::error::PinError;
use crate::pinned::Pinned;
use crate::region::{Place, Region};
use crate::registry::Registry;
use crate::table::Tenant;

const NONE: AccessFlags = AccessFlags::empty();

/// What a work request needs: its owner may always read (IBA 10.6.3.1).
fn local_access(write: bool) -> AccessFlags {
    if write { AccessFlags::LOCAL_WRITE } else { NONE }
}

impl Registry {
    /// Checks a local access, and does `then` while the region cannot go.
    #[inline]
    fn local<T, E: From<Denied>>(
        &self,
        pd: PdId,
        key: LKey,
        (address, length): (u64, u64),
        access: AccessFlags,
        then: impl FnOnce(&Arc<Region>, Place<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let entry = self.table.read(key.0).ok_or(Denied::Key)?;
        // A window has no key for its owner's use.
        let Tenant::Region(region) = &entry.tenant else { return Err(Denied::Key.into()) };
        let place = in_region(region, pd, (address, length), access)?;
        then(region, place)
    }

    /// Checks a peer's access, and does `then` while the region or window cannot go.
    #[inline]
    fn remote<T, E: From<Denied>>(
        &self,
        by: Accessor,
        key: RKey,
        (address, length): (u64, u64),
        access: AccessFlags,
        then: impl FnOnce(&Arc<Region>, Place<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let entry = self.table.read(key.0).ok_or(Denied::Key)?;
        let (region, place) = match &entry.tenant {
            Tenant::Region(region) => {
                (region, in_region(region, by.pd, (address, length), access)?)
            }
            Tenant::Window(window) => window.place(by, address, length, access)?,
            Tenant::Nobody => return Err(Denied::Key.into()),
        };
        then(region, place)
    }

    /// Pins a SGE of a work request: to be read, or to be written into.
    pub fn pin_local(&self, pd: PdId, sge: Sge, write: bool) -> Result<Pinned, PinError> {
        let length = sge.length as usize;
        if length == 0 {
            return Ok(Pinned::new(NonNull::dangling(), 0, write, None));
        }
        let part = (sge.address.0, u64::from(sge.length));
        self.local(pd, sge.key, part, local_access(write), |region, place| {
            pin(region, place, length, write)
        })
    }

    /// Pins a SGE that a peer reads from, or writes to.
    pub fn pin_remote(
        &self,
        by: Accessor,
        range: RemoteRange,
        write: bool,
    ) -> Result<Pinned, PinError> {
        let length = range.length as usize;
        if length == 0 {
            return Ok(Pinned::new(NonNull::dangling(), 0, write, None));
        }
        let part = (range.address.0, u64::from(range.length));
        let access = if write { AccessFlags::REMOTE_WRITE } else { AccessFlags::REMOTE_READ };
        self.remote(by, range.key, part, access, |region, place| pin(region, place, length, write))
    }
}

#[inline]
fn in_region(
    region: &Region,
    pd: PdId,
    (address, length): (u64, u64),
    access: AccessFlags,
) -> Result<Place<'_>, Denied> {
    check_region(region, pd, access)?;
    region.place(address, length)
}

#[inline]
fn check_region(region: &Region, pd: PdId, access: AccessFlags) -> Result<(), Denied> {
    if region.pd != pd {
        return Err(Denied::PdId);
    }
    if region.access.contains(access) { Ok(()) } else { Err(Denied::Access) }
}

fn pin(
    region: &Arc<Region>,
    place: Place<'_>,
    length: usize,
    write: bool,
) -> Result<Pinned, PinError> {
    let pointer = place.pointer().and_then(NonNull::new).ok_or(PinError::Copy)?;
    Ok(Pinned::new(pointer, length, write, Some(Arc::clone(region))))
}

/// A SGE without bytes accesses nothing, so nothing is checked (IBA 9.7.4.1.7 for peers; work requests name key 0 with
/// such SGEs).
impl Memory for &Registry {
    fn check_local(&self, pd: PdId, sge: Sge, write: bool) -> Result<(), Denied> {
        if sge.length == 0 {
            return Ok(());
        }
        let part = (sge.address.0, u64::from(sge.length));
        self.local(pd, sge.key, part, local_access(write), |_, place| place.check())
    }

    fn read_local(&self, pd: PdId, sge: Sge, out: &mut [u8]) -> Result<(), Denied> {
        if sge.length == 0 && out.is_empty() {
            return Ok(());
        }
        let part = (sge.address.0, u64::from(sge.length));
        self.local(pd, sge.key, part, NONE, |_, place| place.read(out))
    }

    fn write_local(&mut self, pd: PdId, sge: Sge, data: &[u8]) -> Result<(), Denied> {
        if data.len() > sge.length as usize {
            return Err(Denied::Bounds);
        }
        if data.is_empty() {
            return Ok(());
        }
        // Only what is written is looked at: a receive may name more than will come.
        let part = (sge.address.0, data.len() as u64);
        self.local(pd, sge.key, part, local_access(true), |_, place| place.write(data))
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
        self.remote(by, range.key, part, access, |_, place| place.check())
    }

    fn check_remote_key(&self, by: Accessor, key: RKey, access: AccessFlags) -> Result<(), Denied> {
        let entry = self.table.read(key.0).ok_or(Denied::Key)?;
        match &entry.tenant {
            Tenant::Region(region) => check_region(region, by.pd, access),
            Tenant::Window(window) => window.granted(by, access).map(drop),
            Tenant::Nobody => Err(Denied::Key),
        }
    }

    fn read_remote(&self, by: Accessor, range: RemoteRange, out: &mut [u8]) -> Result<(), Denied> {
        if range.length == 0 && out.is_empty() {
            return Ok(());
        }
        let part = (range.address.0, u64::from(range.length));
        self.remote(by, range.key, part, AccessFlags::REMOTE_READ, |_, place| place.read(out))
    }

    /// Carefully: hardware would have pinned these pages, and read what was in them. Programs that are through with a READ,
    /// because the peer has said so by another way, free their memory before they deregister it (UCX does).
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
        self.remote(by, range.key, part, access, |_, place| place.read_carefully(out))
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
        self.remote(by, range.key, part, AccessFlags::REMOTE_WRITE, |_, place| place.write(data))
    }

    fn atomic(&mut self, by: Accessor, range: RemoteRange, what: Atomic) -> Result<u64, Denied> {
        // IBA 9.4.5.1.
        if range.address.0 % 8 != 0 {
            return Err(Denied::Alignment);
        }
        let access = match what {
            // IBA A19: it is a write that is not torn.
            Atomic::Write(_) => AccessFlags::REMOTE_WRITE,
            _ => AccessFlags::REMOTE_ATOMIC,
        };
        self.remote(by, range.key, (range.address.0, 8), access, |_, place| place.atomic(what))
    }

    fn invalidate(&mut self, by: Accessor, key: RKey) -> Result<(), Denied> {
        self.invalidate_window(by, key)
    }

    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        self.bind_window(by, bind)
    }
}
