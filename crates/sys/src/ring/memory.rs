//! The memory of a ring: a sealed memfd(2), mapped into both processes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use ferroce_sync::RingControl;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::ALIGNMENT;
use crate::net::device_fd;
use crate::signal::without_file_size_signal;

/// The seals required before mapping: the file can neither shrink, which would turn accesses into SIGBUS, nor grow.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The largest ring, in bytes of records.
pub(crate) const MAX_SIZE: usize = 1 << 26;

/// The file of a ring, to pass to the other process.
#[derive(Debug)]
pub struct RingFile {
    fd: OwnedFd,
    size: usize,
}

impl RingFile {
    /// Creates an empty ring for `size` bytes of records, rounded up to a power of two and at least a page.
    pub fn create(size: usize) -> io::Result<Self> {
        let size = size.next_power_of_two().max(page()).min(MAX_SIZE);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("ferroce-ring", flags)?;
        let length = (page() + size) as u64;
        // Allocated now, so that a lack of memory is an error here and not SIGBUS later.
        without_file_size_signal(|| {
            Ok(rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, length)?)
        })?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        Ok(Self { fd, size })
    }

    /// Validates a file that another process passed, for at most `max` bytes of records. Its memory must be allocated:
    /// this process would allocate what is missing by mapping it.
    pub fn check(fd: OwnedFd, max: usize) -> io::Result<Self> {
        let refused = || io::Error::from(io::ErrorKind::InvalidData);
        if !rustix::fs::fcntl_get_seals(&fd)?.contains(SEALS) {
            return Err(refused());
        }
        let status = rustix::fs::fstat(&fd)?;
        let length = usize::try_from(status.st_size).map_err(|_| refused())?;
        let size = length.checked_sub(page()).ok_or_else(refused)?;
        // In units of 512 bytes, whatever the file system (stat(3type)).
        let is_sparse = (status.st_blocks as u64).saturating_mul(512) < length as u64;
        if !size.is_power_of_two() || size < page() || size > max || is_sparse {
            return Err(refused());
        }
        Ok(Self { fd, size })
    }

    pub(super) fn map(&self) -> io::Result<RingMemory> {
        RingMemory::map(self.fd.as_fd(), self.size)
    }
}

impl AsFd for RingFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn page() -> usize {
    crate::memory::page_size()
}

/// A mapping of a ring, which a forked child does not inherit.
#[derive(Debug)]
pub(super) struct RingMemory {
    address: NonNull<u8>,
    /// The bytes before the records, and the bytes of the records.
    control: usize,
    size: usize,
    /// The number of forks before it was mapped: see [`RingMemory::is_lost`].
    forks: u32,
}

// SAFETY: memory that both processes use through atomics and raw copies may be used by any thread.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    fn map(fd: BorrowedFd<'_>, size: usize) -> io::Result<Self> {
        let length = page() + 2 * size;
        let (none, reserved) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: without a requested address, the kernel places the mapping where nothing is mapped.
        let address = unsafe { rustix::mm::mmap_anonymous(null_mut(), length, none, reserved) }?;
        let memory = Self {
            address: NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            control: page(),
            size,
            forks: device_fd::forks(),
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
        let both = (0, page() + size, 0);
        let again = (page() + size, size, page() as u64);
        for (start, length, offset) in [both, again] {
            // SAFETY: inside the address range that was reserved above.
            unsafe {
                let address = memory.address.as_ptr().add(start).cast();
                rustix::mm::mmap(address, length, protection, flags, fd, offset)?;
            }
        }
        // SAFETY: the whole mapping; the advice changes no contents.
        unsafe { rustix::mm::madvise(address, length, Advice::LinuxDontFork) }?;
        Ok(memory)
    }

    #[inline]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Whether this process is a forked child, which does not have the mapping.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.forks != device_fd::forks()
    }

    /// Head, tail and flags. `None` in a forked child.
    #[inline]
    pub(super) fn control(&self) -> Option<&RingControl> {
        if self.is_lost() {
            return None;
        }
        // SAFETY: the first page is mapped, aligned, and consists of atomics, for which every value is valid.
        Some(unsafe { self.address.cast::<RingControl>().as_ref() })
    }

    /// The address of a position. `size` bytes are mapped from there on.
    #[inline]
    pub(super) fn at(&self, position: u64) -> *mut u8 {
        let offset = self.control + (position as usize & (self.size - 1));
        // SAFETY: the records are mapped twice, so a whole ring is mapped after every masked position.
        unsafe { self.address.as_ptr().add(offset) }
    }

    /// Prefetches the cache lines of `length` bytes at a position.
    #[inline]
    pub(super) fn prefetch(&self, position: u64, length: usize) {
        let start = self.at(position);
        for offset in (0..length).step_by(ALIGNMENT) {
            // SAFETY: inside the mapping. A prefetch changes no contents.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(start.add(offset).cast_const().cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = (start, offset);
        }
    }

    /// Prefetches the cache lines of `length` bytes at a position for writing. The other processor holds them, so
    /// otherwise stores would stay in the store buffer, and the next locked instruction would wait until it drains.
    #[inline]
    pub(super) fn prefetch_for_writing(&self, position: u64, length: usize) {
        let start = self.at(position);
        for offset in (0..length).step_by(ALIGNMENT) {
            // SAFETY: inside the mapping. A prefetch changes no contents, and processors without the instruction ignore it.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            unsafe {
                std::arch::asm!("prefetchw [{}]", in(reg) start.add(offset), options(nostack, readonly, preserves_flags));
            }
            // SAFETY: as above.
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            unsafe {
                std::arch::asm!("prfm pstl1keep, [{}]", in(reg) start.add(offset), options(nostack, readonly, preserves_flags));
            }
            #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
            let _ = (start, offset);
        }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        if !self.is_lost() {
            // SAFETY: the mapping made above, which nothing uses any more.
            let _ =
                unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), page() + 2 * self.size) };
        }
    }
}
