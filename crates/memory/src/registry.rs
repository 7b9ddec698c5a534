//! The registry: registering, reregistering and deregistering memory regions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ferroce_proto::memory::{AccessFlags, PdId};
use ferroce_sync::asymmetric_fence;
use ferroce_sys::memory as sys;
use ferroce_wire::number::{LKey, RKey, VirtualAddress};

use crate::buffer::Buffer;
use crate::error::{DeregisterError, RegisterError, ReregisterError};
use crate::keys;
use crate::range::AddressRange;
use crate::region::{Kind, Region, RegionInfo};
use crate::table::{Object, Table};
use crate::watch::Watch;
use crate::{guard, hooks, probe};

/// The keys of a region. They are equal, as on many devices: the access flags determine what a peer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keys {
    /// The lkey, for local work requests. It also identifies the region to the registry.
    pub lkey: LKey,
    /// The rkey, for peers.
    pub rkey: RKey,
}

/// A change of a region. Fields that are `None` stay as they are.
#[derive(Debug, Default)]
pub struct Change {
    /// The new PD.
    pub pd: Option<PdId>,
    /// The new memory, and the address of its first byte.
    pub translation: Option<(AddressRange, VirtualAddress)>,
    /// The new access flags.
    pub access: Option<AccessFlags>,
}

/// The registered memory of one device.
#[derive(Debug)]
pub struct Registry {
    pub(crate) table: Table,
    regions: AtomicUsize,
    pub(crate) windows: AtomicUsize,
}

/// The valid access flags. Unknown flags of the optional range (`IBV_ACCESS_OPTIONAL_RANGE`) are ignored.
const VALID_ACCESS: u32 = 0x3ff | 0x3ff0_0000;

/// IBA 11.2.8.2: remote write access requires local write access.
///
/// A FLUSH to persistence is acknowledged when the data survives a power failure (IBA A19). This process cannot guarantee
/// that for ordinary memory, so no region gets this access; rdma_rxe refuses it for all but persistent memory.
fn check_access(access: AccessFlags) -> Result<(), RegisterError> {
    if access.contains(AccessFlags::FLUSH_PERSISTENT) {
        return Err(RegisterError::Persistence);
    }
    let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let remote = access.intersects(writes);
    if access.bits() & !VALID_ACCESS != 0 || remote && !access.contains(AccessFlags::LOCAL_WRITE) {
        return Err(RegisterError::Access);
    }
    Ok(())
}

/// Checks a range of the program's memory, and makes a region of it.
fn checked_region(
    pd: PdId,
    range: AddressRange,
    iova: VirtualAddress,
    access: AccessFlags,
) -> Result<Region, RegisterError> {
    check_access(access)?;
    let (address, length) = (range.address(), range.length());
    let owner = range.owner().cloned();
    // Memory that has an owner is always mapped, so `ON_DEMAND` makes no difference.
    let on_demand = owner.is_none() && access.contains(AccessFlags::ON_DEMAND);
    let mut iova = if access.contains(AccessFlags::ZERO_BASED) { 0 } else { iova.0 };
    if on_demand && range.is_everything() {
        iova = 0;
    } else if address == 0 {
        return Err(RegisterError::Fault);
    }
    let fits = address.checked_add(length).is_some() && iova.checked_add(length as u64).is_some();
    if !fits {
        return Err(RegisterError::Range);
    }
    if on_demand {
        // Some sandboxes forbid these calls: fail now instead of at the first access.
        let sample = [0u8];
        match sys::read(sample.as_ptr().expose_provenance(), &mut [0]) {
            Ok(1) => {}
            _ => return Err(RegisterError::Unsupported),
        }
    } else if !owner.as_ref().is_some_and(|owner| owner.is::<Buffer>()) {
        guard::install();
        hooks::install();
        probe::range(address, length, access.contains(AccessFlags::LOCAL_WRITE))?;
    }
    Ok(Region {
        pd,
        access,
        kind: if on_demand { Kind::OnDemand } else { Kind::Ordinary },
        iova,
        length: length as u64,
        base: address,
        windows: AtomicUsize::new(0),
        revoked: AtomicBool::new(false),
        watch: if owner.is_some() { Watch::new(0, 0) } else { Watch::new(address, length) },
        owner,
    })
}

