//! Copies of all lengths at all alignments, and the order of their last bytes.

use std::sync::atomic::Ordering;

use crate::{copy, guard};

use super::*;

#[test]
fn copies_all_lengths_and_alignments() {
    // SAFETY: `check_copies` passes mapped memory.
    check_copies(
        |to, data| unsafe { copy::store(to, data) },
        |from, out| unsafe {
            copy::load(from, out);
        },
    );
}

#[test]
fn guarded_copies_of_all_lengths_and_alignments() {
    // SAFETY: `check_copies` passes mapped memory.
    check_copies(
        |to, data| unsafe { guard::store(to, data).unwrap() },
        |from, out| unsafe {
            guard::load(from, out).unwrap();
        },
    );
}

/// Both are called for mapped memory.
fn check_copies(store: fn(*mut u8, &[u8]), load: fn(*const u8, &mut [u8])) {
    let lengths = (0..200).chain([255, 256, 257, 1000, 1023, 1024, 1025, 4095, 4096]);
    let lengths = lengths.step_by(if cfg!(miri) { 23 } else { 1 });
    let buffer = buffer(4096 + 64);
    let base = buffer.as_ptr();
    for length in lengths {
        let data: Vec<u8> = (0..length + 8).map(|at| (at as u8).wrapping_mul(7) | 1).collect();
        for (at, from) in (0..9).flat_map(|at| [0, 1, 4, 7].map(|from| (at, from))) {
            let data = &data[from..from + length];
            // SAFETY: all of this is within the buffer.
            let target = unsafe { base.add(16 + at) };
            store(target, data);
            let bytes = buffer.to_vec();
            assert!(bytes[..16 + at].iter().all(|&byte| byte == 0), "{length} at {at}");
            assert_eq!(&bytes[16 + at..][..length], data, "{length} at {at}");
            assert!(bytes[16 + at + length..].iter().all(|&byte| byte == 0), "{length} at {at}");
            let mut out = vec![0xee; from + length + 1];
            load(target, &mut out[from..from + length]);
            assert_eq!(&out[from..from + length], data);
            assert!(out[..from].iter().all(|&byte| byte == 0xee) && out[from + length] == 0xee);
            buffer.write(16 + at, &vec![0; length]).unwrap();
        }
    }
}

/// A thread that sees the last byte sees the others.
#[test]
fn the_last_byte_is_written_last() {
    let (length, rounds) = (if cfg!(miri) { 40 } else { 1003 }, if cfg!(miri) { 5 } else { 2000 });
    let buffer = buffer(length);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=rounds {
                while buffer.bytes()[0].load(Ordering::Acquire) != 0 {
                    std::thread::yield_now();
                }
                buffer.write(0, &vec![(round % 255 + 1) as u8; length]).unwrap();
            }
        });
        for round in 1..=rounds {
            let value = (round % 255 + 1) as u8;
            while buffer.bytes()[length - 1].load(Ordering::Acquire) != value {
                std::thread::yield_now();
            }
            assert!(buffer.to_vec().iter().all(|&byte| byte == value), "round {round}");
            for byte in buffer.bytes().iter().rev() {
                byte.store(0, Ordering::Release);
            }
        }
    });
}

/// Aligned words are stored whole: a reader never sees half of one.
#[test]
fn aligned_words_are_stored_whole() {
    let (words, rounds) = (if cfg!(miri) { 4 } else { 512 }, if cfg!(miri) { 10 } else { 3000 });
    let buffer = buffer(words * 8);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                let byte = if round % 2 == 0 { 0 } else { 0xff };
                // Unaligned at both ends, so that there are a head and a tail.
                buffer.write(3, &vec![byte; words * 8 - 5]).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            for word in &buffer.words()[1..words - 1] {
                let seen = word.load(Ordering::Relaxed);
                assert!(seen == 0 || seen == u64::MAX, "{seen:#x}");
            }
        }
    });
}
