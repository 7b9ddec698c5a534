//! Registering, changing and deregistering.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferroce_proto::memory::{AccessFlags, PdId};
use ferroce_wire::number::{LKey, RKey, VirtualAddress};

use crate::buffer::Buffer;
use crate::error::{DeregisterError, RegisterError, ReregisterError};
use crate::keys;
use crate::pinned::{Draining, Released};
use crate::range::AddressRange;
use crate::region::{Kind, Region, RegionInfo};
use crate::system;
use crate::table::{Table, Tenant};
use crate::watch::Watch;
use crate::{guard, hooks, probe};

/// The keys of a region. They are equal, as those of many devices are: what a peer may do is said by the access flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keys {
    /// For the owner's work requests. It names the region to the registry, too.
    pub lkey: LKey,
    /// For peers.
    pub rkey: RKey,
}

/// What of a region is to be different. The rest stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Another protection domain.
    pub pd: Option<PdId>,
    /// Other memory, and the address that its first byte is to have.
    pub translation: Option<(AddressRange, VirtualAddress)>,
    /// Other rights.
    pub access: Option<AccessFlags>,
}

/// The registered memory of one device.
#[derive(Debug)]
pub struct Registry {
    pub(crate) table: Table,
    regions: AtomicUsize,
    pub(crate) windows: AtomicUsize,
}

/// What may be asked for. Flags of the optional range (`IBV_ACCESS_OPTIONAL_RANGE`) are ignored where they are unknown.
const KNOWN: u32 = 0x3ff | 0x3ff0_0000;

/// IBA 11.2.8.2: whoever lets peers write may write, too.
///
/// A FLUSH to persistence is acknowledged when the data survives a power failure (IBA A19). Nothing in this process can
/// promise that of ordinary memory, so no region gets the right; rdma_rxe refuses it for all but persistent memory.
fn check_access(access: AccessFlags) -> Result<(), RegisterError> {
    if access.contains(AccessFlags::FLUSH_PERSISTENT) {
        return Err(RegisterError::Persistence);
    }
    let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let remote = access.intersects(writes);
    if access.bits() & !KNOWN != 0 || remote && !access.contains(AccessFlags::LOCAL_WRITE) {
        return Err(RegisterError::Access);
    }
    Ok(())
}

/// A region over a program's own memory, after a look at it.
fn examine(
    pd: PdId,
    range: AddressRange,
    iova: VirtualAddress,
    access: AccessFlags,
) -> Result<Region, RegisterError> {
    check_access(access)?;
    let (address, length) = (range.address(), range.length());
    let on_demand = access.contains(AccessFlags::ON_DEMAND);
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
        // Some sandboxes forbid these calls. Better to know now.
        let sample = [0u8];
        match system::read_memory(sample.as_ptr().expose_provenance(), &mut [0]) {
            Ok(1) => {}
            _ => return Err(RegisterError::Unsupported),
        }
    } else {
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
        owner: None,
        watch: Watch::new(address, length),
        released: Released::default(),
    })
}

impl Registry {
    /// An empty registry whose keys follow from a seed: for tests and simulations.
    pub fn new(seed: u64) -> Self {
        Self::with_source(keys::seeded(seed))
    }

    /// An empty registry whose keys are made of random numbers from this source. A peer must not be able to predict
    /// them.
    pub fn with_source(source: impl FnMut() -> u64 + Send + 'static) -> Self {
        let (regions, windows) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { table: Table::new(Box::new(source)), regions, windows }
    }

    fn insert(&self, region: Region) -> Result<Keys, RegisterError> {
        let region = watched(region);
        let key = self.table.insert(Tenant::Region(region)).ok_or(RegisterError::Full)?;
        self.regions.fetch_add(1, Ordering::Relaxed);
        Ok(Keys { lkey: LKey(key), rkey: RKey(key) })
    }

