//! Registered memory of a simulated host: the registry that the library uses, with seeded keys and fixed addresses, so
//! that equal seeds give equal bytes on the wire.

mod slow;

use std::sync::Arc;

use ferroce_memory::{AddressRange, Buffer, Change, Registry, WindowKind};
use ferroce_proto::memory::{AccessFlags, PdId, Sge};
use ferroce_proto::time::Instant;
use ferroce_sync::Mutex;
use ferroce_wire::number::{LKey, Qpn, RKey, VirtualAddress};

use crate::random::Random;
use slow::Slow;
pub(super) use slow::{Ended, Failure, FailureKind, HostMemory};

/// The PD of nearly everything on a simulated host.
pub(super) const PD: PdId = PdId(1);

/// A PD that no QP belongs to.
pub(super) const OTHER_PD: PdId = PdId(2);

/// The virtual address at which every region starts.
pub(super) const BASE: u64 = 0x7f00_0000_0000;

/// All that a peer may be allowed.
pub(super) const REMOTE: AccessFlags = AccessFlags::REMOTE_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::FLUSH_GLOBAL);

/// Returns the SGE for a part of the region with this key.
pub(super) const fn local(key: LKey, at: usize, length: usize) -> Sge {
    Sge { key, address: VirtualAddress(BASE + at as u64), length: length as u32 }
}

/// Returns a key that does not exist: of the same slot as this one, and of another generation.
pub(super) const fn unknown(key: u32) -> u32 {
    key ^ 1 << 31
}

/// The regions of a host, by their index.
#[derive(Debug)]
pub(super) struct Regions {
    memory: Arc<Registered>,
    /// The memory of regions before [`Regions::map`].
    none: Arc<Buffer>,
    pub(super) regions: Vec<Region>,
}

/// Registered memory as the device of a host knows it.
#[derive(Debug)]
pub(super) struct Registered {
    registry: Registry,
    slow: Mutex<Slow>,
}

impl Registered {
    /// The memory as transports access it.
    pub(super) fn access(&self, now: Instant) -> HostMemory<'_> {
        HostMemory { registry: &self.registry, slow: self.slow.lock(), now }
    }
}

#[derive(Debug)]
pub(super) struct Region {
    key: LKey,
    /// The contents before the run, until [`Regions::map`]; after it, from [`Regions::collect`] on.
    pub(super) bytes: Vec<u8>,
    /// The memory, and where the region starts in it.
    mapped: Option<(Arc<Buffer>, usize)>,
    length: usize,
}

impl Regions {
    /// Creates a registry for about this many regions and windows.
    pub(super) fn new(seed: u64, slots: u32) -> Self {
        let none = Arc::new(Buffer::new(0).expect("the system maps a page"));
        let (registry, slow) = (Registry::small(seed, slots), Mutex::default());
        Self { memory: Arc::new(Registered { registry, slow }), none, regions: Vec::new() }
    }

    /// Draws whether accesses take time, and how long.
    pub(super) fn slow_down(&mut self, random: Random) {
        *self.memory.slow.lock() = Slow::new(random);
    }

    /// Lets some of the accesses that take time fail.
    pub(super) fn fail_some(&mut self) {
        self.memory.slow.lock().fail_some();
    }

    /// Takes the accesses of a QP that failed after they had begun.
    pub(super) fn take_failures(&mut self, queue_pair: Qpn) -> Vec<Failure> {
        self.memory.slow.lock().take_failures(queue_pair)
    }

    /// Number of accesses of a QP that have not finished.
    pub(super) fn unfinished(&self, queue_pair: Qpn) -> usize {
        self.memory.slow.lock().unfinished(queue_pair)
    }

    /// The QPs whose accesses have not finished.
    pub(super) fn accessors(&self) -> Vec<Qpn> {
        self.memory.slow.lock().open().map(|(queue_pair, _)| queue_pair).collect()
    }

    /// Whether an access to a region has not finished. One through a window may be to any region.
    pub(super) fn is_accessed(&self, region: usize) -> bool {
        let is_region = |key| self.regions.iter().any(|region| region.key.0 == key);
        let wanted = self.regions[region].key.0;
        self.memory.slow.lock().open().any(|(_, key)| key == wanted || !is_region(key))
    }

    /// The memory as the device of the host knows it.
    pub(super) fn registered(&self) -> &Arc<Registered> {
        &self.memory
    }

    /// The regions and windows.
    pub(super) fn registry(&self) -> &Registry {
        &self.memory.registry
    }

    /// How many accesses took time: the number in the last token.
    pub(super) fn begun(&self) -> u64 {
        self.memory.slow.lock().begun
    }

