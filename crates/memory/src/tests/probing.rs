//! Mapped and unmapped memory, and on-demand regions.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use ferroce_proto::memory::{Atomic, Denied, Memory};
use ferroce_sys::memory as sys;
use libc::{PROT_NONE, PROT_READ, PROT_WRITE};

use crate::{AddressRange, Change, Kind, RegisterError};

use super::*;

/// Pages with different protection, unmapped on drop.
struct Pages {
    address: usize,
    length: usize,
}

impl Pages {
    fn new(rights: &[i32]) -> Self {
        let page = sys::page_size();
        let pages = Self {
            address: sys::map(page * rights.len()).unwrap().addr(),
            length: page * rights.len(),
        };
        for (number, &rights) in rights.iter().enumerate() {
            pages.protect(number, rights);
        }
        pages
    }

    fn of_file(file: &File, pages: usize, flags: i32) -> Self {
        let length = pages * sys::page_size();
        let rights = PROT_READ | PROT_WRITE;
        // SAFETY: a new mapping.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, file.as_raw_fd(), 0) };
        assert_ne!(address, libc::MAP_FAILED);
        Self { address: address.addr(), length }
    }

    fn page(&self, number: usize) -> usize {
        self.address + number * sys::page_size()
    }

    fn protect(&self, page: usize, rights: i32) {
        let address = std::ptr::without_provenance_mut(self.page(page));
        // SAFETY: a page of this mapping, to which there are no references.
        assert_eq!(unsafe { libc::mprotect(address, sys::page_size(), rights) }, 0);
    }

    /// Maps pages far from other mappings, so that nothing is adjacent.
    fn low(pages: usize) -> Self {
        let length = pages * sys::page_size();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let (hint, rights) =
            (std::ptr::without_provenance_mut(0x1234_0000), PROT_READ | PROT_WRITE);
        // SAFETY: a new mapping that replaces no other.
        let address = unsafe { libc::mmap(hint, length, rights, flags, -1, 0) };
        assert_ne!(address, libc::MAP_FAILED);
        Self { address: address.addr(), length }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped above, and regions over it are not used any more.
        unsafe { sys::unmap(std::ptr::without_provenance_mut(self.address), self.length) };
    }
}

fn register(
    registry: &Registry,
    address: usize,
    length: usize,
    access: AccessFlags,
) -> Result<Keys, RegisterError> {
    // SAFETY: the tests keep their mappings, or do not access them.
    let range = unsafe { AddressRange::new(address, length) };
    registry.register(PD, range, VirtualAddress(address as u64), access)
}

fn memory_file(length: u64) -> File {
    // SAFETY: the name is a C string, and the descriptor is new.
    let file =
        unsafe { File::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC)) };
    file.set_len(length).unwrap();
    file
}

#[test]
fn registering_checks_the_protection_of_pages() {
    let (page, registry) = (sys::page_size(), Registry::new(1));
    let both = PROT_READ | PROT_WRITE;
    let pages = Pages::new(&[both, both, PROT_READ, both, PROT_NONE, both]);
    let case = |first: usize, count: usize, access| {
        register(&registry, pages.page(first), count * page, access).map(drop)
    };
    let fault = Err(RegisterError::Fault);
    assert_eq!(case(0, 2, ALL), Ok(()));
    assert_eq!(case(0, 4, READ), Ok(()));
    assert_eq!(case(0, 3, LOCAL), fault);
    assert_eq!(case(2, 1, LOCAL), fault);
    assert_eq!(case(2, 1, NONE), Ok(()));
    assert_eq!(case(3, 2, NONE), fault);
    assert_eq!(case(4, 1, NONE), fault);
    assert_eq!(case(0, 6, NONE), fault);
    // The last byte before an inaccessible page, and the first byte of it.
    assert!(register(&registry, pages.page(1) + 7, page - 7, LOCAL).is_ok());
    assert_eq!(
        register(&registry, pages.page(1) + 7, page - 6, LOCAL),
        fault.map(|()| unreachable!())
    );
    assert!(register(&registry, pages.page(3), page, LOCAL).is_ok());
    assert_eq!(RegisterError::Fault.errno(), libc::EFAULT);
}

#[test]
fn registering_unmapped_addresses_fails() {
    let (page, registry) = (sys::page_size(), Registry::new(1));
    // Below the lowest mappable address, above the address space, and not canonical.
    for address in [page, 1 << 47, 1 << 60, usize::MAX - 2 * page] {
        assert_eq!(register(&registry, address, page, NONE), Err(RegisterError::Fault));
    }
    let pages = Pages::low(2);
    assert!(register(&registry, pages.page(0), 2 * page, LOCAL).is_ok());
    assert_eq!(register(&registry, pages.page(1), page + 1, NONE), Err(RegisterError::Fault));
    assert_eq!(register(&registry, pages.page(0) - 1, page, NONE), Err(RegisterError::Fault));
}

