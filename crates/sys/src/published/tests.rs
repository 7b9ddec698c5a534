use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use super::*;

#[test]
fn others_read_what_is_written() {
    let memory = Arc::new(PublishedMemory::create("ferroce-test").unwrap());
    let path = format!("/proc/self/fd/{}", memory.fd.as_raw_fd());
    assert_eq!(std::fs::read_link(&path).unwrap().to_str(), Some("/memfd:ferroce-test (deleted)"));
    let low = memory.words(3, 2).unwrap();
    low[1].store(7, Ordering::Relaxed);
    let file = std::fs::File::open(&path).unwrap();
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 32).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), 7);
    // Far behind the end: it grows, and what was there stays.
    let high = memory.words(1 << 20, 4).unwrap();
    high[3].store(9, Ordering::Relaxed);
    file.read_exact_at(&mut bytes, (8 << 20) + 24).unwrap();
    assert_eq!((u64::from_ne_bytes(bytes), low[1].load(Ordering::Relaxed)), (9, 7));
    assert!(memory.words(MAX_BYTES / 8, 1).is_err());
    assert!(memory.words(usize::MAX, 2).is_err());
    drop(memory);
    // The words keep the memory.
    assert_eq!(high[3].load(Ordering::Relaxed), 9);
}

#[test]
fn a_forked_child_writes_to_private_memory() {
    let memory = Arc::new(PublishedMemory::create("ferroce-test").unwrap());
    let words = memory.words(0, 1).unwrap();
    words[0].store(5, Ordering::Relaxed);
    // SAFETY: the child makes system calls and stores to memory, nothing else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        words[0].store(6, Ordering::Relaxed);
        let mine = words[0].load(Ordering::Relaxed) == 6;
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!mine)) };
    }
    let mut status = -1;
    // SAFETY: the status is written to the variable.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((status, words[0].load(Ordering::Relaxed)), (0, 5));
}

#[test]
fn private_memory_is_zeroed() {
    let words = Words::private(3);
    words[2].fetch_add(1, Ordering::Relaxed);
    let values: Vec<_> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    assert_eq!(values, [0, 0, 1]);
}
