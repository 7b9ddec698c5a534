//! Memory that this process writes and others may read: a named memfd(2), mapped once, that grows.
//!
//! Other processes find it under `/proc/PID/fd`, where it is readable for the same user and for root. A forked child loses
//! the descriptor like all of a device's ([`DeviceFd`]), and its mapping becomes private memory: objects that it inherited
//! can still write to it, and the parent's is not changed.

use std::io;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::net::device_fd::{self, DeviceFd};
use crate::signal::without_file_size_signal;

/// The bytes of address space that a mapping reserves, and so the most that it can grow to.
const MAX_BYTES: usize = 64 << 20;

/// The memory grows in steps of this many bytes.
const STEP: usize = 64 << 10;

/// Memory that other processes may read.
#[derive(Debug)]
pub struct PublishedMemory {
    fd: DeviceFd,
    address: NonNull<AtomicU64>,
    /// The bytes that may be accessed.
    length: Mutex<usize>,
}

// SAFETY: the memory consists of atomics, which any thread may use.
unsafe impl Send for PublishedMemory {}
// SAFETY: as above.
unsafe impl Sync for PublishedMemory {}

impl PublishedMemory {
    /// Creates empty memory, which `/proc/PID/fd` shows as `/memfd:NAME (deleted)`.
    ///
    /// # Errors
    ///
    /// When the system has no memfd(2), or descriptors or address space are exhausted.
    pub fn create(name: &str) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = DeviceFd::open(|| Ok(rustix::fs::memfd_create(name, flags)?))?;
        // If it shrank, accesses would be signals.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK)?;
        // Accessible as far as there is memory: valgrind reads everything that is readable, and a signal for each page
        // behind the end of the file would take it half a minute.
        let protection = ProtFlags::empty();
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: without a requested address, the kernel places the mapping where nothing is mapped.
        let address =
            unsafe { rustix::mm::mmap(null_mut(), MAX_BYTES, protection, flags, &fd, 0) }?;
        device_fd::add_mapping(address as usize, MAX_BYTES);
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { fd, address, length: Mutex::new(0) })
    }

    /// Returns `count` words from the word `start` on, which are zero if they are new. The memory grows if necessary.
    ///
    /// # Errors
    ///
    /// When memory is exhausted.
    pub fn words(self: &Arc<Self>, start: usize, count: usize) -> io::Result<Words> {
        let full = || io::Error::from(io::ErrorKind::OutOfMemory);
        let end = start.checked_add(count).and_then(|end| end.checked_mul(size_of::<u64>()));
        let end = end.filter(|&end| end <= MAX_BYTES).ok_or_else(full)?;
        let mut length = self.length.lock().unwrap_or_else(PoisonError::into_inner);
        if end > *length {
            let target = end.next_multiple_of(STEP).min(MAX_BYTES);
            // Memory that is missing now is an error; later it would be a signal.
            without_file_size_signal(|| {
                Ok(rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), 0, target as u64)?)
            })?;
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: the beginning of the mapping; what was accessible stays so.
            unsafe { rustix::mm::mprotect(self.address.as_ptr().cast(), target, access) }?;
            *length = target;
        }
        // SAFETY: inside the mapping, and backed by memory.
        let address = unsafe { self.address.add(start) };
        Ok(Words { address, count, owner: Some(Arc::clone(self)) })
    }
}

impl Drop for PublishedMemory {
    fn drop(&mut self) {
        device_fd::remove_mapping(self.address.as_ptr() as usize);
        // SAFETY: the mapping made above, which nothing uses any more: [`Words`] hold a reference to this.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), MAX_BYTES) };
    }
}

/// A part of [`PublishedMemory`], or private memory in its place.
#[derive(Debug)]
pub struct Words {
    address: NonNull<AtomicU64>,
    count: usize,
    /// `None` for private memory.
    owner: Option<Arc<PublishedMemory>>,
}

// SAFETY: the words are atomics, which any thread may use.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Returns private memory, filled with zeroes: for a process that cannot publish.
    pub fn private(count: usize) -> Self {
        let words: Box<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let address = NonNull::from(Box::leak(words)).cast();
        Self { address, count, owner: None }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: mapped or allocated as long as this lives, aligned, and every value of an atomic is valid.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.owner.is_none() {
            let words = std::ptr::slice_from_raw_parts_mut(self.address.as_ptr(), self.count);
            // SAFETY: the box that `private` leaked.
            drop(unsafe { Box::from_raw(words) });
        }
    }
}

#[cfg(test)]
mod tests;