#[test]
fn registering_beyond_the_end_of_a_file_fails() {
    let (page, registry) = (sys::page_size(), Registry::new(1));
    let file = memory_file(2 * page as u64 + 10);
    for flags in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        let pages = Pages::of_file(&file, 4, flags);
        assert!(register(&registry, pages.page(0), 3 * page, LOCAL).is_ok());
        assert_eq!(
            register(&registry, pages.page(0), 3 * page + 1, LOCAL),
            Err(RegisterError::Fault)
        );
        assert_eq!(register(&registry, pages.page(3), page, NONE), Err(RegisterError::Fault));
    }
}

#[test]
fn registering_faults_no_pages_in() {
    let registry = Registry::new(1);
    let length = 1 << 30;
    let address = sys::map(length).unwrap().addr();
    let keys = register(&registry, address, length, ALL).unwrap();
    let mut resident = vec![0u8; length / sys::page_size()];
    let at = std::ptr::without_provenance_mut(address);
    // SAFETY: the vector has one byte for each page.
    assert_eq!(unsafe { libc::mincore(at, length, resident.as_mut_ptr()) }, 0);
    assert!(resident.iter().all(|page| page & 1 == 0));
    registry.deregister(keys.lkey).unwrap();
    // SAFETY: mapped above, and not used.
    unsafe { sys::unmap(std::ptr::without_provenance_mut(address), length) };
}

/// A program may unmap memory that is still registered when it knows that its peer has read it. A duplicate of that READ
/// must not end the process.
#[test]
fn a_duplicate_read_of_unmapped_memory_fails() {
    let (page, registry) = (sys::page_size(), Registry::new(1));
    let pages = Pages::new(&[PROT_READ | PROT_WRITE; 2]);
    let keys = register(&registry, pages.page(0), 2 * page, ALL).unwrap();
    let sge = RemoteRange {
        key: keys.rkey,
        address: VirtualAddress(pages.page(0) as u64),
        length: 2 * page as u32,
    };
    let mut out = vec![1; 2 * page];
    assert_eq!((&registry).read_remote_duplicate(BY, sge, &mut out), Ok(()));
    assert!(out.iter().all(|byte| *byte == 0));
    pages.protect(1, PROT_NONE);
    assert_eq!((&registry).read_remote_duplicate(BY, sge, &mut out), Err(Denied::Bounds));
    assert_eq!((&registry).read_remote_duplicate(BY, sge, &mut out[..7]), Err(Denied::Bounds));
    drop(pages);
    assert_eq!((&registry).read_remote_duplicate(BY, sge, &mut out), Err(Denied::Bounds));
}

#[test]
fn reregistering_checks_the_memory_again() {
    let (page, registry) = (sys::page_size(), Registry::new(1));
    let pages = Pages::new(&[PROT_READ, PROT_READ | PROT_WRITE]);
    let keys = register(&registry, pages.page(0), page, READ).unwrap();
    let rights = Change { access: Some(LOCAL), ..Change::default() };
    assert_eq!(registry.reregister(keys.lkey, rights).unwrap_err(), RegisterError::Fault.into());
    // SAFETY: mapped for the test.
    let range = unsafe { AddressRange::new(pages.page(1), page) };
    let moved =
        Change { translation: Some((range, VirtualAddress(64))), access: Some(LOCAL), pd: None };
    registry.reregister(keys.lkey, moved).unwrap();
    assert_eq!((&registry).write_local(PD, local(keys.lkey, 64, 4), &[1; 4]), Ok(()));
    assert_eq!(registry.query(keys.lkey).unwrap().address, pages.page(1));
}

