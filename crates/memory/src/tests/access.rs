//! Random accesses compared with a model: denied accesses change nothing, and allowed ones access exactly their range.

use ferroce_proto::memory::{Atomic, Denied, Memory};
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Operation {
    CheckLocal(bool),
    ReadLocal,
    WriteLocal,
    CheckRemote(AccessFlags),
    ReadRemote,
    WriteRemote,
    Atomic(Atomic),
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    operation: Operation,
    /// Relative to the first address of the region.
    at: i64,
    length: u32,
    right_pd: bool,
    right_key: bool,
}

const GUARD: usize = 64;
const LENGTH: usize = 200;

fn flags() -> impl Strategy<Value = AccessFlags> {
    (0u32..32)
        .prop_map(AccessFlags::from_bits_retain)
        .prop_filter("as registering requires", |access| {
            !access.intersects(WRITE | ATOMIC) || access.contains(LOCAL)
        })
}

fn attempts() -> impl Strategy<Value = Attempt> {
    let operation = prop_oneof![
        any::<bool>().prop_map(Operation::CheckLocal),
        Just(Operation::ReadLocal),
        Just(Operation::WriteLocal),
        prop_oneof![Just(READ), Just(WRITE), Just(ATOMIC), Just(AccessFlags::FLUSH_GLOBAL)]
            .prop_map(Operation::CheckRemote),
        Just(Operation::ReadRemote),
        Just(Operation::WriteRemote),
        any::<u64>().prop_map(|value| Operation::Atomic(Atomic::FetchAdd(value))),
        any::<u64>().prop_map(|value| Operation::Atomic(Atomic::Write(value))),
        any::<u64>().prop_map(|swap| Operation::Atomic(Atomic::CompareSwap { compare: 0, swap })),
    ];
    let at = prop_oneof![
        0i64..LENGTH as i64,
        (0i64..LENGTH as i64 / 8).prop_map(|word| word * 8),
        -16i64..0,
        LENGTH as i64 - 8..LENGTH as i64 + 16,
        Just(i64::MAX),
        Just(i64::MIN),
    ];
    let length = prop_oneof![0u32..LENGTH as u32 + 9, Just(8), Just(u32::MAX)];
    (operation, at, length, prop::bool::weighted(0.9), prop::bool::weighted(0.9)).prop_map(
        |(operation, at, length, right_pd, right_key)| Attempt {
            operation,
            at,
            length,
            right_pd,
            right_key,
        },
    )
}

/// The rules of the specification, in arithmetic that cannot overflow.
fn expected_result(attempt: &Attempt, access: AccessFlags) -> Result<Option<usize>, Denied> {
    let needed = match attempt.operation {
        Operation::CheckLocal(true) | Operation::WriteLocal => LOCAL,
        Operation::CheckLocal(false) | Operation::ReadLocal => NONE,
        Operation::CheckRemote(access) => access,
        Operation::ReadRemote => READ,
        Operation::WriteRemote | Operation::Atomic(Atomic::Write(_)) => WRITE,
        Operation::Atomic(_) => ATOMIC,
    };
    let atomic = matches!(attempt.operation, Operation::Atomic(_));
    let address = BASE.wrapping_add_signed(attempt.at);
    let length = if atomic { 8 } else { i128::from(attempt.length) };
    if atomic && address % 8 != 0 {
        return Err(Denied::Alignment);
    }
    if length == 0 {
        return Ok(None);
    }
    if !attempt.right_key {
        return Err(Denied::Key);
    }
    if !attempt.right_pd {
        return Err(Denied::PdId);
    }
    if !access.contains(needed) {
        return Err(Denied::Access);
    }
    let start = i128::from(address) - i128::from(BASE);
    if start < 0 || start + length > LENGTH as i128 {
        return Err(Denied::Bounds);
    }
    Ok(Some(GUARD + start as usize))
}

