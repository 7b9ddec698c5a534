//! Registered memory of a simulated host: MRs and MWs by key, with all checks that hardware makes.

#[cfg(test)]
mod tests;

use std::ops::Range;

use ferroce_proto::memory::{
    AccessFlags, Accessor, Atomic, Bind, Denied, Memory, PdId, RemoteRange, Sge,
};
use ferroce_wire::number::{LKey, Qpn, RKey, VirtualAddress};

/// The PD of nearly everything on a simulated host.
pub(super) const PD: PdId = PdId(1);

/// A PD that no QP belongs to.
pub(super) const OTHER_PD: PdId = PdId(2);

/// The virtual address at which every region starts.
pub(super) const BASE: u64 = 0x7f00_0000_0000;

/// The bits that distinguish keys of regions from keys of windows.
const REGION: u32 = 0x4000_0000;
const WINDOW: u32 = 0x8000_0000;

/// The part of a key that identifies a region or window; the owner chooses the remaining bits (IBA 10.6.3.3).
const KEY_INDEX_MASK: u32 = 0xffff_ff00;

/// All that a peer may be allowed.
pub(super) const REMOTE: AccessFlags = AccessFlags::REMOTE_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::FLUSH_GLOBAL);

/// Returns the key of a region: its index, and a tag that an uninitialised key would not have.
pub(super) const fn key(region: usize) -> u32 {
    REGION | (region as u32) << 8 | 0x4b
}

/// Returns the SGE for a part of a region.
pub(super) const fn local(region: usize, at: usize, length: usize) -> Sge {
    let address = VirtualAddress(BASE + at as u64);
    Sge { key: LKey(key(region)), address, length: length as u32 }
}

#[derive(Debug)]
pub(super) struct Region {
    pub(super) bytes: Vec<u8>,
    pub(super) pd: PdId,
    pub(super) access: AccessFlags,
}

/// A memory window (IBA 10.6.7.2).
#[derive(Debug)]
pub(super) struct Window {
    key: u32,
    pd: PdId,
    /// Type 2: bound to one QP, and must be invalidated before it is bound again.
    type2: bool,
    bound: Option<Bind>,
    queue_pair: Option<Qpn>,
}

#[derive(Debug, Default)]
pub(super) struct Regions {
    pub(super) regions: Vec<Region>,
    windows: Vec<Window>,
}

impl Regions {
    /// Adds a region and returns its index.
    pub(super) fn add(&mut self, bytes: Vec<u8>, pd: PdId, access: AccessFlags) -> usize {
        self.regions.push(Region { bytes, pd, access });
        self.regions.len() - 1
    }

    /// Adds an unbound window and returns its key.
    pub(super) fn add_window(&mut self, pd: PdId, type2: bool) -> RKey {
        let key = WINDOW | (self.windows.len() as u32) << 8;
        self.windows.push(Window { key, pd, type2, bound: None, queue_pair: None });
        RKey(key)
    }

    fn window(&self, key: RKey) -> Option<usize> {
        let index = (key.0 & KEY_INDEX_MASK ^ WINDOW) >> 8;
        (index as usize).lt(&self.windows.len()).then_some(index as usize)
    }

    fn resolve(
        &self,
        pd: PdId,
        key: u32,
        address: VirtualAddress,
        length: usize,
        access: AccessFlags,
    ) -> Result<RegionRange, Denied> {
        let index = (key ^ self::key(0)) >> 8;
        let region = index as usize;
        let named = self.regions.get(region).filter(|_| self::key(region) == key);
        let named = named.ok_or(Denied::Key)?;
        if named.pd != pd {
            return Err(Denied::PdId);
        }
        if !named.access.contains(access) {
            return Err(Denied::Access);
        }
        let start = address.0.checked_sub(BASE).ok_or(Denied::Bounds)?;
        let end = start.checked_add(length as u64).ok_or(Denied::Bounds)?;
        if end > named.bytes.len() as u64 {
            return Err(Denied::Bounds);
        }
        Ok(RegionRange { region, bytes: start as usize..end as usize })
    }

    /// As [`Regions::resolve`], for a key of a region or a window.
    fn resolve_remote(
        &self,
        by: Accessor,
        sge: RemoteRange,
        length: usize,
        access: AccessFlags,
    ) -> Result<RegionRange, Denied> {
        let Some(window) = self.window(sge.key) else {
            return self.resolve(by.pd, sge.key.0, sge.address, length, access);
        };
        let window = &self.windows[window];
        let bound = window.bound.filter(|_| window.key == sge.key.0).ok_or(Denied::Key)?;
        if window.pd != by.pd {
            return Err(Denied::PdId);
        }
        // IBA 10.6.7.2.3: only the QP that bound a type 2 window may use it.
        if window.queue_pair.is_some_and(|owner| owner != by.queue_pair) {
            return Err(Denied::Key);
        }
        if !bound.access.contains(access) {
            return Err(Denied::Access);
        }
        let start = sge.address.0.checked_sub(bound.address.0).ok_or(Denied::Bounds)?;
        let end = start.checked_add(length as u64).ok_or(Denied::Bounds)?;
        if end > bound.length {
            return Err(Denied::Bounds);
        }
        let none = AccessFlags::default();
        self.resolve(by.pd, bound.region.0, sge.address, length, none)
    }

