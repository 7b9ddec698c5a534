//! Limits on what unknown senders can cause.

use std::vec::Vec;

use super::super::{
    AcceptParameters, ConnectParameters, DrepData, Event, Ignored, MraData, Rejection, Resolution,
    RtuData, ServiceInUse, TooMany,
};
use super::link::Prng;
use super::{SERVICE, at, config, connect_parameters, events, gid, manager, only, transmits};
use crate::cm::ConnectionManager;
use crate::time::Instant;
use ferroce_wire::cm::{CmMessage, RejectReason, ResponseTimeout, ServiceId, SidrStatus};
use ferroce_wire::mad::MAD_LEN;
use ferroce_wire::number::{Psn, Qpn};

/// A REQ for each QPN of a client.
fn requests(count: u32) -> Vec<[u8; MAD_LEN]> {
    let mut a = manager(12);
    (0..count)
        .map(|index| {
            let parameters =
                ConnectParameters { local_qpn: Qpn(0x100 + index), ..connect_parameters() };
            a.connect(at(0), &parameters).unwrap();
            only(&mut a).to_mad()
        })
        .collect()
}

#[test]
fn limits_local_connections() {
    let mut small = config(12);
    small.max_connections = 3;
    let mut a = ConnectionManager::new(small);
    for _ in 0..3 {
        a.connect(at(0), &connect_parameters()).unwrap();
    }
    assert_eq!(a.connect(at(0), &connect_parameters()), Err(TooMany { limit: 3 }));
}

#[test]
fn limits_half_open_connections() {
    let mut small = config(11);
    small.max_half_open = 5;
    let mut b = ConnectionManager::new(small);
    b.listen(SERVICE, 100).unwrap();
    assert_eq!(b.listen(SERVICE, 1), Err(ServiceInUse(SERVICE)));
    for (index, req) in requests(20).iter().enumerate() {
        let result = b.handle_mad(at(1), gid(12), req);
        if index < 5 {
            assert_eq!((result, b.poll_transmit()), (Ok(()), None));
            continue;
        }
        assert_eq!(result, Err(Ignored::LimitReached));
        let CmMessage::Rej(rej) = only(&mut b).message else { panic!("no REJ") };
        assert_eq!(rej.reason, RejectReason::NO_RESOURCES);
    }
    assert_eq!((b.half_open(), b.connections()), (5, 5));
    // Accepting frees nothing: a REP without an RTU is still half-open.
    let [Event::Request(id, _), ..] = events(&mut b)[..] else { panic!("no request") };
    b.accept(at(2), id, &AcceptParameters::new(Qpn(1), Psn(1))).unwrap();
    assert_eq!(b.half_open(), 5);
    b.handle_data_received(id).unwrap();
    assert_eq!(b.half_open(), 4);
}

#[test]
fn limits_the_backlog_per_listener() {
    let mut b = manager(11);
    b.listen(SERVICE, 2).unwrap();
    let requests = requests(3);
    b.handle_mad(at(1), gid(12), &requests[0]).unwrap();
    b.handle_mad(at(1), gid(12), &requests[1]).unwrap();
    assert_eq!(b.handle_mad(at(1), gid(12), &requests[2]), Err(Ignored::Backlog));
    // No response: the peer retransmits.
    assert_eq!(b.poll_transmit(), None);
    let [Event::Request(id, _), _] = events(&mut b)[..] else { panic!("no request") };
    b.accept(at(2), id, &AcceptParameters::new(Qpn(1), Psn(1))).unwrap();
    b.handle_mad(at(3), gid(12), &requests[2]).unwrap();
    b.unlisten(SERVICE);
    assert!(b.handle_mad(at(4), gid(13), &requests[0]).is_err());
}

#[test]
fn drops_messages_while_not_drained() {
    let mut small = config(11);
    small.max_undrained = 4;
    let mut b = ConnectionManager::new(small);
    for (index, req) in requests(20).iter().enumerate() {
        let result = b.handle_mad(at(1), gid(12), req);
        let expected = match index {
            0..4 => Ignored::NoListener(SERVICE),
            _ => Ignored::Undrained,
        };
        assert_eq!(result, Err(expected));
    }
    assert_eq!(transmits(&mut b).len(), 4);
}

