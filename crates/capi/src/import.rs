//! Objects that several contexts of a process use: `ibv_import_device(3)` and its like.
//!
//! With a kernel, the command descriptor of a context is what its objects belong to, and who gets a copy of it can use
//! them. Here it is a file of no bytes, by which the context is found again within its process. Another process that
//! gets a copy finds nothing: memory and queues are in the process that made them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use ferroce::{Buffer, MemoryRegion, ProtectionDomain};

use crate::context::{Open, lock};
use crate::entry::{Errno, Result};

/// A file: its device, and its inode.
pub(crate) type File = (u64, u64);

/// Which file a descriptor is of.
pub(crate) fn file_of(fd: c_int) -> Result<File> {
    // SAFETY: all zeroes is a value of it.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a place of ours.
    if unsafe { libc::fstat(fd, &raw mut about) } < 0 {
        return Err(Errno::last());
    }
    Ok((about.st_dev, about.st_ino))
}

/// A region that may have more than one handle: `None` when it is deregistered.
pub(crate) type SharedRegion = Arc<Mutex<Option<MemoryRegion>>>;
/// Device memory that may have more than one handle: `None` when it is freed.
pub(crate) type SharedMemory = Arc<Mutex<Option<Arc<Buffer>>>>;

/// What can be imported, by the numbers that programs see.
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

/// Open devices by their command descriptors.
static FILES: Mutex<Vec<(File, Weak<Open>)>> = Mutex::new(Vec::new());

/// A new command descriptor.
pub(crate) fn descriptor() -> Result<OwnedFd> {
    // SAFETY: a name of ours.
    let fd = unsafe { libc::memfd_create(c"ferroce".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: it is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets an open device be found by its command descriptor.
pub(crate) fn remember(commands: &OwnedFd, open: &Arc<Open>) -> Result<()> {
    let file = file_of(commands.as_raw_fd())?;
    let mut files = lock(&FILES);
    files.retain(|(_, open)| open.strong_count() > 0);
    files.push((file, Arc::downgrade(open)));
    Ok(())
}

/// The open device that a command descriptor is of.
pub(crate) fn find(fd: c_int) -> Result<Arc<Open>> {
    let file = file_of(fd)?;
    let files = lock(&FILES);
    let found = files.iter().find(|(one, _)| *one == file).and_then(|(_, open)| open.upgrade());
    // Another process's, or no device's at all.
    found.ok_or(Errno::UNSUPPORTED)
}