impl Registry {
    /// Creates an empty registry whose keys are derived from a seed: for tests and simulations.
    pub fn new(seed: u64) -> Self {
        Self::with_source(keys::seeded(seed))
    }

    /// As [`Registry::new`], for about this many regions and windows at a time: a simulation has thousands of registries.
    pub fn small(seed: u64, slots: u32) -> Self {
        Self::with_table(Table::new(keys::seeded(seed), slots))
    }

    /// Creates an empty registry whose keys are made of random numbers from a source, which peers must not be able to
    /// predict.
    pub fn with_source(source: impl FnMut() -> u64 + Send + 'static) -> Self {
        Self::with_table(Table::new(Box::new(source), keys::SLOTS))
    }

    fn with_table(table: Table) -> Self {
        // Not by the first access: it may take milliseconds.
        asymmetric_fence::prepare();
        let (regions, windows) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { table, regions, windows }
    }

    fn insert(&self, region: Region) -> Result<Keys, RegisterError> {
        let region = watched(region);
        let key = self.table.insert(Object::Region(region)).ok_or(RegisterError::Full)?;
        self.regions.fetch_add(1, Ordering::Relaxed);
        Ok(Keys { lkey: LKey(key), rkey: RKey(key) })
    }

    /// Registers a memory region whose first byte has the address `iova`, or 0 if it is zero-based.
    ///
    /// The whole range must be mapped, and writable for `LOCAL_WRITE`, unless it is registered on demand. An empty range is
    /// registered, and allows no access. Unless the memory is a [`Buffer`], the first call in a process installs signal handlers
    /// and patches the C library (see the documentation of the crate). [`AddressRange::everything`] with `ON_DEMAND` is the implicit region.
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "ibv_reg_mr_iova")]
    pub fn register(
        &self,
        pd: PdId,
        range: AddressRange,
        iova: VirtualAddress,
        access: AccessFlags,
    ) -> Result<Keys, RegisterError> {
        self.insert(checked_region(pd, range, iova, access)?)
    }

    /// Registers a part of a [`Buffer`], which stays mapped until it is deregistered. With `iova` 0 this registers device
    /// memory.
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn register_buffer(
        &self,
        pd: PdId,
        buffer: &Arc<Buffer>,
        offset: usize,
        length: usize,
        iova: VirtualAddress,
        access: AccessFlags,
    ) -> Result<Keys, RegisterError> {
        let range = AddressRange::of_buffer(buffer, offset, length);
        self.register(pd, range.map_err(|_| RegisterError::Range)?, iova, access)
    }

    /// Registers a null region, which covers all addresses, for local use only: writes are discarded, and reads return
    /// zeroes.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn register_null(&self, pd: PdId) -> Result<Keys, RegisterError> {
        self.insert(Region {
            pd,
            access: AccessFlags::LOCAL_WRITE,
            kind: Kind::Null,
            iova: 0,
            length: u64::MAX,
            base: 0,
            windows: AtomicUsize::new(0),
            revoked: AtomicBool::new(false),
            owner: None,
            watch: Watch::new(0, 0),
        })
    }

    fn region(&self, key: LKey) -> Option<Arc<Region>> {
        match &self.table.read(key.0)?.object {
            Object::Region(region) => Some(Arc::clone(region)),
            _ => None,
        }
    }

    /// Changes a region and keeps its keys: an access sees either the old or the new region. On an error nothing changes.
    ///
    /// When this returns, no access to the memory that was registered before is in progress.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn reregister(&self, key: LKey, change: Change) -> Result<(), ReregisterError> {
        loop {
            let old = self.region(key).ok_or(DeregisterError::Key)?;
            // Allocated before the slot is locked, and the old one freed after it is unlocked: freeing may unmap memory,
            // which waits for accesses, which may wait for the slot.
            let new = watched(changed(&old, &change)?);
            // Another thread may have changed or deregistered the region meanwhile.
            let entry = self.table.write(key.0).ok_or(DeregisterError::Key)?;
            let Object::Region(current) = &entry.object else {
                return Err(DeregisterError::Key.into());
            };
            if !Arc::ptr_eq(current, &old) {
                continue;
            }
            // IBA 11.2.8.5.
            if current.windows.load(Ordering::Acquire) > 0 {
                return Err(DeregisterError::Busy.into());
            }
            drop(self.table.replace(entry, new));
            return Ok(());
        }
    }

    /// Deregisters a region: when this returns, its keys are invalid and no access to its memory is in progress.
    ///
    /// Waits for at most the copy of one packet, so the thread that runs the engine may call it.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(&self, key: LKey) -> Result<(), DeregisterError> {
        self.remove(key, false)
    }

    /// Deregisters a region as [`Registry::deregister`] does, and unbinds the windows that are bound to it: when this returns,
    /// no peer has access by the key of the region or by that of a window. Scans all slots if there are such windows.
    pub fn revoke(&self, key: LKey) -> Result<(), DeregisterError> {
        self.remove(key, true)
    }

    fn remove(&self, key: LKey, with_windows: bool) -> Result<(), DeregisterError> {
        let entry = self.table.write(key.0).ok_or(DeregisterError::Key)?;
        let Object::Region(region) = &entry.object else { return Err(DeregisterError::Key) };
        let region = Arc::clone(region);
        if region.windows.load(Ordering::Acquire) > 0 {
            if !with_windows {
                return Err(DeregisterError::Busy);
            }
            region.revoked.store(true, Ordering::Relaxed);
        }
        drop(self.table.remove(entry));
        self.regions.fetch_sub(1, Ordering::Relaxed);
        if with_windows {
            self.unbind_windows(&region);
        }
        Ok(())
    }

    /// Lets accesses to a part of a region fail from now on, as if the program had unmapped it: for tests and simulations, whose
    /// regions have an owner and are never unmapped.
    pub fn mark_unmapped(
        &self,
        key: LKey,
        offset: u64,
        length: u64,
    ) -> Result<(), DeregisterError> {
        let region = self.region(key).ok_or(DeregisterError::Key)?;
        let start = offset.min(region.length);
        let end = start + length.min(region.length - start);
        region.watch.mark_unmapped(region.base + start as usize, region.base + end as usize);
        Ok(())
    }

    /// Returns the attributes of a region.
    pub fn query(&self, key: LKey) -> Option<RegionInfo> {
        let region = self.region(key)?;
        Some(RegionInfo {
            pd: region.pd,
            kind: region.kind,
            address: region.base,
            iova: VirtualAddress(region.iova),
            length: region.length,
            access: region.access,
            windows: region.windows.load(Ordering::Relaxed),
        })
    }

    /// The number of registered regions.
    pub fn regions(&self) -> usize {
        self.regions.load(Ordering::Relaxed)
    }

    /// The number of allocated windows.
    pub fn windows(&self) -> usize {
        self.windows.load(Ordering::Relaxed)
    }
}