    /// Registers memory, the first byte of which is to have the address `iova`: 0 if the flags say zero-based.
    ///
    /// All of it has to be mapped, and writable if the flags say so, unless it is registered on demand. A range without
    /// bytes is registered, and allows nothing. [`AddressRange::everything`], on demand, is the implicit region.
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "ibv_reg_mr_iova")]
    pub fn register(
        &self,
        pd: PdId,
        range: AddressRange,
        iova: VirtualAddress,
        access: AccessFlags,
    ) -> Result<Keys, RegisterError> {
        self.insert(examine(pd, range, iova, access)?)
    }

    /// Registers a part of our own memory, which is not unmapped before it is deregistered. With `iova` 0 this is how
    /// a device's own memory is registered.
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
        check_access(access)?;
        let iova = if access.contains(AccessFlags::ZERO_BASED) { 0 } else { iova.0 };
        let end = offset.checked_add(length).filter(|&end| end <= buffer.len());
        if end.is_none() || iova.checked_add(length as u64).is_none() {
            return Err(RegisterError::Range);
        }
        self.insert(Region {
            pd,
            access,
            // Ours is always there, whatever the flags say.
            kind: Kind::Ordinary,
            iova,
            length: length as u64,
            base: buffer.address() + offset,
            windows: AtomicUsize::new(0),
            owner: Some(Arc::clone(buffer)),
            watch: Watch::new(0, 0),
            released: Released::default(),
        })
    }

    /// A region without bytes for all addresses, for work requests only: it takes what is written and gives zeroes.
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
            owner: None,
            watch: Watch::new(0, 0),
            released: Released::default(),
        })
    }

    fn region(&self, key: LKey) -> Option<Arc<Region>> {
        match &self.table.read(key.0)?.tenant {
            Tenant::Region(region) => Some(Arc::clone(region)),
            _ => None,
        }
    }

    /// Changes a region under its keys: an access sees all of it as it was, or all as it is now. On an error it is as
    /// it was.
    ///
    /// What was in flight goes on with the memory that was registered before, which is free when the returned
    /// [`Draining`] is done.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn reregister(&self, key: LKey, change: &Change) -> Result<Draining, ReregisterError> {
        loop {
            let old = self.region(key).ok_or(DeregisterError::Key)?;
            // Made before the slot is locked, and the old one freed after: to free memory may be to unmap memory, and
            // who does that waits for accesses, which wait for the slot.
            let new = watched(changed(&old, change)?);
            // Looking took time, in which the region may have gone, or have been changed by another.
            let mut entry = self.table.write(key.0).ok_or(DeregisterError::Key)?;
            let Tenant::Region(current) = &mut entry.tenant else {
                return Err(DeregisterError::Key.into());
            };
            if !Arc::ptr_eq(current, &old) {
                continue;
            }
            // IBA 11.2.8.5.
            if current.windows.load(Ordering::Acquire) > 0 {
                return Err(DeregisterError::Busy.into());
            }
            let draining = old.released.watch();
            let replaced = std::mem::replace(current, new);
            drop(entry);
            drop(replaced);
            return Ok(draining);
        }
    }

    /// Makes the keys of a region invalid at once. Its memory is free when the returned [`Draining`] is done.
    ///
    /// Waits for no more than the copy of a packet, so it can be called by whoever drives the engine.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(&self, key: LKey) -> Result<Draining, DeregisterError> {
        let entry = self.table.write(key.0).ok_or(DeregisterError::Key)?;
        let Tenant::Region(region) = &entry.tenant else { return Err(DeregisterError::Key) };
        if region.windows.load(Ordering::Acquire) > 0 {
            return Err(DeregisterError::Busy);
        }
        let draining = region.released.watch();
        drop(self.table.remove(entry));
        self.regions.fetch_sub(1, Ordering::Relaxed);
        Ok(draining)
    }

    /// What is known of a region.
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

    /// How many regions are registered.
    pub fn regions(&self) -> usize {
        self.regions.load(Ordering::Relaxed)
    }

    /// How many windows are allocated.
    pub fn windows(&self) -> usize {
        self.windows.load(Ordering::Relaxed)
    }
}

/// A region, whose memory is watched from here on if the program may unmap it.
fn watched(region: Region) -> Arc<Region> {
    let region = Arc::new(region);
    if region.kind == Kind::Ordinary && region.owner.is_none() {
        // SAFETY: it stays where it is, and is dropped with the region.
        unsafe { region.watch.link() };
    }
    region
}

/// The region as it is to be.
fn changed(old: &Region, change: &Change) -> Result<Region, RegisterError> {
    let pd = change.pd.unwrap_or(old.pd);
    let access = change.access.unwrap_or(old.access);
    if let Some((range, iova)) = change.translation {
        return examine(pd, range, iova, access);
    }
    check_access(access)?;
    let zero_based = AccessFlags::ZERO_BASED;
    if access & zero_based != old.access & zero_based {
        // That would be another translation.
        return Err(RegisterError::Access);
    }
    let kind = match old.kind {
        // Nothing but the domain of a null region means anything.
        Kind::Null if change.access.is_some() => return Err(RegisterError::Access),
        kind if old.owner.is_some() => kind,
        Kind::Ordinary | Kind::OnDemand => {
            // Pages that were only to be read may not be writable.
            let wanted = AccessFlags::LOCAL_WRITE | AccessFlags::ON_DEMAND;
            if access & wanted != old.access & wanted {
                return examine(pd, old.range(), VirtualAddress(old.iova), access);
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
        owner: old.owner.clone(),
        watch: old.watch.again(),
        released: Released::default(),
    })
}
