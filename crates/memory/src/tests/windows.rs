//! Rules of memory windows.

use ferroce_proto::memory::{Bind, Denied, Memory};

use crate::{DeregisterError, WindowError, WindowKind};

use super::*;

const BIND: AccessFlags = AccessFlags::MW_BIND;
const ZERO: AccessFlags = AccessFlags::ZERO_BASED;

fn bind(window: RKey, tag: u8, keys: Keys, (at, length): (u64, u64), access: AccessFlags) -> Bind {
    let key = RKey(window.0 & !0xff | u32::from(tag));
    Bind { window, key, region: keys.lkey, address: VirtualAddress(BASE + at), length, access }
}

#[test]
fn type_1_windows() {
    let (registry, buffer, keys) = setup(256, LOCAL | BIND);
    let mut memory = &registry;
    let window = registry.allocate_window(PD, WindowKind::Type1).unwrap();
    assert_eq!(memory.check_remote(BY, remote(window, BASE + 64, 8), READ), Err(Denied::Key));
    let first = bind(window, 0, keys, (64, 64), READ | WRITE);
    assert_eq!(memory.bind(BY, &first), Ok(()));
    let part = |at, length| remote(first.key, BASE + at, length);
    assert_eq!(memory.write_remote(BY, part(64, 64), &[5; 64]), Ok(()));
    assert!(buffer.to_vec()[64..128].iter().all(|&byte| byte == 5));
    for (at, length) in [(63, 1), (63, 64), (65, 64), (128, 1), (0, 256)] {
        assert_eq!(memory.check_remote(BY, part(at, length), READ), Err(Denied::Bounds));
    }
    assert_eq!(memory.check_remote(BY, part(64, 8), ATOMIC), Err(Denied::Access));
    // Valid for every queue pair of the PD, and no other.
    let other = Accessor { queue_pair: Qpn(0x99), ..BY };
    assert_eq!(memory.check_remote(other, part(64, 8), READ), Ok(()));
    let foreign = Accessor { pd: PdId(8), ..BY };
    assert_eq!(memory.check_remote(foreign, part(64, 8), READ), Err(Denied::PdId));
    // Not valid as an lkey, for invalidation, or as the target of a bind.
    let own = local(LKey(first.key.0), BASE + 64, 8);
    assert_eq!(memory.check_local(PD, own, false), Err(Denied::Key));
    assert_eq!(memory.invalidate(BY, first.key), Err(Denied::Access));
    let itself = Bind { region: LKey(first.key.0), window: first.key, ..first };
    assert_eq!(memory.bind(BY, &itself), Err(Denied::Key));
    assert_eq!(registry.deregister(keys.lkey).err(), Some(DeregisterError::Busy));
    assert_eq!(DeregisterError::Busy.errno(), libc::EBUSY);
    let change = crate::Change::default();
    assert_eq!(registry.reregister(keys.lkey, change).err(), Some(DeregisterError::Busy.into()));
    // Rebinding without invalidation gives another key; the previous one is stale.
    let second = bind(first.key, 1, keys, (0, 8), READ);
    assert_eq!(memory.bind(BY, &second), Ok(()));
    assert_eq!(memory.check_remote(BY, part(64, 8), READ), Err(Denied::Key));
    assert_eq!(memory.check_remote(BY, remote(second.key, BASE, 8), READ), Ok(()));
    assert_eq!(memory.bind(BY, &first), Err(Denied::Key));
    assert_eq!(registry.query(keys.lkey).unwrap().windows, 1);
    // Unbound.
    let third = bind(second.key, 2, keys, (0, 0), NONE);
    assert_eq!(memory.bind(BY, &third), Ok(()));
    assert_eq!(memory.check_remote(BY, remote(third.key, BASE, 8), NONE), Err(Denied::Key));
    registry.deregister(keys.lkey).unwrap();
    // By any of its keys, but no other: the program may not know which binds were executed.
    assert_eq!(registry.deallocate_window(RKey(third.key.0 ^ 0x100)), Err(WindowError::Key));
    assert_eq!(registry.deallocate_window(second.key), Ok(()));
    assert_eq!(registry.deallocate_window(third.key), Err(WindowError::Key));
    assert_eq!((registry.windows(), registry.regions()), (0, 0));
}

