//! Concurrent use of one registry.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ferroce_proto::memory::{Atomic, Bind, Denied, Memory};

use crate::{AddressRange, Change, DeregisterError, WindowKind};

use super::*;

/// Peers and the application add to one word.
#[test]
fn concurrent_atomics_lose_no_update() {
    let rounds = if cfg!(miri) { 20 } else { 100_000 };
    let (registry, buffer, keys) = setup(64, ALL);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (registry, buffer) = (&registry, &buffer);
            scope.spawn(move || {
                let mut memory = registry;
                let sge = remote(keys.rkey, BASE + 8, 8);
                for _ in 0..rounds {
                    match thread {
                        0 => drop(buffer.words()[1].fetch_add(1, Ordering::Relaxed)),
                        1 => loop {
                            let compare = buffer.words()[1].load(Ordering::Relaxed);
                            let what = Atomic::CompareSwap { compare, swap: compare + 1 };
                            if memory.atomic(BY, sge, what) == Ok(compare) {
                                break;
                            }
                        },
                        _ => drop(memory.atomic(BY, sge, Atomic::FetchAdd(1)).unwrap()),
                    }
                }
            });
        }
    });
    assert_eq!(buffer.words()[1].load(Ordering::Relaxed), 4 * rounds);
}

/// A read returns bytes of the region or is denied; after deregistering has returned, nothing is written any more.
#[test]
fn deregistering_during_accesses() {
    let rounds = if cfg!(miri) { 5 } else { 500 };
    let registry = &Registry::new(11);
    let (current, stop) = (&AtomicU64::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let mut memory = registry;
                while !stop.load(Ordering::Acquire) {
                    let key = current.load(Ordering::Acquire) as u32;
                    let sge = remote(RKey(key), BASE, 512);
                    let result = match thread {
                        0 => memory.write_remote(BY, sge, &[0xab; 512]),
                        1 => memory.write_remote(BY, sge, &[0xcd; 512]),
                        _ => {
                            let mut out = [0x11; 512];
                            let result = memory.read_remote(BY, sge, &mut out);
                            let known = |byte: &u8| matches!(byte, 0 | 0x11 | 0xab | 0xcd);
                            assert!(out.iter().all(known));
                            result
                        }
                    };
                    assert!(matches!(result, Ok(()) | Err(Denied::Key)), "{result:?}");
                }
            });
        }
        let buffer = buffer(512);
        for _ in 0..rounds {
            let keys = add(registry, &buffer, ALL);
            current.store(u64::from(keys.rkey.0), Ordering::Release);
            std::thread::yield_now();
            registry.deregister(keys.lkey).unwrap();
            buffer.write(0, &[0x33; 512]).unwrap();
            std::thread::yield_now();
            assert!(
                buffer.to_vec().iter().all(|&byte| byte == 0x33),
                "written after deregistering"
            );
            buffer.write(0, &[0; 512]).unwrap();
        }
        stop.store(true, Ordering::Release);
        assert_eq!(Arc::strong_count(&buffer), 1);
    });
    assert_eq!(registry.regions(), 0);
}

/// Readers see the old or the new region, never a mixture.
#[test]
fn reregistering_during_accesses() {
    let rounds = if cfg!(miri) { 5 } else { 1000 };
    let (registry, first, keys) = setup(64, ALL);
    let second = buffer(64);
    first.write(0, &[1; 64]).unwrap();
    second.write(0, &[2; 64]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let mut out = [0; 64];
                    // The first is at BASE in PD, the second at twice that in another PD.
                    let by = Accessor { pd: PdId(8), ..BY };
                    let mut memory = &registry;
                    match memory.read_remote(BY, remote(keys.rkey, BASE, 64), &mut out) {
                        Ok(()) => assert_eq!(out, [1; 64]),
                        denied => assert_eq!(denied, Err(Denied::PdId)),
                    }
                    match memory.read_remote(by, remote(keys.rkey, 2 * BASE, 64), &mut out) {
                        Ok(()) => assert_eq!(out, [2; 64]),
                        denied => assert_eq!(denied, Err(Denied::PdId)),
                    }
                    let add = memory.atomic(by, remote(keys.rkey, BASE, 8), Atomic::FetchAdd(1));
                    assert!(matches!(add, Err(Denied::PdId | Denied::Bounds)));
                }
            });
        }
        for round in 0..rounds {
            let (buffer, pd, iova) =
                if round % 2 == 0 { (&second, PdId(8), 2 * BASE) } else { (&first, PD, BASE) };
            // SAFETY: both buffers outlive the region.
            let range = unsafe { AddressRange::new(buffer.address(), 64) };
            let translation = Some((range, VirtualAddress(iova)));
            let change = Change { pd: Some(pd), translation, access: None };
            registry.reregister(keys.lkey, change).unwrap();
        }
        stop.store(true, Ordering::Release);
    });
}