fn run(access: AccessFlags, attempts: &[Attempt]) -> Result<(), TestCaseError> {
    let registry = Registry::new(3);
    let buffer = buffer(GUARD + LENGTH + GUARD);
    let mut model: Vec<u8> = (0..buffer.len()).map(|at| at as u8 ^ 0x5a).collect();
    buffer.write(0, &model).unwrap();
    let iova = VirtualAddress(BASE);
    let keys = registry.register_buffer(PD, &buffer, GUARD, LENGTH, iova, access).unwrap();
    let mut memory = &registry;
    for attempt in attempts {
        let pd = if attempt.right_pd { PD } else { PdId(8) };
        let by = Accessor { pd, ..BY };
        let key = if attempt.right_key { keys.lkey.0 } else { keys.lkey.0 ^ 0x40 };
        let address = BASE.wrapping_add_signed(attempt.at);
        let (own, peers) =
            (local(LKey(key), address, attempt.length), remote(RKey(key), address, attempt.length));
        let expected = expected_result(attempt, access);
        // An SGE of gigabytes has no buffer to copy from or to.
        let size = if attempt.length == u32::MAX { continue } else { attempt.length as usize };
        let data: Vec<u8> = (0..size).map(|at| (at as u8).wrapping_mul(31)).collect();
        let mut out = vec![0xee; size];
        let result = match attempt.operation {
            Operation::CheckLocal(write) => memory.check_local(pd, own, write),
            Operation::ReadLocal => memory.read_local(pd, own, &mut out),
            Operation::WriteLocal => memory.write_local(pd, own, &data),
            Operation::CheckRemote(access) => memory.check_remote(by, peers, access),
            Operation::ReadRemote => memory.read_remote(by, peers, &mut out),
            Operation::WriteRemote => memory.write_remote(by, peers, &data),
            Operation::Atomic(atomic) => memory.atomic(by, peers, atomic).map(|original| {
                let at = expected.ok().flatten().unwrap();
                let there: [u8; 8] = model[at..at + 8].try_into().unwrap();
                assert_eq!(original, u64::from_ne_bytes(there));
                model[at..at + 8].copy_from_slice(&atomic.apply(original).to_ne_bytes());
            }),
        };
        prop_assert_eq!(result, expected.map(drop), "{:?}", attempt);
        match (attempt.operation, expected) {
            (Operation::ReadLocal | Operation::ReadRemote, Ok(Some(at))) => {
                prop_assert_eq!(&out, &model[at..at + size]);
            }
            (Operation::ReadLocal | Operation::ReadRemote, _) => {
                prop_assert!(out.iter().all(|&byte| byte == 0xee));
            }
            (Operation::WriteLocal | Operation::WriteRemote, Ok(Some(at))) => {
                model[at..at + size].copy_from_slice(&data);
            }
            _ => {}
        }
        prop_assert_eq!(buffer.to_vec(), &*model);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    #[test]
    fn accesses_match_the_model(access in flags(), attempts in prop::collection::vec(attempts(), 1..40)) {
        run(access, &attempts)?;
    }
}

#[test]
fn mismatched_lengths_are_denied() {
    let (registry, buffer, keys) = setup(64, ALL);
    let mut memory = &registry;
    let mut out = [0xee; 8];
    for length in [0, 7, 9] {
        let (own, peers) = (local(keys.lkey, BASE, length), remote(keys.rkey, BASE, length));
        assert_eq!(memory.read_local(PD, own, &mut out), Err(Denied::Bounds));
        assert_eq!(memory.read_remote(BY, peers, &mut out), Err(Denied::Bounds));
        assert_eq!(memory.write_remote(BY, peers, &[1; 8]), Err(Denied::Bounds));
    }
    assert_eq!(out, [0xee; 8]);
    assert_eq!(memory.write_local(PD, local(keys.lkey, BASE, 7), &[1; 8]), Err(Denied::Bounds));
    assert_eq!(buffer.to_vec(), [0; 64]);
    // The start of an SGE that extends beyond the region.
    assert_eq!(memory.write_local(PD, local(keys.lkey, BASE, 900), &[1; 8]), Ok(()));
    assert_eq!(buffer.to_vec()[..9], [1, 1, 1, 1, 1, 1, 1, 1, 0]);
}

#[test]
fn combined_access_flags_are_checked() {
    let access = LOCAL | READ | AccessFlags::FLUSH_GLOBAL | AccessFlags::RELAXED_ORDERING;
    let (registry, _buffer, keys) = setup(64, access);
    let (memory, sge) = (&registry, remote(keys.rkey, BASE, 64));
    let both = AccessFlags::FLUSH_GLOBAL | AccessFlags::FLUSH_PERSISTENT;
    assert_eq!(memory.check_remote(BY, sge, AccessFlags::FLUSH_GLOBAL), Ok(()));
    assert_eq!(memory.check_remote(BY, sge, READ | AccessFlags::FLUSH_GLOBAL), Ok(()));
    assert_eq!(memory.check_remote(BY, sge, both), Err(Denied::Access));
    assert_eq!(memory.check_remote(BY, sge, NONE), Ok(()));
}

/// Memory is not persistent here, so neither regions nor windows allow a flush to persistence.
#[test]
fn flush_to_persistence_is_refused() {
    let persistent = LOCAL | AccessFlags::FLUSH_PERSISTENT;
    let (registry, buffer, keys) = setup(64, ALL);
    let iova = VirtualAddress(BASE);
    let refused = registry.register_buffer(PD, &buffer, 0, 64, iova, persistent);
    assert_eq!(refused, Err(crate::RegisterError::Persistence));
    assert_eq!(crate::RegisterError::Persistence.errno(), libc::EOPNOTSUPP);
    let window = registry.allocate_window(PD, crate::WindowKind::Type2).unwrap();
    let bind = ferroce_proto::memory::Bind {
        window,
        key: window,
        region: keys.lkey,
        address: iova,
        length: 64,
        access: AccessFlags::FLUSH_PERSISTENT,
    };
    assert_eq!((&registry).bind(BY, &bind), Err(Denied::Access));
    let global = ferroce_proto::memory::Bind { access: AccessFlags::FLUSH_GLOBAL, ..bind };
    assert_eq!((&registry).bind(BY, &global), Ok(()));
    // A key alone, without an address.
    let memory = &registry;
    assert_eq!(memory.check_remote_key(BY, window, AccessFlags::FLUSH_GLOBAL), Ok(()));
    assert_eq!(memory.check_remote_key(BY, window, READ), Err(Denied::Access));
    assert_eq!(memory.check_remote_key(BY, keys.rkey, READ), Ok(()));
    let flush = AccessFlags::FLUSH_GLOBAL;
    assert_eq!(memory.check_remote_key(BY, keys.rkey, flush), Err(Denied::Access));
    let stranger = Accessor { pd: PdId(8), ..BY };
    assert_eq!(memory.check_remote_key(stranger, keys.rkey, READ), Err(Denied::PdId));
    assert_eq!(memory.check_remote_key(BY, RKey(keys.rkey.0 ^ 0x100), READ), Err(Denied::Key));
}

/// An aligned remote address may map to a local address that is not aligned.
#[test]
fn atomics_require_an_aligned_address() {
    let (registry, buffer) = (Registry::new(1), buffer(64));
    let keys = registry.register_buffer(PD, &buffer, 4, 32, VirtualAddress(BASE), ALL).unwrap();
    let add = Atomic::FetchAdd(1);
    let mut memory = &registry;
    assert_eq!(memory.atomic(BY, remote(keys.rkey, BASE, 8), add), Err(Denied::Alignment));
    assert_eq!(memory.atomic(BY, remote(keys.rkey, BASE + 4, 8), add), Err(Denied::Alignment));
    assert_eq!(buffer.to_vec(), [0; 64]);
}
