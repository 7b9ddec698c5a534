//! The objects of an open device that `ibv_import_*` finds by number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use ferroce::{Buffer, MemoryRegion, ProtectionDomain};

use crate::entry::{Errno, Result};

/// A region that may have several handles; `None` once it is deregistered.
pub(crate) type SharedRegion = Arc<Mutex<Option<MemoryRegion>>>;
/// Device memory that may have several handles; `None` once it is freed.
pub(crate) type SharedMemory = Arc<Mutex<Option<Arc<Buffer>>>>;

/// Importable objects by the handle numbers that programs see.
#[derive(Default)]
pub(crate) struct Objects {
    last: u32,
    domains: HashMap<u32, ProtectionDomain>,
    regions: HashMap<u32, Weak<Mutex<Option<MemoryRegion>>>>,
    memories: HashMap<u32, Weak<Mutex<Option<Arc<Buffer>>>>>,
}

impl Objects {
    fn number(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    pub(crate) fn add_pd(&mut self, domain: &ProtectionDomain) -> u32 {
        let number = self.number();
        self.domains.insert(number, domain.clone());
        number
    }

    pub(crate) fn domain(&self, number: u32) -> Result<ProtectionDomain> {
        self.domains.get(&number).cloned().ok_or(Errno::INVALID)
    }

    pub(crate) fn remove_pd(&mut self, number: u32) {
        self.domains.remove(&number);
    }

    pub(crate) fn add_region(&mut self, region: &SharedRegion) -> u32 {
        let number = self.number();
        self.regions.insert(number, Arc::downgrade(region));
        number
    }

    pub(crate) fn region(&self, number: u32) -> Result<SharedRegion> {
        self.regions.get(&number).and_then(Weak::upgrade).ok_or(Errno::INVALID)
    }

    pub(crate) fn remove_region(&mut self, number: u32) {
        self.regions.remove(&number);
    }

    pub(crate) fn add_memory(&mut self, memory: &SharedMemory) -> u32 {
        let number = self.number();
        self.memories.insert(number, Arc::downgrade(memory));
        number
    }

    pub(crate) fn memory(&self, number: u32) -> Result<SharedMemory> {
        self.memories.get(&number).and_then(Weak::upgrade).ok_or(Errno::INVALID)
    }

    pub(crate) fn remove_memory(&mut self, number: u32) {
        self.memories.remove(&number);
    }
}
