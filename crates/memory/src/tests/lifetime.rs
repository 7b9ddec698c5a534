//! Registering, reregistering and deregistering.

use std::sync::Weak;

use ferroce_proto::memory::{Denied, Memory};

use crate::{AddressRange, Change, DeregisterError, Kind, RegisterError};

use super::*;

#[test]
fn dropping_the_registry_frees_all_buffers() {
    let registry = Registry::new(1);
    let mut buffers: Vec<Weak<Buffer>> = Vec::new();
    for round in 0..100 {
        let buffer = buffer(4096);
        let keys = add(&registry, &buffer, ALL);
        buffers.push(Arc::downgrade(&buffer));
        if round % 3 == 0 {
            registry.deregister(keys.lkey).unwrap();
        }
    }
    assert_eq!(registry.regions(), 66);
    let live = |buffers: &[Weak<Buffer>]| buffers.iter().filter(|b| b.strong_count() > 0).count();
    assert_eq!(live(&buffers), 66);
    drop(registry);
    assert_eq!(live(&buffers), 0);
}

#[test]
fn invalid_registrations_fail() {
    let (registry, buffer) = (Registry::new(1), buffer(4096));
    let register = |address, length, iova, access| {
        // SAFETY: the memory is not accessed.
        let range = unsafe { AddressRange::new(address, length) };
        registry.register(PD, range, VirtualAddress(iova), access)
    };
    let at = buffer.address();
    for access in [WRITE, ATOMIC, WRITE | READ, LOCAL | AccessFlags::from_bits_retain(1 << 15)] {
        assert_eq!(register(at, 64, 0, access), Err(RegisterError::Access));
    }
    assert_eq!(RegisterError::Access.errno(), libc::EINVAL);
    assert_eq!(register(0, 64, 0, LOCAL), Err(RegisterError::Fault));
    assert_eq!(register(at, usize::MAX, 0, LOCAL), Err(RegisterError::Range));
    assert_eq!(register(at, 64, u64::MAX - 62, LOCAL), Err(RegisterError::Range));
    assert_eq!(registry.regions(), 0);
    let last = register(at, 64, u64::MAX - 64, LOCAL).unwrap();
    let ok = (&registry).check_local(PD, local(last.lkey, u64::MAX - 64, 64), true);
    assert_eq!(ok, Ok(()));
    let over = (&registry).check_local(PD, local(last.lkey, u64::MAX - 63, 64), true);
    assert_eq!(over, Err(Denied::Bounds));
    let empty = register(at, 0, at as u64, LOCAL).unwrap();
    let denied = (&registry).check_local(PD, local(empty.lkey, at as u64, 1), false);
    assert_eq!(denied, Err(Denied::Bounds));
    // Unknown optional flags are ignored.
    assert!(register(at, 64, 0, LOCAL | AccessFlags::from_bits_retain(1 << 25)).is_ok());
    let outside = registry.register_buffer(PD, &buffer, 1, 4096, VirtualAddress(0), LOCAL);
    assert_eq!(outside, Err(RegisterError::Range));
}

#[test]
fn a_zero_based_region_starts_at_address_0() {
    let (registry, buffer) = (Registry::new(1), buffer(64));
    let access = ALL | AccessFlags::ZERO_BASED;
    let keys = add(&registry, &buffer, access);
    let mut memory = &registry;
    assert_eq!(memory.write_remote(BY, remote(keys.rkey, 60, 4), &[9; 4]), Ok(()));
    assert_eq!(memory.write_remote(BY, remote(keys.rkey, 61, 4), &[9; 4]), Err(Denied::Bounds));
    assert_eq!(buffer.to_vec()[58..], [0, 0, 9, 9, 9, 9]);
}

#[test]
fn reregistering_changes_access_and_pd() {
    let (registry, _buffer, keys) = setup(64, LOCAL);
    let sge = remote(keys.rkey, BASE, 8);
    assert_eq!((&registry).check_remote(BY, sge, READ), Err(Denied::Access));
    let change = |change: Change| registry.reregister(keys.lkey, change);
    change(Change { access: Some(LOCAL | READ), ..Change::default() }).unwrap();
    assert_eq!((&registry).check_remote(BY, sge, READ), Ok(()));
    let bad = change(Change { access: Some(WRITE), ..Change::default() });
    assert_eq!(bad.unwrap_err().errno(), libc::EINVAL);
    assert_eq!((&registry).check_remote(BY, sge, READ), Ok(()));
    change(Change { pd: Some(PdId(9)), ..Change::default() }).unwrap();
    assert_eq!((&registry).check_remote(BY, sge, READ), Err(Denied::PdId));
    let info = registry.query(keys.lkey).unwrap();
    assert_eq!((info.pd, info.length, info.iova.0), (PdId(9), 64, BASE));
    registry.deregister(keys.lkey).unwrap();
    assert_eq!(change(Change::default()).unwrap_err(), DeregisterError::Key.into());
}

