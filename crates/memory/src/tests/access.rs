//! Every access against an oracle: what is denied touches nothing, and what is allowed touches what it names.

use ferroce_proto::memory::{Atomic, Denied, Memory};
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Do {
    CheckLocal(bool),
    ReadLocal,
    WriteLocal,
    CheckRemote(AccessFlags),
    ReadRemote,
    WriteRemote,
    Atomic(Atomic),
    Pin(bool),
}

#[derive(Clone, Copy, Debug)]
struct Try {
    what: Do,
    /// Relative to the region's first address.
    at: i64,
    length: u32,
    right_domain: bool,
    right_key: bool,
}

const GUARD: usize = 64;
const LENGTH: usize = 200;

fn flags() -> impl Strategy<Value = AccessFlags> {
    (0u32..32)
        .prop_map(AccessFlags::from_bits_retain)
        .prop_filter("as registering demands", |access| {
            !access.intersects(WRITE | ATOMIC) || access.contains(LOCAL)
        })
}

fn tries() -> impl Strategy<Value = Try> {
    let what = prop_oneof![
        any::<bool>().prop_map(Do::CheckLocal),
        Just(Do::ReadLocal),
        Just(Do::WriteLocal),
        prop_oneof![Just(READ), Just(WRITE), Just(ATOMIC), Just(AccessFlags::FLUSH_GLOBAL)]
            .prop_map(Do::CheckRemote),
        Just(Do::ReadRemote),
        Just(Do::WriteRemote),
        any::<u64>().prop_map(|value| Do::Atomic(Atomic::FetchAdd(value))),
        any::<u64>().prop_map(|value| Do::Atomic(Atomic::Write(value))),
        any::<u64>().prop_map(|swap| Do::Atomic(Atomic::CompareSwap { compare: 0, swap })),
        any::<bool>().prop_map(Do::Pin),
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
    (what, at, length, prop::bool::weighted(0.9), prop::bool::weighted(0.9)).prop_map(
        |(what, at, length, right_domain, right_key)| Try {
            what,
            at,
            length,
            right_domain,
            right_key,
        },
    )
}

/// What the specification says, on its own terms: numbers that cannot overflow.
fn verdict(attempt: &Try, access: AccessFlags) -> Result<Option<usize>, Denied> {
    let needed = match attempt.what {
        Do::CheckLocal(true) | Do::WriteLocal | Do::Pin(true) => LOCAL,
        Do::CheckLocal(false) | Do::ReadLocal | Do::Pin(false) => NONE,
        Do::CheckRemote(access) => access,
        Do::ReadRemote => READ,
        Do::WriteRemote | Do::Atomic(Atomic::Write(_)) => WRITE,
        Do::Atomic(_) => ATOMIC,
    };
    let atomic = matches!(attempt.what, Do::Atomic(_));
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
    if !attempt.right_domain {
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

fn run(access: AccessFlags, attempts: &[Try]) -> Result<(), TestCaseError> {
    let registry = Registry::new(3);
    let buffer = buffer(GUARD + LENGTH + GUARD);
    let mut model: Vec<u8> = (0..buffer.len()).map(|at| at as u8 ^ 0x5a).collect();
    buffer.write(0, &model).unwrap();
    let iova = VirtualAddress(BASE);
    let keys = registry.register_buffer(DOMAIN, &buffer, GUARD, LENGTH, iova, access).unwrap();
    let mut memory = &registry;
    for attempt in attempts {
        let pd = if attempt.right_domain { DOMAIN } else { PdId(8) };
        let by = Accessor { pd, ..BY };
        let key = if attempt.right_key { keys.lkey.0 } else { keys.lkey.0 ^ 0x40 };
        let address = BASE.wrapping_add_signed(attempt.at);
        let (own, peers) =
            (local(LKey(key), address, attempt.length), remote(RKey(key), address, attempt.length));
        let expected = verdict(attempt, access);
        // No bytes can be given for a SGE of gigabytes: the verdict alone is asked for then.
        let size = if attempt.length == u32::MAX { continue } else { attempt.length as usize };
        let data: Vec<u8> = (0..size).map(|at| (at as u8).wrapping_mul(31)).collect();
        let mut out = vec![0xee; size];
        let mut pinned = None;
        let result = match attempt.what {
            Do::CheckLocal(write) => memory.check_local(pd, own, write),
            Do::ReadLocal => memory.read_local(pd, own, &mut out),
            Do::WriteLocal => memory.write_local(pd, own, &data),
            Do::CheckRemote(access) => memory.check_remote(by, peers, access),
            Do::ReadRemote => memory.read_remote(by, peers, &mut out),
            Do::WriteRemote => memory.write_remote(by, peers, &data),
            Do::Atomic(what) => memory.atomic(by, peers, what).map(|original| {
                let at = expected.ok().flatten().unwrap();
                let there: [u8; 8] = model[at..at + 8].try_into().unwrap();
                assert_eq!(original, u64::from_ne_bytes(there));
                model[at..at + 8].copy_from_slice(&what.apply(original).to_ne_bytes());
            }),
            Do::Pin(write) => match registry.pin_local(pd, own, write) {
                Ok(pin) => {
                    pinned = Some(pin);
                    Ok(())
                }
                Err(crate::PinError::Denied(denied)) => Err(denied),
                Err(crate::PinError::Copy) => panic!("an ordinary region is pinned"),
            },
        };
        prop_assert_eq!(result, expected.map(drop), "{:?}", attempt);
        match (attempt.what, expected) {
            (Do::ReadLocal | Do::ReadRemote, Ok(Some(at))) => {
                prop_assert_eq!(&out, &model[at..at + size]);
            }
            (Do::ReadLocal | Do::ReadRemote, _) => {
                prop_assert!(out.iter().all(|&byte| byte == 0xee));
            }
            (Do::WriteLocal | Do::WriteRemote, Ok(Some(at))) => {
                model[at..at + size].copy_from_slice(&data);
            }
            (Do::Pin(_), Ok(Some(at))) => {
                let pinned = pinned.unwrap();
                prop_assert_eq!(pinned.len(), size);
                prop_assert_eq!(pinned.as_ptr().addr(), buffer.address() + at);
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
    fn as_the_oracle_says(access in flags(), attempts in prop::collection::vec(tries(), 1..40)) {
        run(access, &attempts)?;
    }
}

#[test]
fn lengths_that_do_not_agree() {
    let (registry, buffer, keys) = setup(64, ALL);
    let mut memory = &registry;
    let mut out = [0xee; 8];
    for length in [0, 7, 9] {
        let (own, peers) = (local(keys.lkey, BASE, length), remote(keys.rkey, BASE, length));
        assert_eq!(memory.read_local(DOMAIN, own, &mut out), Err(Denied::Bounds));
        assert_eq!(memory.read_remote(BY, peers, &mut out), Err(Denied::Bounds));
        assert_eq!(memory.write_remote(BY, peers, &[1; 8]), Err(Denied::Bounds));
    }
    assert_eq!(out, [0xee; 8]);
    assert_eq!(memory.write_local(DOMAIN, local(keys.lkey, BASE, 7), &[1; 8]), Err(Denied::Bounds));
    assert_eq!(buffer.to_vec(), [0; 64]);
    // The start of a longer SGE, though the SGE goes beyond the region.
    assert_eq!(memory.write_local(DOMAIN, local(keys.lkey, BASE, 900), &[1; 8]), Ok(()));
    assert_eq!(buffer.to_vec()[..9], [1, 1, 1, 1, 1, 1, 1, 1, 0]);
}

#[test]
fn flush_and_combined_rights() {
    let access = LOCAL | READ | AccessFlags::FLUSH_GLOBAL | AccessFlags::RELAXED_ORDERING;
    let (registry, _buffer, keys) = setup(64, access);
    let (memory, sge) = (&registry, remote(keys.rkey, BASE, 64));
    let both = AccessFlags::FLUSH_GLOBAL | AccessFlags::FLUSH_PERSISTENT;
    assert_eq!(memory.check_remote(BY, sge, AccessFlags::FLUSH_GLOBAL), Ok(()));
    assert_eq!(memory.check_remote(BY, sge, READ | AccessFlags::FLUSH_GLOBAL), Ok(()));
    assert_eq!(memory.check_remote(BY, sge, both), Err(Denied::Access));
    assert_eq!(memory.check_remote(BY, sge, NONE), Ok(()));
}

/// Nothing here makes memory persistent, so no region and no window lets a peer believe it.
#[test]
fn nobody_may_flush_to_persistence() {
    let persistent = LOCAL | AccessFlags::FLUSH_PERSISTENT;
    let (registry, buffer, keys) = setup(64, ALL);
    let iova = VirtualAddress(BASE);
    let refused = registry.register_buffer(DOMAIN, &buffer, 0, 64, iova, persistent);
    assert_eq!(refused, Err(crate::RegisterError::Persistence));
    assert_eq!(crate::RegisterError::Persistence.errno(), libc::EOPNOTSUPP);
    let window = registry.allocate_window(DOMAIN, crate::WindowKind::Type2).unwrap();
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
    // A key by itself, wherever the peer points.
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

/// An aligned address of the peer's may be one that the processor cannot do atomics on.
#[test]
fn alignment_is_that_of_the_memory() {
    let (registry, buffer) = (Registry::new(1), buffer(64));
    let keys = registry.register_buffer(DOMAIN, &buffer, 4, 32, VirtualAddress(BASE), ALL).unwrap();
    let add = Atomic::FetchAdd(1);
    let mut memory = &registry;
    assert_eq!(memory.atomic(BY, remote(keys.rkey, BASE, 8), add), Err(Denied::Alignment));
    assert_eq!(memory.atomic(BY, remote(keys.rkey, BASE + 4, 8), add), Err(Denied::Alignment));
    assert_eq!(buffer.to_vec(), [0; 64]);
}