    fn read(&self, range: RegionRange, out: &mut [u8]) {
        out.copy_from_slice(&self.regions[range.region].bytes[range.bytes]);
    }

    fn write(&mut self, range: RegionRange, data: &[u8]) {
        self.regions[range.region].bytes[range.bytes].copy_from_slice(data);
    }
}

struct RegionRange {
    region: usize,
    bytes: Range<usize>,
}

impl Memory for Regions {
    fn check_local(&self, pd: PdId, sge: Sge, write: bool) -> Result<(), Denied> {
        let access = if write { AccessFlags::LOCAL_WRITE } else { AccessFlags::default() };
        self.resolve(pd, sge.key.0, sge.address, sge.length as usize, access).map(drop)
    }

    fn read_local(&self, pd: PdId, sge: Sge, out: &mut [u8]) -> Result<(), Denied> {
        let none = AccessFlags::default();
        let range = self.resolve(pd, sge.key.0, sge.address, out.len(), none)?;
        self.read(range, out);
        Ok(())
    }

    fn write_local(&mut self, pd: PdId, sge: Sge, data: &[u8]) -> Result<(), Denied> {
        if data.len() > sge.length as usize {
            return Err(Denied::Bounds);
        }
        let write = AccessFlags::LOCAL_WRITE;
        let range = self.resolve(pd, sge.key.0, sge.address, data.len(), write)?;
        self.write(range, data);
        Ok(())
    }

    fn check_remote(
        &self,
        by: Accessor,
        sge: RemoteRange,
        access: AccessFlags,
    ) -> Result<(), Denied> {
        self.resolve_remote(by, sge, sge.length as usize, access).map(drop)
    }

    fn check_remote_key(&self, by: Accessor, key: RKey, access: AccessFlags) -> Result<(), Denied> {
        let window = self.window(key).and_then(|index| self.windows[index].bound);
        let address = window.map_or(VirtualAddress(BASE), |bind| bind.address);
        self.resolve_remote(by, RemoteRange { key, address, length: 0 }, 0, access).map(drop)
    }

    fn read_remote(&self, by: Accessor, sge: RemoteRange, out: &mut [u8]) -> Result<(), Denied> {
        let range = self.resolve_remote(by, sge, out.len(), AccessFlags::REMOTE_READ)?;
        self.read(range, out);
        Ok(())
    }

    fn write_remote(&mut self, by: Accessor, sge: RemoteRange, data: &[u8]) -> Result<(), Denied> {
        let range = self.resolve_remote(by, sge, data.len(), AccessFlags::REMOTE_WRITE)?;
        self.write(range, data);
        Ok(())
    }

    fn atomic(&mut self, by: Accessor, sge: RemoteRange, what: Atomic) -> Result<u64, Denied> {
        if sge.address.0 % 8 != 0 {
            return Err(Denied::Alignment);
        }
        let access = match what {
            Atomic::Write(_) => AccessFlags::REMOTE_WRITE,
            Atomic::CompareSwap { .. } | Atomic::FetchAdd(_) => AccessFlags::REMOTE_ATOMIC,
        };
        let range = self.resolve_remote(by, sge, 8, access)?;
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.regions[range.region].bytes[range.bytes.clone()]);
        let original = u64::from_ne_bytes(bytes);
        self.write(range, &what.apply(original).to_ne_bytes());
        Ok(original)
    }

    fn invalidate(&mut self, by: Accessor, key: RKey) -> Result<(), Denied> {
        // IBA 10.6.5. Regions and type 1 windows of simulated hosts cannot be invalidated.
        let window = self.window(key).ok_or(Denied::Key)?;
        let window = &mut self.windows[window];
        if window.pd != by.pd {
            return Err(Denied::PdId);
        }
        let ours = window.type2 && window.queue_pair == Some(by.queue_pair);
        if !ours || window.bound.is_none() || window.key != key.0 {
            return Err(Denied::Key);
        }
        (window.bound, window.queue_pair) = (None, None);
        Ok(())
    }

    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        let index = self.window(bind.window).ok_or(Denied::Key)?;
        let window = &self.windows[index];
        // Only the owner's bits of the key may change (IBA 10.6.7.2.1).
        if window.key != bind.window.0 || bind.key.0 & KEY_INDEX_MASK != window.key & KEY_INDEX_MASK
        {
            return Err(Denied::Key);
        }
        if window.pd != by.pd {
            return Err(Denied::PdId);
        }
        // IBA 10.6.7.2.2: a type 2 window is invalidated before it is bound again.
        if window.type2 && window.bound.is_some() {
            return Err(Denied::Access);
        }
        // IBA 10.6.7.2.1: the region allows window binds, and local write if the window allows remote writes.
        let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let needed = match bind.access.intersects(writes) {
            true => AccessFlags::MW_BIND | AccessFlags::LOCAL_WRITE,
            false => AccessFlags::MW_BIND,
        };
        let length = usize::try_from(bind.length).map_err(|_| Denied::Bounds)?;
        self.resolve(by.pd, bind.region.0, bind.address, length, needed)?;
        let window = &mut self.windows[index];
        window.key = bind.key.0;
        window.bound = Some(*bind).filter(|bind| bind.length > 0);
        window.queue_pair = window.type2.then_some(by.queue_pair);
        Ok(())
    }
}