#[test]
fn a_null_region_discards_writes_and_reads_zeroes() {
    let registry = Registry::new(1);
    let keys = registry.register_null(PD).unwrap();
    let mut out = [0xee; 40];
    let mut memory = &registry;
    for address in [0, 12_345, u64::MAX - 40] {
        let sge = local(keys.lkey, address, 40);
        assert_eq!(memory.write_local(PD, sge, &[1; 40]), Ok(()));
        out.fill(0xee);
        assert_eq!(memory.read_local(PD, sge, &mut out), Ok(()));
        assert_eq!(out, [0; 40]);
    }
    let denied = memory.check_remote(BY, remote(keys.rkey, 0, 8), READ);
    assert_eq!(denied, Err(Denied::Access));
    assert_eq!(registry.query(keys.lkey).unwrap().kind, Kind::Null);
    let pd = Change { pd: Some(PdId(8)), ..Change::default() };
    registry.reregister(keys.lkey, pd).unwrap();
    let sge = local(keys.lkey, 5, 40);
    assert_eq!(memory.check_local(PdId(8), sge, true), Ok(()));
}

#[test]
fn the_program_copies_by_offset() {
    let registry = Registry::new(1);
    let words: [std::sync::atomic::AtomicU64; 8] = Default::default();
    let address = words.as_ptr().expose_provenance();
    let register = |access| {
        // SAFETY: they outlive the registry's use.
        let range = unsafe { AddressRange::new(address + 8, 48) };
        registry.register(PD, range, VirtualAddress(BASE), access).unwrap().lkey
    };
    let [writable, readable] = [LOCAL, NONE].map(register);
    assert_eq!(registry.copy_in(writable, 40, &[5; 8]), Ok(()));
    assert_eq!(words[6].load(std::sync::atomic::Ordering::Relaxed), 0x0505_0505_0505_0505);
    assert_eq!(registry.copy_in(writable, 41, &[5; 8]), Err(Denied::Bounds));
    assert_eq!(registry.copy_in(writable, u64::MAX, &[5; 8]), Err(Denied::Bounds));
    assert_eq!(registry.copy_in(readable, 0, &[5; 8]), Err(Denied::Access));
    let mut out = [0; 9];
    assert_eq!(registry.copy_out(readable, 39, &mut out), Ok(()));
    assert_eq!(out, [0, 5, 5, 5, 5, 5, 5, 5, 5]);
    assert_eq!(registry.copy_out(readable, 40, &mut out), Err(Denied::Bounds));
    // A part that is unmapped cannot be copied.
    crate::watch::mark_unmapped(address + 16, 8);
    assert_eq!(registry.copy_out(readable, 0, &mut out), Err(Denied::Bounds));
    assert_eq!(registry.copy_out(readable, 16, &mut out), Ok(()));
    registry.deregister(writable).unwrap();
    assert_eq!(registry.copy_out(writable, 0, &mut out), Err(Denied::Key));
}

/// Also without the lock-free path, which a thread cannot take while it has another access.
#[test]
fn marking_a_part_as_unmapped_denies_access_to_it_only() {
    let (registry, _buffer, keys) = setup(4096, ALL);
    let window = registry.allocate_window(PD, crate::WindowKind::Type2).unwrap();
    let bind = ferroce_proto::memory::Bind {
        window,
        key: window,
        region: keys.lkey,
        address: VirtualAddress(BASE),
        length: 4096,
        access: READ | WRITE,
    };
    assert_eq!((&registry).bind(BY, &bind), Ok(()));
    registry.mark_unmapped(keys.lkey, 100, 50).unwrap();
    for key in [keys.rkey, window] {
        let read = |at, length: u32| {
            let mut out = vec![0; length as usize];
            (&registry).read_remote(BY, remote(key, BASE + at, length), &mut out)
        };
        assert_eq!(read(0, 100), Ok(()));
        assert_eq!(read(150, 100), Ok(()));
        assert_eq!(read(0, 101), Err(Denied::Bounds));
        assert_eq!(read(149, 1), Err(Denied::Bounds));
        assert_eq!(
            (&registry).check_remote(BY, remote(key, BASE + 120, 1), WRITE),
            Err(Denied::Bounds)
        );
    }
    registry.mark_unmapped(keys.lkey, 4000, u64::MAX).unwrap();
    let sge = |at, length| local(keys.lkey, BASE + at, length);
    assert_eq!((&registry).read_local(PD, sge(4000, 1), &mut [0]), Err(Denied::Bounds));
    assert_eq!((&registry).read_local(PD, sge(3999, 1), &mut [0]), Ok(()));
    registry.deregister(keys.lkey).unwrap_err();
    registry.revoke(keys.lkey).unwrap();
    assert_eq!(registry.mark_unmapped(keys.lkey, 0, 1), Err(DeregisterError::Key));
}

#[test]
fn a_small_registry_has_few_slots() {
    let registry = Registry::small(1, 100);
    let keys: Vec<_> = std::iter::from_fn(|| registry.register_null(PD).ok()).collect();
    assert_eq!(keys.len(), 128, "whole chunks");
    assert_eq!(registry.register_null(PD), Err(RegisterError::Full));
    registry.deregister(keys[5].lkey).unwrap();
    let again = registry.register_null(PD).unwrap();
    assert_ne!(again, keys[5]);
    // The slot of a key may be beyond the last one.
    assert!(registry.query(LKey(keys[5].lkey.0 | 0x3ff_ff00)).is_none());
}