#[test]
fn type_2_windows() {
    let (registry, buffer, keys) = setup(256, LOCAL | BIND);
    let mut memory = &registry;
    let window = registry.allocate_window(PD, WindowKind::Type2).unwrap();
    assert_eq!(memory.invalidate(BY, window), Err(Denied::Key));
    let empty = bind(window, 1, keys, (0, 0), NONE);
    assert_eq!(memory.bind(BY, &empty), Err(Denied::Access));
    let first = bind(window, 1, keys, (64, 64), READ | WRITE | ZERO);
    assert_eq!(memory.bind(BY, &first), Ok(()));
    // Zero-based: addresses start at 0.
    assert_eq!(memory.write_remote(BY, remote(first.key, 1, 63), &[5; 63]), Ok(()));
    assert_eq!(buffer.to_vec()[63..66], [0, 0, 5]);
    assert_eq!(memory.check_remote(BY, remote(first.key, 1, 64), READ), Err(Denied::Bounds));
    assert_eq!(memory.check_remote(BY, remote(first.key, BASE + 64, 8), READ), Err(Denied::Bounds));
    // Valid for the queue pair that bound it only.
    let other = Accessor { queue_pair: Qpn(0x99), ..BY };
    assert_eq!(memory.check_remote(other, remote(first.key, 0, 8), READ), Err(Denied::Key));
    assert_eq!(memory.invalidate(other, first.key), Err(Denied::Key));
    // Cannot be bound again before it is invalidated.
    let second = bind(first.key, 2, keys, (0, 8), READ);
    assert_eq!(memory.bind(BY, &second), Err(Denied::Access));
    assert_eq!(registry.query(keys.lkey).unwrap().windows, 1);
    assert_eq!(memory.invalidate(BY, first.key), Ok(()));
    assert_eq!(memory.check_remote(BY, remote(first.key, 0, 8), READ), Err(Denied::Key));
    assert_eq!(memory.invalidate(BY, first.key), Err(Denied::Key));
    assert_eq!(memory.bind(other, &second), Ok(()));
    assert_eq!(memory.check_remote(other, remote(second.key, BASE, 8), READ), Ok(()));
    // Deallocating a bound window unbinds it from the region.
    assert_eq!(registry.deallocate_window(second.key), Ok(()));
    assert_eq!(registry.deregister(keys.lkey), Ok(()));
}

#[test]
fn invalid_binds_are_denied() {
    let (registry, buffer, keys) = setup(256, LOCAL | BIND);
    let mut memory = &registry;
    let first = registry.allocate_window(PD, WindowKind::Type1).unwrap();
    let second = registry.allocate_window(PD, WindowKind::Type2).unwrap();
    let denied = |expected, by, bind: &Bind| {
        assert_eq!((&registry).bind(by, bind), Err(expected), "{bind:?}");
    };
    let good = bind(second, 1, keys, (0, 8), READ);
    denied(Denied::Key, BY, &Bind { key: RKey(good.key.0 ^ 0x100), ..good });
    denied(Denied::Key, BY, &Bind { window: RKey(second.0 ^ 1), ..good });
    denied(Denied::Key, BY, &Bind { region: LKey(keys.lkey.0 ^ 1), ..good });
    let itself = RKey(keys.rkey.0);
    denied(Denied::Key, BY, &Bind { window: itself, key: itself, ..good });
    denied(Denied::PdId, Accessor { pd: PdId(8), ..BY }, &good);
    denied(Denied::Bounds, BY, &Bind { length: 257, ..good });
    denied(Denied::Bounds, BY, &Bind { address: VirtualAddress(BASE - 1), ..good });
    denied(Denied::Access, BY, &Bind { access: READ | LOCAL, ..good });
    denied(Denied::Access, BY, &bind(first, 1, keys, (0, 8), READ | ZERO));
    let plain = add(&registry, &buffer, LOCAL);
    denied(Denied::Access, BY, &Bind { region: plain.lkey, ..good });
    let readable = add(&registry, &buffer, BIND);
    denied(Denied::Access, BY, &Bind { region: readable.lkey, access: WRITE, ..good });
    denied(Denied::Access, BY, &Bind { region: readable.lkey, access: ATOMIC, ..good });
    assert_eq!(memory.bind(BY, &Bind { region: readable.lkey, ..good }), Ok(()));
    assert_eq!(memory.invalidate(BY, good.key), Ok(()));
    let based =
        registry.register_buffer(PD, &buffer, 0, 8, VirtualAddress(0), BIND | ZERO).unwrap();
    denied(Denied::Access, BY, &Bind { region: based.lkey, address: VirtualAddress(0), ..good });
    // No denied bind was counted.
    for keys in [keys, plain, readable, based] {
        assert_eq!(registry.query(keys.lkey).unwrap().windows, 0);
        assert_eq!(memory.invalidate(BY, keys.rkey), Err(Denied::Access));
        registry.deregister(keys.lkey).unwrap();
    }
}

