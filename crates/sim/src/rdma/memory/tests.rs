//! Keys, PDs, bounds, access flags and windows.

use super::*;

const ALL: AccessFlags = REMOTE.union(AccessFlags::LOCAL_WRITE).union(AccessFlags::MW_BIND);
const WRITE: AccessFlags = AccessFlags::REMOTE_WRITE;

fn by(qpn: u32) -> Accessor {
    Accessor { pd: PD, queue_pair: Qpn(qpn) }
}

fn sge(key: u32, at: u64, length: u32) -> RemoteRange {
    RemoteRange { key: RKey(key), address: VirtualAddress(BASE + at), length }
}

fn bind(window: u32, key: u32, at: u64, length: u64) -> Bind {
    Bind {
        window: RKey(window),
        key: RKey(key),
        region: LKey(super::key(0)),
        address: VirtualAddress(BASE + at),
        length,
        access: AccessFlags::REMOTE_READ,
    }
}

#[test]
fn regions_check_key_pd_access_and_bounds() {
    let mut memory = Regions::default();
    memory.add(vec![0; 64], PD, ALL);
    memory.add(vec![0; 64], OTHER_PD, ALL);
    memory.add(vec![0; 64], PD, AccessFlags::default());
    let check =
        |region, at, length| memory.check_remote(by(1), sge(key(region), at, length), WRITE);
    assert_eq!(check(0, 0, 64), Ok(()));
    assert_eq!(check(0, 1, 64), Err(Denied::Bounds));
    assert_eq!(check(0, u64::MAX - BASE, 64), Err(Denied::Bounds));
    assert_eq!(check(1, 0, 1), Err(Denied::PdId));
    assert_eq!(check(2, 0, 1), Err(Denied::Access));
    assert_eq!(check(3, 0, 1), Err(Denied::Key));
    for wrong in [0, key(0) ^ 1, key(0) | 0x8000_0000, u32::MAX] {
        assert_eq!(memory.check_remote(by(1), sge(wrong, 0, 1), WRITE), Err(Denied::Key));
    }
    assert_eq!(memory.write_local(PD, local(2, 0, 1), &[1]), Err(Denied::Access));
    assert_eq!(memory.write_local(PD, local(0, 0, 1), &[1, 2]), Err(Denied::Bounds));
    let unaligned = memory.atomic(by(1), sge(key(0), 4, 8), Atomic::FetchAdd(1));
    assert_eq!(unaligned, Err(Denied::Alignment));
    assert_eq!(memory.invalidate(by(1), RKey(key(0))), Err(Denied::Key));
}

#[test]
fn a_type_2_window_is_accessible_to_one_qp() {
    let mut memory = Regions::default();
    memory.add(vec![7; 64], PD, ALL);
    let window = memory.add_window(PD, true).0;
    let key = window | 5;
    let read =
        |memory: &Regions, qpn, key, at| memory.read_remote(by(qpn), sge(key, at, 8), &mut [0; 8]);
    assert_eq!(read(&memory, 1, window, 8), Err(Denied::Key), "not bound");
    assert_eq!(memory.bind(by(1), &bind(window, key ^ 0x100, 8, 16)), Err(Denied::Key));
    assert_eq!(memory.bind(by(1), &bind(window, key, 56, 16)), Err(Denied::Bounds));
    assert_eq!(memory.bind(by(1), &bind(window, key, 8, 16)), Ok(()));
    assert_eq!(read(&memory, 1, key, 8), Ok(()));
    assert_eq!(read(&memory, 1, key, 16), Ok(()));
    assert_eq!(read(&memory, 1, key, 17), Err(Denied::Bounds));
    assert_eq!(read(&memory, 1, key, 7), Err(Denied::Bounds));
    assert_eq!(read(&memory, 2, key, 8), Err(Denied::Key), "another queue pair");
    assert_eq!(read(&memory, 1, window, 8), Err(Denied::Key), "the former key");
    assert_eq!(memory.write_remote(by(1), sge(key, 8, 1), &[1]), Err(Denied::Access));
    assert_eq!(memory.bind(by(1), &bind(key, key, 8, 8)), Err(Denied::Access), "already bound");
    assert_eq!(memory.invalidate(by(2), RKey(key)), Err(Denied::Key));
    assert_eq!(memory.invalidate(by(1), RKey(key)), Ok(()));
    assert_eq!(read(&memory, 1, key, 8), Err(Denied::Key), "invalidated");
    assert_eq!(memory.invalidate(by(1), RKey(key)), Err(Denied::Key));
    assert_eq!(memory.bind(by(2), &bind(key, key ^ 1, 0, 8)), Ok(()));
    assert_eq!(read(&memory, 2, key ^ 1, 0), Ok(()));
}

#[test]
fn a_type_1_window_is_accessible_to_all_qps_and_can_be_rebound() {
    let mut memory = Regions::default();
    memory.add(vec![7; 64], PD, ALL);
    memory.add(vec![7; 64], PD, REMOTE);
    let window = memory.add_window(PD, false).0;
    memory.bind(by(1), &bind(window, window | 1, 0, 8)).unwrap();
    let read =
        |memory: &Regions, qpn, key| memory.read_remote(by(qpn), sge(key, 0, 8), &mut [0; 8]);
    assert_eq!(read(&memory, 1, window | 1), Ok(()));
    assert_eq!(read(&memory, 2, window | 1), Ok(()));
    assert_eq!(memory.invalidate(by(1), RKey(window | 1)), Err(Denied::Key));
    memory.bind(by(1), &bind(window | 1, window | 2, 0, 8)).unwrap();
    assert_eq!(read(&memory, 1, window | 1), Err(Denied::Key));
    assert_eq!(read(&memory, 1, window | 2), Ok(()));
    // A window of length 0 allows no access.
    memory.bind(by(1), &bind(window | 2, window | 3, 0, 0)).unwrap();
    assert_eq!(read(&memory, 1, window | 3), Err(Denied::Key));
    let none = Bind { region: LKey(key(1)), ..bind(window | 3, window | 4, 0, 8) };
    assert_eq!(memory.bind(by(1), &none), Err(Denied::Access), "a region that allows no windows");
}