/// Starts watching the memory of a region if the program may unmap it.
fn watched(region: Region) -> Arc<Region> {
    let region = Arc::new(region);
    if region.kind == Kind::Ordinary && region.owner.is_none() {
        // SAFETY: it does not move, and is dropped with the region.
        unsafe { region.watch.link() };
    }
    region
}

/// Applies a change to a region.
fn changed(old: &Region, change: &Change) -> Result<Region, RegisterError> {
    let pd = change.pd.unwrap_or(old.pd);
    let access = change.access.unwrap_or(old.access);
    if let Some((range, iova)) = &change.translation {
        return checked_region(pd, range.duplicate(), *iova, access);
    }
    check_access(access)?;
    let zero_based = AccessFlags::ZERO_BASED;
    if access & zero_based != old.access & zero_based {
        // That would change the translation.
        return Err(RegisterError::Access);
    }
    let kind = match old.kind {
        // A null region has no attribute but its PD.
        Kind::Null if change.access.is_some() => return Err(RegisterError::Access),
        kind if old.owner.is_some() => kind,
        Kind::Ordinary | Kind::OnDemand => {
            // Pages that were registered for reading only may not be writable.
            let wanted = AccessFlags::LOCAL_WRITE | AccessFlags::ON_DEMAND;
            if access & wanted != old.access & wanted {
                return checked_region(pd, old.range(), VirtualAddress(old.iova), access);
            }
            old.kind
        }
        Kind::Null => Kind::Null,
    };
    Ok(Region {
        pd,
        access,
        kind,
        iova: old.iova,
        length: old.length,
        base: old.base,
        windows: AtomicUsize::new(0),
        revoked: AtomicBool::new(false),
        owner: old.owner.clone(),
        watch: old.watch.duplicate(),
    })
}
