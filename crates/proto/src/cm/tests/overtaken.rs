//! A REQ that overtakes the RTU of the connection before it, and the order of events.

use std::time::Duration;
use std::vec::Vec;

use super::super::{
    AcceptParameters, Config, ConnectParameters, ConnectionId, ConnectionManager, DrepData,
    DreqData, Event, RtuData, Transmit,
};
use super::link::Prng;
use super::{SERVICE, at, carry, config, connect_parameters, events, gid, only};
use crate::time::Instant;
use ferroce_wire::number::{Psn, Qpn};

/// A process of the host, as communication IDs name it.
fn process(host: u8, slot: u8) -> ConnectionManager {
    ConnectionManager::new(Config { slot: Some(slot), ..config(host) })
}

fn parameters(number: u32) -> ConnectParameters {
    ConnectParameters { local_qpn: Qpn(0x100 + number), ..connect_parameters() }
}

fn accept(now: Instant, manager: &mut ConnectionManager, id: ConnectionId) {
    manager.accept(now, id, &AcceptParameters::new(Qpn(0x1000 + id.0.0), Psn(7))).unwrap();
}

/// A connection whose RTU is on its way: both managers, and the RTU.
fn almost_established() -> (ConnectionManager, ConnectionManager, ConnectionId, Transmit) {
    let (mut a, mut b) = (process(12, 3), process(11, 0));
    b.listen(SERVICE, 8).unwrap();
    let at_a = a.connect(at(0), &parameters(1)).unwrap();
    carry(at(0), (12, &mut a), &mut b);
    let Some(Event::Request(at_b, _)) = b.poll_event() else { panic!("no request") };
    accept(at(1), &mut b, at_b);
    carry(at(1), (11, &mut b), &mut a);
    let Some(Event::Reply(..)) = a.poll_event() else { panic!("no reply") };
    a.ready(at_a, RtuData::default()).unwrap();
    let rtu = only(&mut a);
    (a, b, at_b, rtu)
}

#[test]
fn a_request_waits_for_the_rtu_that_it_overtook() {
    let (mut a, mut b, first, rtu) = almost_established();
    a.connect(at(2), &parameters(2)).unwrap();
    let req = only(&mut a);
    // Twice: it may be retransmitted meanwhile.
    for _ in 0..2 {
        b.handle_mad(at(2), gid(12), &req.to_mad()).unwrap();
        assert_eq!(events(&mut b), []);
    }
    b.handle_mad(at(3), gid(12), &rtu.to_mad()).unwrap();
    let all = events(&mut b);
    let [Event::Established(id, _), Event::Request(second, _)] = &all[..] else {
        panic!("{all:?}")
    };
    assert!(*id == first && *second != first);
    accept(at(4), &mut b, *second);
    assert!(b.poll_timeout().unwrap() > at(50), "nothing waits any longer");
}

#[test]
fn a_request_waits_for_50_ms() {
    let (mut a, mut b, first, rtu) = almost_established();
    a.connect(at(2), &parameters(2)).unwrap();
    carry(at(2), (12, &mut a), &mut b);
    assert_eq!((events(&mut b), b.poll_timeout()), (Vec::new(), Some(at(52))));
    b.handle_timeout(at(52));
    assert!(matches!(events(&mut b)[..], [Event::Request(..)]));
    b.handle_mad(at(60), gid(12), &rtu.to_mad()).unwrap();
    assert!(matches!(events(&mut b)[..], [Event::Established(id, _)] if id == first));
    // An RTU that is missing for long is lost.
    let (mut a, mut b, ..) = almost_established();
    a.connect(at(52), &parameters(2)).unwrap();
    carry(at(52), (12, &mut a), &mut b);
    assert!(matches!(events(&mut b)[..], [Event::Request(..)]));
}

#[test]
fn requests_of_other_processes_do_not_wait() {
    for (host, slot) in [(12, 4), (13, 3)] {
        let (_, mut b, ..) = almost_established();
        let mut other = process(host, slot);
        other.connect(at(2), &parameters(2)).unwrap();
        carry(at(2), (host, &mut other), &mut b);
        assert!(matches!(events(&mut b)[..], [Event::Request(..)]), "{host} {slot}");
    }
    // Nor those that are rejected.
    let (mut a, mut b, ..) = almost_established();
    b.unlisten(SERVICE);
    a.connect(at(2), &parameters(2)).unwrap();
    carry(at(2), (12, &mut a), &mut b);
    assert_eq!(b.transmits.len(), 1);
}

/// Connections one after the other, over a link that delays messages by up to 20 ms and so reorders them. The passive side must
/// see each as ESTABLISHED, then the request for the next; and before DISCONNECTED, as programs do that expect one event.
#[test]
fn events_of_connections_in_sequence_come_in_order() {
    for seed in 0..200 {
        let mut prng = Prng(seed);
        let (mut a, mut b) = (process(12, 3), process(11, 0));
        b.listen(SERVICE, 8).unwrap();
        let (mut now, mut flights) = (at(0), Vec::new());
        let (mut opened, mut seen) = (0, Vec::new());
        a.connect(now, &parameters(0)).unwrap();
        while opened < 20 {
            while let Some(event) = a.poll_event() {
                let Event::Reply(id, _) = event else { continue };
                a.ready(id, RtuData::default()).unwrap();
                opened += 1;
                if prng.chance(20) {
                    a.disconnect(now, id, DreqData::default()).unwrap();
                }
                a.connect(now, &parameters(opened)).unwrap();
            }
            while let Some(event) = b.poll_event() {
                match &event {
                    Event::Request(id, _) => accept(now, &mut b, *id),
                    Event::DisconnectRequest(id, _) => {
                        b.confirm_disconnect(now, *id, DrepData::default()).unwrap();
                    }
                    _ => {}
                }
                seen.push(event);
            }
            for (host, manager) in [(12, &mut a), (11, &mut b)] {
                while let Some(transmit) = manager.poll_transmit() {
                    let arrival = now + Duration::from_micros(10 + prng.below(20_000));
                    flights.push((arrival, host, transmit.to_mad()));
                }
            }
            let timers = [a.poll_timeout(), b.poll_timeout()].into_iter().flatten();
            now = timers.chain(flights.iter().map(|one| one.0)).min().unwrap();
            a.handle_timeout(now);
            b.handle_timeout(now);
            let (arrived, left): (Vec<_>, Vec<_>) =
                flights.into_iter().partition(|one| one.0 <= now);
            flights = left;
            for (_, from, mad) in arrived {
                let to = if from == 12 { &mut b } else { &mut a };
                let _ = to.handle_mad(now, gid(from), &mad);
            }
        }
        let mut pending = None;
        for event in &seen {
            match event {
                Event::Request(id, _) => {
                    assert_eq!(pending.replace(*id), None, "seed {seed}");
                }
                Event::Established(id, _) => {
                    assert_eq!(pending.take(), Some(*id), "seed {seed}");
                }
                // A DREQ that overtakes the RTU ends the connection without ESTABLISHED, as in Linux.
                Event::DisconnectRequest(id, _) => {
                    let _ = pending.take_if(|pending| pending == id);
                }
                _ => {}
            }
        }
        assert!(seen.len() > 30, "seed {seed}");
    }
}
