//! Mappings of this process: creating and removing them, and asking the kernel about them.
//!
//! libc: rustix has no process_vm_readv(2) and process_vm_writev(2); and [`unmap`] must call the C library's function,
//! because the crate `memory` hooks it to learn which registered ranges are gone.

use std::fs::File;
use std::io;
use std::ptr::{null_mut, with_exposed_provenance_mut, without_provenance_mut};

use libc::{c_void, iovec};
use rustix::ioctl;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The size of a small page; larger pages are multiples of it.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Maps new private pages, filled with zeroes.
pub fn map(length: usize) -> io::Result<*mut u8> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: without a requested address, the kernel places the mapping where nothing is mapped.
    let address =
        unsafe { rustix::mm::mmap_anonymous(null_mut(), length, protection, MapFlags::PRIVATE) }?;
    Ok(address.cast())
}

/// Removes a mapping.
///
/// # Safety
/// `address` and `length` are those of one [`map`] that is no longer used.
pub unsafe fn unmap(address: *mut u8, length: usize) {
    // SAFETY: the caller's promise. It fails only for a range that [`map`] did not return.
    unsafe { libc::munmap(address.cast(), length) };
}

/// Faults pages in for reading or writing without accessing them: `MADV_POPULATE_READ` and `_WRITE` (Linux 5.14).
pub fn populate(address: usize, length: usize, write: bool) -> io::Result<()> {
    let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    // SAFETY: this advice changes no contents, and a range that is not mapped is an error.
    Ok(unsafe { rustix::mm::madvise(without_provenance_mut(address), length, advice) }?)
}

/// Reads memory of this process through the kernel, and returns how many bytes were readable. An address that is not
/// readable is an error instead of a signal.
pub fn read(address: usize, out: &mut [u8]) -> io::Result<usize> {
    let local = iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = piece(address, out.len());
    // SAFETY: the kernel writes to `out` only, and checks every address of `remote`.
    let result = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Writes memory of this process through the kernel, the last word last.
///
/// # Safety
/// The bytes that are mapped there may be overwritten.
pub unsafe fn write(address: usize, data: &[u8]) -> io::Result<usize> {
    let start = data.len().saturating_sub(1) & !7;
    let local = iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let remote = [piece(address, start), piece(address.wrapping_add(start), data.len() - start)];
    // SAFETY: the kernel reads from `data` only, checks every address of `remote`, and writes there as the caller allows.
    let result =
        unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, remote.as_ptr(), 2, 0) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn piece(address: usize, length: usize) -> iovec {
    iovec { iov_base: with_exposed_provenance_mut::<c_void>(address), iov_len: length }
}

/// A mapping of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: usize,
    /// The address behind the last.
    pub end: usize,
    /// Loads are allowed.
    pub readable: bool,
    /// Stores are allowed.
    pub writable: bool,
    /// It maps a file, which may be shorter than the mapping.
    pub file: bool,
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
const PROCMAP_QUERY: ioctl::Opcode = ioctl::opcode::read_write::<Query>(b'f', 17);

/// Returns the mapping that contains `address`, from an open `/proc/self/maps` (Linux 6.11). `ENOENT` means that nothing
/// is mapped there; any other error that the kernel does not support the query.
pub fn mapping_at(maps: &File, address: usize) -> io::Result<Mapping> {
    let mut query =
        Query { size: size_of::<Query>() as u64, query_addr: address as u64, ..Query::default() };
    // SAFETY: the kernel reads and writes this structure, which contains its size.
    unsafe { ioctl::ioctl(maps, ioctl::Updater::<PROCMAP_QUERY, Query>::new(&mut query)) }?;
    Ok(Mapping {
        start: query.vma_start as usize,
        end: query.vma_end as usize,
        readable: query.vma_flags & 1 != 0,
        writable: query.vma_flags & 2 != 0,
        file: query.inode != 0,
    })
}
