//! Checks whether a range of addresses is mapped, without accessing it.
//!
//! The kernel's list of mappings contains what is mapped, and its protection. Reading it takes time proportional to the
//! number of mappings and not of pages, and allocates or faults in no pages: a large region that is mostly unused stays so,
//! and `RLIMIT_MEMLOCK` does not matter. Linux 6.11 supports a query for one address (`PROCMAP_QUERY`); before that the
//! list is read as text.
//!
//! A mapping may extend beyond the end of its file, where an access raises SIGBUS. If the last page of the range is not
//! beyond the end, no other page is, so that one is checked by `process_vm_readv`, which fails where an access would.
//!
//! Without `/proc`, `madvise(MADV_POPULATE_READ)` (Linux 5.14) is used, at the cost of the page faults.
//!
//! Not detected: guard pages within a mapping (`MADV_GUARD_INSTALL`), which the list does not contain.

use std::fs::File;
use std::io::{self, Read};

use ferroce_sys::errno::{EFAULT, EINVAL};
use ferroce_sys::memory::{self as sys, Mapping};

use crate::error::RegisterError;

/// Checks that the whole range is mapped and readable, and also writable if `write` is set.
pub(crate) fn range(address: usize, length: usize, write: bool) -> Result<(), RegisterError> {
    if length == 0 || cfg!(miri) {
        return Ok(());
    }
    let end = address.checked_add(length).ok_or(RegisterError::Range)?;
    let Ok(maps) = File::open("/proc/self/maps") else {
        return populate(address, end, write);
    };
    let mut list = Vec::new();
    let mut at = address;
    while at < end {
        let mapping = match sys::mapping_at(&maps, at) {
            Ok(mapping) => mapping,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                return Err(RegisterError::Fault);
            }
            Err(_) => {
                if list.is_empty() {
                    list = read_list(&maps).map_err(|_| RegisterError::Unsupported)?;
                }
                find(&list, at).ok_or(RegisterError::Fault)?
            }
        };
        check(&mapping, at, end, write)?;
        at = mapping.end;
    }
    Ok(())
}

/// Checks the part of the range that is in a mapping.
fn check(mapping: &Mapping, at: usize, end: usize, write: bool) -> Result<(), RegisterError> {
    let allowed = mapping.readable && (mapping.writable || !write);
    if !allowed || at < mapping.start || at >= mapping.end {
        return Err(RegisterError::Fault);
    }
    if mapping.file {
        let last = mapping.end.min(end) - 1;
        match sys::read(last, &mut [0]) {
            Err(error) if error.raw_os_error() == Some(EFAULT) => {
                return Err(RegisterError::Fault);
            }
            // A sandbox may forbid the call. The end of the file is then not checked.
            _ => {}
        }
    }
    Ok(())
}

fn find(list: &[Mapping], address: usize) -> Option<Mapping> {
    let index = list.partition_point(|mapping| mapping.end <= address);
    list.get(index).copied().filter(|mapping| mapping.start <= address)
}

fn read_list(mut maps: &File) -> io::Result<Vec<Mapping>> {
    let mut text = Vec::new();
    maps.read_to_end(&mut text)?;
    // File names need not be UTF-8, and are ignored.
    let lines = text.split(|&byte| byte == b'\n');
    Ok(lines.filter_map(|line| parse(&String::from_utf8_lossy(line))).collect())
}

/// Parses a line such as `7f0c1a000000-7f0c1a021000 rw-p 00000000 00:00 0   [heap]`.
fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let protection = words.next()?.as_bytes();
    let inode = words.nth(2)?;
    Some(Mapping {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        readable: protection.first() == Some(&b'r'),
        writable: protection.get(1) == Some(&b'w'),
        file: inode != "0",
    })
}

fn populate(address: usize, end: usize, write: bool) -> Result<(), RegisterError> {
    let page = sys::page_size();
    let start = address - address % page;
    let Err(error) = sys::populate(start, end - start, write) else { return Ok(()) };
    // EINVAL means that the pages do not permit the access, or that an old kernel does not know the advice. The stack of this
    // function is readable, so a call for it distinguishes the two.
    let stack = (&raw const page).addr() / page * page;
    let supported = sys::populate(stack, page, false).is_ok();
    match error.raw_os_error() {
        Some(EINVAL) if !supported => Err(RegisterError::Unsupported),
        _ => Err(RegisterError::Fault),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// The three methods agree on what this process has mapped.
    #[test]
    fn methods_agree() {
        let page = sys::page_size();
        let own = sys::map(4 * page).unwrap().addr();
        let maps = File::open("/proc/self/maps").unwrap();
        let list = read_list(&maps).unwrap();
        assert!(list.len() > 5);
        for mapping in [own, own + 4 * page - 1].map(|address| find(&list, address).unwrap()) {
            assert!(mapping.readable && mapping.writable && !mapping.file);
            if let Ok(queried) = sys::mapping_at(&maps, own) {
                // The kernel may merge adjacent mappings; the protection is the same.
                assert!(queried.start <= own && queried.end >= own + 4 * page);
                assert_eq!((queried.readable, queried.writable, queried.file), (true, true, false));
            }
        }
        let code = methods_agree as fn() as usize;
        let code = find(&list, code).unwrap();
        assert!(code.readable && !code.writable && code.file);
        assert_eq!(find(&list, 0), None);
        assert_eq!(populate(own, own + 4 * page, true), Ok(()));
        assert_eq!(populate(code.start, code.end, true), Err(RegisterError::Fault));
        // SAFETY: mapped above, and not used.
        unsafe { sys::unmap(std::ptr::without_provenance_mut(own), 4 * page) };
        assert_eq!(populate(page, 2 * page, false), Err(RegisterError::Fault));
    }

    #[test]
    fn parses_lines_of_the_list() {
        let line = "7f0c1a000000-7f0c1a021000 r--p 00001000 fd:01 77   /a name with spaces";
        let mapping = parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f0c_1a00_0000, 0x7f0c_1a02_1000));
        assert!(mapping.readable && !mapping.writable && mapping.file);
        assert_eq!(parse(""), None);
        assert_eq!(parse("nonsense rw-p"), None);
    }
}
