//! Thousands of REQs from one or many addresses.

use std::time::Duration;
use std::vec::Vec;

use super::super::{AcceptParameters, Event, Failure, Ignored, State};
use super::link::Host;
use super::{SERVICE, at, config, connect_parameters, events, gid, manager, only, transmits};
use crate::cm::{Config, ConnectParameters, ConnectionManager, RtuData, roce_path};
use crate::time::Instant;
use ferroce_wire::mad::MAD_LEN;
use ferroce_wire::number::{Psn, Qpn};

/// REQs of a host for many QPNs, with the longest timeouts.
fn requests(host: u8, count: u32) -> Vec<[u8; MAD_LEN]> {
    let mut a = manager(host);
    let mut path = roce_path(gid(host), gid(11), 0);
    path.ack_timeout = ferroce_wire::cm::AckTimeout(31);
    let request = |index| {
        let parameters = ConnectParameters {
            local_qpn: Qpn(0x100 + index),
            path,
            local_response_timeout: ferroce_wire::cm::ResponseTimeout(31),
            remote_response_timeout: ferroce_wire::cm::ResponseTimeout(31),
            max_cm_retries: 15,
            ..connect_parameters()
        };
        a.connect(at(0), &parameters).unwrap();
        only(&mut a).to_mad()
    };
    (0..count).map(request).collect()
}

/// A server that accepts every request immediately.
fn accept_all(b: &mut ConnectionManager, now: Instant, accepted: &mut u32) {
    while let Some(event) = b.poll_event() {
        if let Event::Request(id, _) = event {
            *accepted += 1;
            b.accept(now, id, &Host::acceptance(*accepted)).unwrap();
        }
    }
}

/// Whether a client on `host` can connect now.
fn connects(b: &mut ConnectionManager, host: u8, now: Instant) -> bool {
    // Not the communication IDs that the flood has used.
    let mut a = ConnectionManager::new(Config { seed: 0xabcd, ..config(host) });
    let path = roce_path(gid(host), gid(11), 0);
    let id = a.connect(now, &ConnectParameters { path, ..connect_parameters() }).unwrap();
    if b.handle_mad(now, gid(host), &only(&mut a).to_mad()).is_err() {
        return false;
    }
    let [Event::Request(at_b, _)] = events(b)[..] else { return false };
    b.accept(now, at_b, &AcceptParameters::new(Qpn(0x7777), Psn(1))).unwrap();
    for transmit in transmits(b).iter().filter(|one| one.destination == gid(host)) {
        a.handle_mad(now, gid(11), &transmit.to_mad()).unwrap();
    }
    let [Event::Reply(..)] = events(&mut a)[..] else { return false };
    a.ready(id, RtuData::default()).unwrap();
    b.handle_mad(now, gid(host), &only(&mut a).to_mad()).unwrap();
    b.state(at_b) == State::Established
}

/// The owner of the forged source address gets few packets, whatever times and retries the REQ specifies.
#[test]
fn a_forged_req_causes_at_most_five_packets() {
    for timeout in 0..32 {
        for retries in 0..16 {
            let mut a = manager(12);
            let parameters = ConnectParameters {
                local_response_timeout: ferroce_wire::cm::ResponseTimeout(timeout),
                max_cm_retries: retries,
                ..connect_parameters()
            };
            a.connect(at(0), &parameters).unwrap();
            let mut b = manager(11);
            b.listen(SERVICE, 1).unwrap();
            b.handle_mad(at(0), gid(12), &only(&mut a).to_mad()).unwrap();
            accept_all(&mut b, at(0), &mut 0);
            let mut sent = Vec::from([at(0)]);
            assert_eq!(transmits(&mut b).len(), 1);
            while let Some(next) = b.poll_timeout() {
                b.handle_timeout(next);
                sent.extend(transmits(&mut b).iter().map(|_| next));
            }
            assert!(sent.len() <= 5, "timeout {timeout}, {retries} retries: {}", sent.len());
            let gaps: Vec<_> = sent.windows(2).map(|two| two[1].since(two[0])).collect();
            assert!(gaps[0] >= Duration::from_millis(50), "{gaps:?}");
            assert!(gaps.windows(2).all(|two| two[1] >= two[0] * 2), "{gaps:?}");
            assert_eq!(b.connections(), 0);
        }
    }
}

#[test]
fn a_flood_from_one_address_does_not_block_others() {
    let mut b = manager(11);
    b.listen(SERVICE, 1024).unwrap();
    let mut accepted = 0;
    for (index, req) in requests(66, 5000).iter().enumerate() {
        let now = at(index as u64 / 10);
        let result = b.handle_mad(now, gid(66), req);
        assert!(matches!(result, Ok(()) | Err(Ignored::Backlog)), "{result:?}");
        accept_all(&mut b, now, &mut accepted);
        transmits(&mut b);
        if index % 500 == 499 {
            events(&mut b);
            assert!(connects(&mut b, 12 + (index / 500) as u8, now), "after {index}");
        }
    }
    assert_eq!((accepted, b.half_open()), (128, 128));
    // The flooder's half-open connections expire.
    let end = at(500) + config(11).half_open_time;
    b.handle_timeout(end);
    assert_eq!(b.half_open(), 0);
    events(&mut b);
    transmits(&mut b);
    assert!(connects(&mut b, 66, end));
}

#[test]
fn a_flood_from_many_addresses_evicts_the_oldest_half_open_connection() {
    let mut small = config(11);
    (small.max_half_open, small.max_half_open_per_source) = (64, 4);
    let mut b = ConnectionManager::new(small);
    b.listen(SERVICE, 1024).unwrap();
    let (mut accepted, mut evicted) = (0, 0);
    for host in 20..220 {
        for req in requests(host, 4) {
            b.handle_mad(at(u64::from(host)), gid(host), &req).unwrap();
            while let Some(event) = b.poll_event() {
                match event {
                    Event::Request(id, _) => {
                        accepted += 1;
                        b.accept(at(u64::from(host)), id, &Host::acceptance(accepted)).unwrap();
                    }
                    Event::Failed(id, Failure::Evicted) => {
                        assert_eq!(b.state(id), State::Idle);
                        evicted += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
            transmits(&mut b);
            assert!(b.half_open() <= 64 && b.connections() <= 64);
        }
    }
    assert_eq!((accepted, evicted, b.half_open()), (800, 800 - 64, 64));
    // Evicts one for the new client.
    let [first, ..] = requests(230, 1)[..] else { panic!("no REQ") };
    b.handle_mad(at(300), gid(230), &first).unwrap();
    assert!(matches!(events(&mut b)[..], [Event::Failed(..), Event::Request(..)]));
}

#[test]
fn does_not_evict_requests_that_wait_for_the_consumer() {
    let mut small = config(11);
    (small.max_half_open, small.max_half_open_per_source) = (8, 4);
    let mut b = ConnectionManager::new(small);
    b.listen(SERVICE, 1024).unwrap();
    for host in [20, 21] {
        for req in requests(host, 4) {
            b.handle_mad(at(1), gid(host), &req).unwrap();
        }
    }
    let [one] = requests(22, 1)[..] else { panic!("no REQ") };
    assert_eq!(b.handle_mad(at(1), gid(22), &one), Err(Ignored::LimitReached));
    assert_eq!(events(&mut b).len(), 8);
}
