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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_not_reused_and_lead_to_their_object_only() {
        let mut objects = Objects::default();
        let memory = |length| -> SharedMemory {
            Arc::new(Mutex::new(Some(Arc::new(Buffer::new(length).unwrap()))))
        };
        let (one, two) = (memory(4096), memory(8192));
        let (first, second) = (objects.add_memory(&one), objects.add_memory(&two));
        assert_ne!(first, second);
        assert!(Arc::ptr_eq(&objects.memory(second).unwrap(), &two));
        // An MR is not found by the number of device memory.
        assert!(objects.region(first).is_err());
        objects.remove_memory(first);
        assert!(objects.memory(first).is_err());
        assert_ne!(objects.add_memory(&one), first);
    }

    #[test]
    fn an_object_that_is_gone_cannot_be_imported() {
        let mut objects = Objects::default();
        let region: SharedRegion = Arc::default();
        let number = objects.add_region(&region);
        assert!(objects.region(number).is_ok());
        drop(region);
        assert_eq!(objects.region(number).err(), Some(Errno::INVALID));
    }
}