#[test]
fn the_implicit_region_checks_each_access() {
    let (page, registry) = (sys::page_size(), Registry::new(1));
    let access = ALL | AccessFlags::ON_DEMAND;
    // SAFETY: only pages of the test are accessed.
    let range = unsafe { AddressRange::everything() };
    let keys = registry.register(PD, range, VirtualAddress(0), access).unwrap();
    let info = registry.query(keys.lkey).unwrap();
    assert_eq!((info.kind, info.length), (Kind::OnDemand, u64::MAX));
    let both = PROT_READ | PROT_WRITE;
    let pages = Pages::new(&[both, both, PROT_READ, PROT_NONE]);
    let at = |page: usize, offset: usize, length| {
        remote(keys.rkey, (pages.page(page) + offset) as u64, length)
    };
    let mut memory = &registry;
    let data: Vec<u8> = (0..100).collect();
    let mut out = [0xee; 100];
    assert_eq!(memory.write_remote(BY, at(0, page - 50, 100), &data), Ok(()));
    assert_eq!(memory.read_remote(BY, at(0, page - 50, 100), &mut out), Ok(()));
    assert_eq!(out[..], data);
    assert_eq!(memory.read_remote(BY, at(2, 0, 100), &mut out), Ok(()));
    assert_eq!(out, [0; 100]);
    for sge in [at(2, 0, 100), at(1, page - 50, 100), at(3, 0, 100), remote(keys.rkey, 0, 100)] {
        assert_eq!(memory.write_remote(BY, sge, &data), Err(Denied::Bounds));
    }
    for sge in [at(3, 0, 100), at(2, page - 50, 100), remote(keys.rkey, 1 << 50, 100)] {
        assert_eq!(memory.read_remote(BY, sge, &mut out), Err(Denied::Bounds));
    }
    assert_eq!(memory.atomic(BY, at(0, 8, 8), Atomic::FetchAdd(3)), Ok(0));
    assert_eq!(memory.atomic(BY, at(0, 8, 8), Atomic::FetchAdd(3)), Ok(3));
    for sge in [at(2, 8, 8), at(3, 8, 8), remote(keys.rkey, 8, 8)] {
        assert_eq!(memory.atomic(BY, sge, Atomic::FetchAdd(1)), Err(Denied::Bounds));
    }
    registry.deregister(keys.lkey).unwrap();
    // The whole address space can only be registered on demand.
    // SAFETY: as above.
    let range = unsafe { AddressRange::everything() };
    let plain = registry.register(PD, range, VirtualAddress(0), LOCAL);
    assert_eq!(plain, Err(RegisterError::Fault));
}

/// An on-demand range need not be mapped when it is registered, and its file may be truncated.
#[test]
fn an_on_demand_region_checks_each_access() {
    let (page, registry) = (sys::page_size(), Registry::new(1));
    let file = memory_file(2 * page as u64);
    let pages = Pages::of_file(&file, 2, libc::MAP_SHARED);
    let access = LOCAL | AccessFlags::ON_DEMAND;
    let keys = register(&registry, pages.page(0), 2 * page, access).unwrap();
    let sge = local(keys.lkey, pages.page(1) as u64, 16);
    let mut memory = &registry;
    assert_eq!(memory.write_local(PD, sge, &[7; 16]), Ok(()));
    file.set_len(page as u64).unwrap();
    assert_eq!(memory.write_local(PD, sge, &[7; 16]), Err(Denied::Bounds));
    assert_eq!(memory.read_local(PD, sge, &mut [0; 16]), Err(Denied::Bounds));
    file.set_len(2 * page as u64).unwrap();
    let mut out = [1; 16];
    assert_eq!(memory.read_local(PD, sge, &mut out), Ok(()));
    assert_eq!(out, [0; 16]);
}

/// All kinds of access, at each border of the accessible part.
#[cfg(target_arch = "x86_64")]
#[test]
fn accesses_to_protected_or_truncated_memory_fail() {
    let page = sys::page_size();
    let registry = Registry::new(1);
    let pages = Pages::new(&[PROT_READ | PROT_WRITE; 3]);
    let keys = register(&registry, pages.address, pages.length, ALL).unwrap();
    // Protected, not unmapped, which hooks may detect: the fault itself has to be handled.
    pages.protect(1, PROT_NONE);
    let sge = |at: usize, length: u32| RemoteRange {
        key: keys.rkey,
        address: VirtualAddress((pages.address + at) as u64),
        length,
    };
    for (at, length) in
        [(page, 1), (page - 1, 2), (page - 100, 200), (2 * page - 1, 8), (0, 3 * page)]
    {
        let (sge, mut out) = (sge(at, length as u32), vec![0; length]);
        assert_eq!((&registry).read_remote(BY, sge, &mut out), Err(Denied::Bounds), "{at}");
        assert_eq!((&registry).write_remote(BY, sge, &out), Err(Denied::Bounds), "{at}");
    }
    for operation in
        [Atomic::FetchAdd(1), Atomic::Write(1), Atomic::CompareSwap { compare: 0, swap: 1 }]
    {
        assert_eq!((&registry).atomic(BY, sge(page, 8), operation), Err(Denied::Bounds));
        assert_eq!((&registry).atomic(BY, sge(0, 8), operation), Ok(0));
        (&registry).atomic(BY, sge(0, 8), Atomic::Write(0)).unwrap();
    }
    assert_eq!((&registry).write_remote(BY, sge(2 * page, 8), &[7; 8]), Ok(()));
    // An access beyond the end of a truncated file raises SIGBUS.
    let file = memory_file(2 * page as u64);
    let mapped = Pages::of_file(&file, 2, libc::MAP_SHARED);
    let keys = register(&registry, mapped.address, mapped.length, ALL).unwrap();
    file.set_len(page as u64).unwrap();
    let address = VirtualAddress((mapped.address + page) as u64);
    let sge = RemoteRange { key: keys.rkey, address, length: 8 };
    assert_eq!((&registry).write_remote(BY, sge, &[7; 8]), Err(Denied::Bounds));
}
