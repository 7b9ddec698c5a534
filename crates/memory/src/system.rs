//! The system calls about memory, each wrapped once.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::{c_int, c_void, iovec};

/// How large a page is; larger pages are multiples.
pub(crate) fn page_size() -> usize {
    // SAFETY: the call takes no pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Fresh, zeroed, private pages.
pub(crate) fn map(length: usize) -> io::Result<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: without an address asked for, the mapping lies on no other.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address.cast()) }
}

/// # Safety
/// `address` and `length` are of one [`map`], which nobody uses any more.
pub(crate) unsafe fn unmap(address: *mut u8, length: usize) {
    // SAFETY: the caller's promise. It can fail only for a range that was never mapped so.
    unsafe { libc::munmap(address.cast(), length) };
}

/// Faults pages in, as an access would, without one.
pub(crate) fn populate(address: usize, length: usize, write: bool) -> io::Result<()> {
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: this advice changes no contents, and a range that is not mapped is an error.
    let result =
        unsafe { libc::madvise(std::ptr::without_provenance_mut(address), length, advice) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads this process's memory by way of the kernel: an address that is not readable is an error instead of a signal.
/// Returns how many bytes were.
pub(crate) fn read_memory(address: usize, out: &mut [u8]) -> io::Result<usize> {
    let local = iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = piece(address, out.len());
    // SAFETY: the kernel writes to `out` only, and checks every address of `remote`.
    let result = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Writes this process's memory by way of the kernel, the last word last.
///
/// # Safety
/// The bytes that are mapped there may be overwritten.
pub(crate) unsafe fn write_memory(address: usize, data: &[u8]) -> io::Result<usize> {
    let start = data.len().saturating_sub(1) & !7;
    let local = iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let remote = [piece(address, start), piece(address.wrapping_add(start), data.len() - start)];
    // SAFETY: the kernel reads from `data` only, checks every address of `remote`, and writes there as the caller allows.
    let result =
        unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, remote.as_ptr(), 2, 0) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn piece(address: usize, length: usize) -> iovec {
    iovec { iov_base: std::ptr::with_exposed_provenance_mut::<c_void>(address), iov_len: length }
}

/// A mapping of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Of a file, which may be shorter than the mapping.
    pub(crate) file: bool,
}

/// `struct procmap_query` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const _: () = assert!(size_of::<Query>() == 104);

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: u64 = 3 << 30 | (size_of::<Query>() as u64) << 16 | (b'f' as u64) << 8 | 17;

/// The mapping that `address` is in, of the open `/proc/self/maps` (Linux 6.11). An error other than `ENOENT` means
/// that the kernel does not know this question.
pub(crate) fn mapping_at(maps: &File, address: usize) -> io::Result<Mapping> {
    let mut query =
        Query { size: size_of::<Query>() as u64, query_addr: address as u64, ..Query::default() };
    // SAFETY: the kernel reads and writes this structure, whose size it is told.
    let result = unsafe {
        libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, (&raw mut query).cast::<c_void>())
    };
    if result != 0 as c_int {
        return Err(io::Error::last_os_error());
    }
    Ok(Mapping {
        start: query.vma_start as usize,
        end: query.vma_end as usize,
        readable: query.vma_flags & 1 != 0,
        writable: query.vma_flags & 2 != 0,
        file: query.inode != 0,
    })
}