    /// How many of these read the payload of a request.
    #[cfg(test)]
    pub(super) fn payloads_begun(&self) -> u64 {
        self.memory.slow.lock().payloads
    }

    /// When the next access finishes.
    pub(super) fn next_finish(&self) -> Option<Instant> {
        self.memory.slow.lock().next_finish()
    }

    /// Finishes the next access that is due.
    pub(super) fn finish(&mut self, now: Instant) -> Option<Ended> {
        self.memory.slow.lock().finish(now, self.registry())
    }

    /// Adds a region, which has no memory until [`Regions::map`], and returns its index.
    pub(super) fn add(&mut self, bytes: Vec<u8>, pd: PdId, access: AccessFlags) -> usize {
        let iova = VirtualAddress(BASE);
        let keys = self.registry().register_buffer(pd, &self.none, 0, 0, iova, access);
        // A program with more regions than slots gets keys that are not valid, which the verification reports.
        let key = keys.map_or(LKey(0), |keys| keys.lkey);
        self.regions.push(Region { key, bytes, mapped: None, length: 0 });
        self.regions.len() - 1
    }

    /// Adds an unbound window and returns its key.
    pub(super) fn add_window(&mut self, kind: WindowKind) -> RKey {
        self.registry().allocate_window(PD, kind).unwrap_or_default()
    }

    /// Returns the lkey of a region.
    pub(super) fn lkey(&self, region: usize) -> LKey {
        self.regions[region].key
    }

    /// Returns the rkey of a region.
    pub(super) fn rkey(&self, region: usize) -> RKey {
        RKey(self.regions[region].key.0)
    }

    /// Gives all regions their memory: parts of one buffer, which start at multiples of 64.
    pub(super) fn map(&mut self) {
        let total = self.regions.iter().map(|one| one.bytes.len().next_multiple_of(64)).sum();
        let Ok(buffer) = Buffer::new(total) else { return };
        let buffer = Arc::new(buffer);
        let mut offset = 0;
        for region in &mut self.regions {
            let bytes = std::mem::take(&mut region.bytes);
            let Ok(range) = AddressRange::of_buffer(&buffer, offset, bytes.len()) else { return };
            // The part is within the buffer.
            let _ = buffer.write(offset, &bytes);
            let translation = Some((range, VirtualAddress(BASE)));
            let change = Change { translation, ..Change::default() };
            let _ = self.memory.registry.reregister(region.key, change);
            (region.length, region.mapped) = (bytes.len(), Some((Arc::clone(&buffer), offset)));
            offset += bytes.len().next_multiple_of(64);
        }
    }

    /// Registers a region while the host runs, and returns its index.
    pub(super) fn register(&mut self, bytes: &[u8], pd: PdId, access: AccessFlags) -> usize {
        let buffer = Arc::new(Buffer::new(bytes.len()).expect("the system maps a few pages"));
        let _ = buffer.write(0, bytes);
        let (iova, length) = (VirtualAddress(BASE), bytes.len());
        let keys = self.registry().register_buffer(pd, &buffer, 0, length, iova, access);
        let key = keys.map_or(LKey(0), |keys| keys.lkey);
        self.regions.push(Region { key, bytes: Vec::new(), mapped: Some((buffer, 0)), length });
        self.regions.len() - 1
    }

    /// Deregisters a region, and unbinds its windows. Its memory stays, to show later accesses.
    pub(super) fn deregister(&mut self, region: usize) {
        // An error means that it is deregistered already.
        let _ = self.registry().revoke(self.regions[region].key);
    }

    /// Lets accesses to a part of a region fail, as if the program had unmapped it.
    pub(super) fn unmap(&mut self, region: usize, at: usize, length: usize) {
        let _ = self.registry().mark_unmapped(self.regions[region].key, at as u64, length as u64);
    }

    /// Reads the memory of a region as the program does.
    pub(super) fn read(&self, region: usize, at: usize, out: &mut [u8]) {
        if let Some((buffer, offset)) = &self.regions[region].mapped {
            let _ = buffer.read(offset + at, out);
        }
    }

    /// Writes the memory of a region as the program does.
    pub(super) fn write(&self, region: usize, at: usize, bytes: &[u8]) {
        if let Some((buffer, offset)) = &self.regions[region].mapped {
            let _ = buffer.write(offset + at, bytes);
        }
    }

    /// Copies the contents of all regions, for the verification.
    pub(super) fn collect(&mut self) {
        for region in &mut self.regions {
            let Some((buffer, offset)) = &region.mapped else { continue };
            region.bytes.resize(region.length, 0);
            let _ = buffer.read(*offset, &mut region.bytes);
        }
    }
}