/// Either a window is bound or the region is deregistered, never both; and the count of windows returns to zero.
#[test]
fn binding_during_deregistering() {
    let rounds = if cfg!(miri) { 5 } else { 3000 };
    let (registry, buffer) = (&Registry::new(13), buffer(64));
    let (current, stop) = (&AtomicU64::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let mut memory = registry;
                let window = registry.allocate_window(PD, WindowKind::Type1).unwrap();
                while !stop.load(Ordering::Acquire) {
                    let region = LKey(current.load(Ordering::Acquire) as u32);
                    let address = VirtualAddress(BASE);
                    let bind =
                        Bind { window, key: window, region, address, length: 64, access: READ };
                    if memory.bind(BY, &bind) == Ok(()) {
                        // A region with a bound window is not deregistered.
                        assert!(registry.query(region).is_some_and(|info| info.windows > 0));
                        assert_eq!(memory.check_remote(BY, remote(window, BASE, 64), READ), Ok(()));
                        assert_eq!(memory.bind(BY, &Bind { length: 0, ..bind }), Ok(()));
                    }
                }
                registry.deallocate_window(window).unwrap();
            });
        }
        for _ in 0..rounds {
            let keys = add(registry, &buffer, ALL);
            current.store(u64::from(keys.lkey.0), Ordering::Release);
            while let Err(error) = registry.deregister(keys.lkey) {
                assert_eq!(error, DeregisterError::Busy);
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Release);
    });
    assert_eq!((registry.regions(), registry.windows()), (0, 0));
    assert_eq!(Arc::strong_count(&buffer), 1);
}

/// No window is bound to a region that has been revoked, also if a bind request was being executed.
#[test]
fn binding_during_revoking() {
    let rounds = if cfg!(miri) { 5 } else { 200 };
    let (registry, buffer) = (&Registry::new(23), buffer(64));
    let (current, stop) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let windows: [RKey; 2] =
        std::array::from_fn(|_| registry.allocate_window(PD, WindowKind::Type1).unwrap());
    std::thread::scope(|scope| {
        for window in windows {
            scope.spawn(move || {
                let mut memory = registry;
                while !stop.load(Ordering::Acquire) {
                    let region = LKey(current.load(Ordering::Acquire) as u32);
                    let address = VirtualAddress(BASE);
                    let bind =
                        Bind { window, key: window, region, address, length: 64, access: READ };
                    let bound = memory.bind(BY, &bind);
                    assert!(matches!(bound, Ok(()) | Err(Denied::Key)), "{bound:?}");
                }
            });
        }
        for _ in 0..rounds {
            let keys = add(registry, &buffer, ALL);
            current.store(u64::from(keys.lkey.0), Ordering::Release);
            while registry.query(keys.lkey).is_some_and(|info| info.windows == 0) {
                std::thread::yield_now();
            }
            registry.revoke(keys.lkey).unwrap();
            for window in windows {
                let denied = { registry }.check_remote(BY, remote(window, BASE, 64), READ);
                assert_eq!(denied, Err(Denied::Key));
            }
            // Neither a window nor a bind request that was denied refers to it any more.
            while Arc::strong_count(&buffer) > 1 {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Release);
    });
}

/// The thread that unmaps waits for accesses, and no access waits for it. The memory is the stack of a thread that ends, which the
/// C library gives back to the kernel.
#[cfg(not(miri))]
#[test]
fn stacks_of_threads_that_end_are_unmapped_during_accesses() {
    let registry = &Registry::new(17);
    let (current, stop) = (&AtomicU64::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let memory = registry;
            while !stop.load(Ordering::Acquire) {
                let key = RKey(current.load(Ordering::Acquire) as u32);
                let range = remote(key, 0, 512);
                // No writes: the thread uses its stack until it has ended.
                let results = [
                    memory.check_remote(BY, range, READ),
                    memory.read_remote(BY, range, &mut [0; 512]),
                ];
                let is_expected =
                    |result| matches!(result, Ok(()) | Err(Denied::Key | Denied::Bounds));
                assert!(results.into_iter().all(is_expected), "{results:?}");
            }
        });
        for _ in 0..100 {
            let lends_its_stack = move || {
                let words: [AtomicU64; 64] = std::array::from_fn(|_| AtomicU64::new(0));
                // SAFETY: accesses to the stack of a thread that has ended fail, and nothing else uses it before.
                let range = unsafe { AddressRange::new(words.as_ptr().expose_provenance(), 512) };
                let keys = registry.register(PD, range, VirtualAddress(0), ALL).unwrap();
                current.store(u64::from(keys.rkey.0), Ordering::Release);
                (0..4).for_each(|_| std::thread::yield_now());
                keys
            };
            let keys = scope.spawn(lends_its_stack).join().unwrap();
            registry.deregister(keys.lkey).unwrap();
        }
        stop.store(true, Ordering::Release);
    });
}

/// A check looks for holes, and takes the lock of the list if there are any: not while the thread that adds them waits for it.
#[test]
fn checks_end_while_memory_is_unmapped() {
    let rounds = if cfg!(miri) { 5 } else { 5_000 };
    let registry = &Registry::new(19);
    let words: [AtomicU64; 64] = std::array::from_fn(|_| AtomicU64::new(0));
    let address = words.as_ptr().expose_provenance();
    let (current, stop) = (&AtomicU64::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !stop.load(Ordering::Acquire) {
                let key = RKey(current.load(Ordering::Acquire) as u32);
                let result = { registry }.check_remote(BY, remote(key, 0, 512), READ);
                assert!(matches!(result, Ok(()) | Err(Denied::Key | Denied::Bounds)));
            }
        });
        for _ in 0..rounds {
            // SAFETY: the words outlive the region.
            let range = unsafe { AddressRange::new(address, 512) };
            let keys = registry.register(PD, range, VirtualAddress(0), ALL).unwrap();
            current.store(u64::from(keys.rkey.0), Ordering::Release);
            crate::watch::mark_unmapped(address, 512);
            let denied = { registry }.check_remote(BY, remote(keys.rkey, 0, 512), READ);
            assert_eq!(denied, Err(Denied::Bounds));
            registry.deregister(keys.lkey).unwrap();
        }
        stop.store(true, Ordering::Release);
    });
}