#[test]
fn revoking_a_region_unbinds_its_windows() {
    let (registry, buffer, keys) = setup(256, ALL);
    let mut memory = &registry;
    let other = add(&registry, &buffer, ALL);
    let binds = [WindowKind::Type1, WindowKind::Type2, WindowKind::Type1]
        .map(|kind| registry.allocate_window(PD, kind).unwrap())
        .map(|window| bind(window, 1, keys, (0, 8), WRITE));
    let of_other = Bind { region: other.lkey, ..binds[2] };
    for bind in [binds[0], binds[1], of_other] {
        assert_eq!(memory.bind(BY, &bind), Ok(()));
    }
    assert_eq!(registry.deregister(keys.lkey), Err(DeregisterError::Busy));
    assert_eq!(registry.revoke(keys.lkey), Ok(()));
    for key in [keys.rkey, binds[0].key, binds[1].key] {
        assert_eq!(memory.write_remote(BY, remote(key, BASE, 8), &[1; 8]), Err(Denied::Key));
    }
    assert_eq!(memory.write_remote(BY, remote(of_other.key, BASE, 8), &[2; 8]), Ok(()));
    assert_eq!(registry.revoke(keys.lkey), Err(DeregisterError::Key));
    assert_eq!(memory.bind(BY, &Bind { window: binds[0].key, ..binds[0] }), Err(Denied::Key));
    // They can be bound again.
    for first in &binds[..2] {
        let again = Bind { window: first.key, region: other.lkey, ..*first };
        assert_eq!(memory.bind(BY, &again), Ok(()));
    }
    assert_eq!(registry.query(other.lkey).unwrap().windows, 3);
    // The buffer was given back with the region.
    assert_eq!(std::sync::Arc::strong_count(&buffer), 2);
}

#[test]
fn a_destroyed_queue_pair_unbinds_its_type_2_windows() {
    let (registry, _buffer, keys) = setup(256, LOCAL | BIND);
    let mut memory = &registry;
    let binds = [WindowKind::Type1, WindowKind::Type2, WindowKind::Type2]
        .map(|kind| bind(registry.allocate_window(PD, kind).unwrap(), 1, keys, (0, 8), READ));
    let other = Accessor { queue_pair: Qpn(0x99), ..BY };
    assert_eq!(memory.bind(BY, &binds[0]), Ok(()));
    assert_eq!(memory.bind(BY, &binds[1]), Ok(()));
    assert_eq!(memory.bind(other, &binds[2]), Ok(()));
    registry.forget_queue_pair(BY.queue_pair);
    let check = |by, bind: &Bind| (&registry).check_remote(by, remote(bind.key, BASE, 8), READ);
    assert_eq!(check(BY, &binds[0]), Ok(()));
    assert_eq!(check(BY, &binds[1]), Err(Denied::Key));
    assert_eq!(check(other, &binds[2]), Ok(()));
    assert_eq!(registry.query(keys.lkey).unwrap().windows, 2);
}