/// A random message, with known or unknown attribute and IDs.
fn forged(prng: &mut Prng, names: &[u32]) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    for chunk in mad.chunks_mut(8) {
        // Few set bits as often as many: small numbers and zeros are interesting.
        let bits = if prng.chance(50) { prng.next() } else { 0 };
        chunk.copy_from_slice(&bits.to_be_bytes());
    }
    if !prng.chance(5) {
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[16..18].copy_from_slice(&[0, 0x10 + prng.below(12) as u8]);
    }
    for at in [24, 28] {
        if prng.chance(80) && !names.is_empty() {
            let name = names[prng.below(names.len() as u64) as usize];
            mad[at..at + 4].copy_from_slice(&name.to_be_bytes());
        }
    }
    if mad[17] == 0x10 {
        // Mostly a listening service, and a valid transport and MTU.
        if prng.chance(80) {
            mad[32..40].copy_from_slice(&SERVICE.0.to_be_bytes());
            mad[40..48].fill(0);
            mad[67] &= 0b1111_1001;
            mad[74] = 0x30 | mad[74] & 0xf;
            mad[56..59].copy_from_slice(&[0, 0, prng.below(32) as u8]);
        }
    }
    if mad[17] == 0x15 && prng.chance(80) {
        mad[32..35].copy_from_slice(&[0, 0, 9]);
    }
    mad
}

#[test]
fn no_message_causes_a_panic_or_unbounded_memory() {
    let mut seen = [0usize; 13];
    for seed in 0..300 {
        let mut prng = Prng(seed);
        let mut small = config(11);
        (small.max_connections, small.max_half_open) = (12, 6);
        (small.max_resolutions, small.max_undrained) = (5, 64);
        small.automatic_mra = prng.chance(50).then_some(ResponseTimeout(20));
        let mut manager = ConnectionManager::new(small);
        manager.listen(SERVICE, 4).unwrap();
        manager.listen_datagrams(ServiceId(0)).unwrap();
        let (mut now, mut connections, mut names) = (Instant::ZERO, Vec::new(), Vec::new());
        names.extend([1, 2, 3, 4]);
        for _ in 0..400 {
            let _ = manager.handle_mad(now, gid(12), &forged(&mut prng, &names));
            if prng.chance(10) {
                if let Ok(id) = manager.connect(
                    now,
                    &ConnectParameters {
                        path: super::super::roce_path(gid(11), gid(12), 0),
                        ..connect_parameters()
                    },
                ) {
                    connections.push(id);
                    names.push(id.comm_id().0);
                }
            }
            if prng.chance(20) {
                now = now + core::time::Duration::from_millis(prng.below(5_000));
                manager.handle_timeout(now);
            }
            if prng.chance(70) {
                for event in events(&mut manager) {
                    match event {
                        Event::Request(id, _) => {
                            connections.push(id);
                            names.push(id.comm_id().0);
                        }
                        Event::Query(id, _) if prng.chance(50) => {
                            let _ = manager.answer(id, &Resolution::refused(SidrStatus::REJECTED));
                        }
                        _ => {}
                    }
                }
                transmits(&mut manager);
            }
            if let Some(&id) = connections.get(prng.below(8) as usize) {
                let _ = match prng.below(9) {
                    0..4 => manager.accept(now, id, &AcceptParameters::new(Qpn(9), Psn(1))),
                    4 => manager.ready(id, RtuData::default()),
                    5 => manager.handle_data_received(id),
                    6 => manager.prolong(now, id, ResponseTimeout(3), MraData::default()),
                    7 => manager.confirm_disconnect(now, id, DrepData::default()),
                    _ => match prng.below(3) {
                        0 => manager.close(now, id),
                        _ => manager.reject(now, id, &Rejection::new(RejectReason::NO_QP)),
                    },
                };
            }
            connections.retain(|&id| manager.state(id) != super::super::State::Idle);
            connections.iter().for_each(|&id| seen[manager.state(id) as usize] += 1);
            assert!(manager.connections() <= 12 && manager.half_open() <= 6);
            assert!(manager.resolutions() <= 10);
            let (ids, qpns, services) = manager.table.index_sizes();
            assert!(ids <= 12 && qpns <= 12 && services <= 1);
            // Messages and events waiting: the limit, plus those from timers and the consumer's own calls.
            assert!(manager.transmits.len() + manager.events.len() < 2 * 64 + 200);
        }
        // Everything ends: the consumer closes, and the timers expire.
        for &id in &connections {
            let _ = manager.close(now, id);
        }
        for id in events(&mut manager).into_iter().filter_map(|event| match event {
            Event::Request(id, _) => Some(id),
            _ => None,
        }) {
            let _ = manager.close(now, id);
        }
        while let Some(end) = manager.poll_timeout() {
            manager.handle_timeout(end);
        }
        assert_eq!((manager.connections(), manager.resolutions()), (0, 0), "seed {seed}");
        assert_eq!(manager.table.index_sizes(), (0, 0, 0));
    }
    // The forged messages reach every state.
    assert!(seen[1..].iter().all(|&count| count > 0), "{seen:?}");
}
