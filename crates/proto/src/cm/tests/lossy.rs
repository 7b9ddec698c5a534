//! Properties over seeds: both sides agree in the end.

use std::time::Duration;

use super::super::{ConnectParameters, ConnectionId, DreqData, Event, Phase, State, private_data};
use super::connect_parameters;
use super::link::{Host, Link};
use crate::time::Instant;
use ferroce_wire::number::{Psn, Qpn};

/// Parameters that differ from seed to seed in every field that the peer must receive.
fn seeded_parameters(link: &mut Link) -> ConnectParameters {
    let mut parameters = connect_parameters();
    parameters.local_qpn = Qpn(link.prng.below(1 << 24) as u32);
    parameters.starting_psn = Psn(link.prng.below(1 << 24) as u32);
    parameters.responder_resources = link.prng.below(17) as u8;
    parameters.initiator_depth = link.prng.below(17) as u8;
    parameters.max_cm_retries = link.prng.below(16) as u8;
    parameters.private_data = private_data(&link.prng.next().to_be_bytes()).unwrap();
    parameters
}

fn broken_link(seed: u64) -> Link {
    let mut link = Link::new(seed);
    link.loss = link.prng.below(80);
    link.duplication = link.prng.below(40);
    // Up to twice the response timeout: retransmissions overtake their originals.
    link.jitter = Duration::from_millis(link.prng.below(9_000));
    link
}

/// Asserts that both sides have the other's parameters.
fn assert_agreed(link: &Link, parameters: &ConnectParameters) {
    let request = link.hosts[1].events.iter().rev().find_map(|event| match event {
        Event::Request(_, request) => Some(request),
        _ => None,
    });
    let reply = link.hosts[0].events.iter().find_map(|event| match event {
        Event::Reply(_, reply) => Some(reply),
        _ => None,
    });
    let (request, reply) = (request.unwrap(), reply.unwrap());
    let acceptance = Host::acceptance(link.hosts[1].accepts - 1);
    assert_eq!(
        (request.remote_qpn, reply.remote_qpn),
        (parameters.local_qpn, acceptance.local_qpn)
    );
    assert_eq!(request.starting_psn, parameters.starting_psn);
    assert_eq!(reply.starting_psn, acceptance.starting_psn);
    assert_eq!(request.responder_resources, parameters.initiator_depth);
    assert_eq!(request.initiator_depth, parameters.responder_resources);
    assert_eq!(reply.responder_resources, acceptance.initiator_depth);
    assert_eq!(reply.initiator_depth, acceptance.responder_resources);
    assert_eq!(request.path_mtu, parameters.path_mtu);
    assert_eq!(request.path.local_gid, parameters.path.remote_gid);
    assert_eq!(request.path.remote_gid, parameters.path.local_gid);
    assert_eq!(request.private_data, parameters.private_data);
    assert_eq!(reply.private_data, acceptance.private_data);
}

/// Connects, and runs until nothing happens. Returns which side considers the connection established.
fn connect(link: &mut Link) -> (ConnectionId, bool, bool) {
    let parameters = seeded_parameters(link);
    connect_with(link, &parameters)
}

fn connect_with(link: &mut Link, parameters: &ConnectParameters) -> (ConnectionId, bool, bool) {
    let id = link.hosts[0].manager.connect(link.now, parameters).unwrap();
    link.run();
    let active = link.active().state(id) == State::Established;
    let requested = link.requested();
    let passive = requested.is_some_and(|id| link.passive().state(id) == State::Established);
    if active && passive {
        assert_agreed(link, parameters);
        // After the passive side has given up, a repeated REQ is a new request.
        let given_up = link.hosts[1].count(|event| matches!(event, Event::Failed(..)));
        assert_eq!(link.hosts[1].count(|event| matches!(event, Event::Request(..))), 1 + given_up);
        assert_eq!(link.hosts[1].count(|event| matches!(event, Event::Established(..))), 1);
        assert_eq!(link.hosts[0].events.len(), 1);
    }
    // No half-open state: a side without the connection has removed it.
    for (believes, host) in [(active, &link.hosts[0]), (passive, &link.hosts[1])] {
        assert_eq!(host.manager.connections(), usize::from(believes));
        assert_eq!(host.manager.half_open(), 0);
    }
    if !active {
        let ends = |event: &Event| matches!(event, Event::Rejected(..) | Event::Failed(..));
        let lost = |event: &Event| matches!(event, Event::Disconnected(..));
        assert_eq!(link.hosts[0].count(|event| ends(event) || lost(event)), 1);
    }
    (id, active, passive)
}

#[test]
fn connects_on_both_sides_or_on_neither() {
    let (mut both, mut none, mut one) = (0, 0, 0);
    for seed in 0..800 {
        let mut link = broken_link(seed);
        let (id, active, passive) = connect(&mut link);
        match (active, passive) {
            (true, true) => both += 1,
            (false, false) => none += 1,
            // Every REP after the first, every RTU and every REJ was lost. No protocol can avoid this, since the last
            // message may always be lost. The first use of the connection, or its end, detects it.
            (true, false) => {
                one += 1;
                link.hosts[0].manager.disconnect(link.now, id, DreqData::default()).unwrap();
                link.run();
            }
            (false, true) => panic!("seed {seed}: the passive side alone believes"),
        }
        if !active || !passive {
            link.assert_empty();
        }
    }
    assert!(both > 300 && none > 50, "{both} both, {none} none, {one} one");
}

#[test]
fn connects_if_fewer_messages_are_lost_than_retries_exist() {
    for seed in 0..500 {
        let mut link = broken_link(seed);
        // A REP is sent four times.
        link.longest_burst = 1;
        link.jitter = Duration::from_millis(link.prng.below(500));
        let parameters = ConnectParameters { max_cm_retries: 15, ..seeded_parameters(&mut link) };
        let id = link.hosts[0].manager.connect(link.now, &parameters).unwrap();
        link.run();
        assert_eq!(link.active().state(id).phase(), Phase::Connected, "seed {seed}");
        let requested = link.requested().unwrap();
        assert_eq!(link.passive().state(requested).phase(), Phase::Connected, "seed {seed}");
        assert_agreed(&link, &parameters);
    }
}

/// After a lost RTU there are only three more REPs, so some connections fail. Data would establish them.
#[test]
fn connects_on_lossy_links() {
    for (loss, at_least) in [(5, 1000), (10, 997), (20, 980)] {
        let mut connected = 0;
        for seed in 0..1000 {
            let mut link = Link::new(seed);
            link.loss = loss;
            let (_, active, passive) = connect_with(&mut link, &connect_parameters());
            connected += u32::from(active && passive);
        }
        assert!(connected >= at_least, "{connected} of 1000 at a loss of {loss} %");
    }
}

#[test]
fn disconnecting_from_either_or_both_sides_leaves_no_state() {
    let mut ran = 0;
    for seed in 0..900 {
        let mut link = broken_link(seed);
        link.loss = 0;
        let (id, active, passive) = connect(&mut link);
        if !active || !passive {
            // No loss, but the path is too slow for zero retries.
            continue;
        }
        ran += 1;
        let requested = link.requested().unwrap();
        link.loss = link.prng.below(80);
        let who = seed % 3;
        if who != 1 {
            link.hosts[0].manager.disconnect(link.now, id, DreqData::default()).unwrap();
        }
        if who != 0 {
            link.hosts[1].manager.disconnect(link.now, requested, DreqData::default()).unwrap();
        }
        link.run();
        // The other side may have received nothing; then its DREQ gets no response, and it ends as well.
        for (index, id) in [(0, id), (1, requested)] {
            let now = link.now;
            if link.hosts[index].manager.state(id) == State::Established {
                assert_ne!(who, 2, "seed {seed}");
                link.hosts[index].manager.close(now, id).unwrap();
            }
        }
        link.run();
        link.assert_empty();
        for host in &link.hosts {
            let over = host.count(|event| matches!(event, Event::Disconnected(..)));
            let rested = host.count(|event| matches!(event, Event::TimeWaitEnded(..)));
            assert_eq!((over, rested), (1, 1), "seed {seed}");
        }
    }
    assert!(ran > 500, "{ran}");
}

#[test]
fn closing_at_any_time_leaves_no_state() {
    for seed in 0..600 {
        let mut link = broken_link(seed);
        let parameters = seeded_parameters(&mut link);
        let id = link.hosts[0].manager.connect(link.now, &parameters).unwrap();
        let pause = Duration::from_millis(link.prng.below(30_000));
        link.run_until(link.now + pause);
        let _ = link.hosts[0].manager.close(link.now, id);
        if let (true, Some(requested)) = (seed % 2 == 0, link.requested()) {
            let _ = link.hosts[1].manager.close(link.now, requested);
        }
        link.run();
        if let Some(requested) = link.requested() {
            // The active side's message may have been lost.
            let _ = link.hosts[1].manager.close(link.now, requested);
        }
        link.run();
        link.assert_empty();
    }
}

#[test]
fn consumers_that_never_answer_leave_no_state() {
    for seed in 0..200 {
        let mut link = broken_link(seed);
        link.hosts[(seed % 2) as usize].willing = false;
        let parameters = seeded_parameters(&mut link);
        link.hosts[0].manager.connect(link.now, &parameters).unwrap();
        link.run();
        link.assert_empty();
    }
}

#[test]
fn a_thousand_connection_cycles_leave_no_state() {
    let mut link = Link::new(7);
    for cycle in 0..1_000 {
        let id = link.hosts[0].manager.connect(link.now, &connect_parameters()).unwrap();
        link.run();
        let requested = link.requested().unwrap();
        assert_eq!(link.active().state(id), State::Established);
        assert_eq!(link.passive().state(requested), State::Established);
        match cycle % 2 {
            0 => link.hosts[0].manager.disconnect(link.now, id, DreqData::default()).unwrap(),
            _ => {
                link.hosts[1].manager.disconnect(link.now, requested, DreqData::default()).unwrap()
            }
        }
        link.run();
        link.assert_empty();
        link.hosts.iter_mut().for_each(|host| {
            host.events.clear();
            host.sent.clear();
        });
    }
}

#[test]
fn a_thousand_simultaneous_connections() {
    let mut link = Link::new(8);
    link.loss = 5;
    link.passive().unlisten(super::SERVICE);
    link.passive().listen(super::SERVICE, 1_000).unwrap();
    let connections: std::vec::Vec<_> = (0..1_000)
        .map(|qpn| {
            let parameters =
                ConnectParameters { local_qpn: Qpn(0x100 + qpn), ..connect_parameters() };
            link.hosts[0].manager.connect(link.now, &parameters).unwrap()
        })
        .collect();
    link.run();
    assert!(connections.iter().all(|&id| link.active().state(id) == State::Established));
    assert_eq!(link.passive().connections(), 1_000);
    connections.iter().for_each(|&id| link.hosts[0].manager.close(link.now, id).unwrap());
    link.run();
    link.assert_empty();
}

#[test]
fn the_same_seed_reproduces_the_run() {
    let trace = |seed| {
        let mut link = broken_link(seed);
        connect(&mut link);
        link.hosts.map(|host| (host.events, host.sent))
    };
    assert_eq!(trace(3), trace(3));
    assert_ne!(trace(3), trace(4));
}

/// Forward by hours, as after the process was stopped, and back.
#[test]
fn a_clock_that_jumps_leaves_no_state_behind() {
    const HOUR: u64 = 3_600_000_000_000;
    for seed in 0..300 {
        let mut link = broken_link(seed);
        let parameters = seeded_parameters(&mut link);
        let id = link.hosts[0].manager.connect(link.now, &parameters).unwrap();
        for _ in 0..20 {
            let end = link.now + Duration::from_millis(link.prng.below(5_000));
            link.run_until(end);
            let (by, now) = (link.prng.below(3 * HOUR), link.now.as_nanos());
            let forward = link.prng.chance(50);
            let to = if forward { now + by } else { now.saturating_sub(by) };
            link.set_clock(Instant::from_nanos(to));
        }
        // The first time, the handshake may not have ended.
        for _ in 0..2 {
            let now = link.now;
            let _ = link.active().disconnect(now, id, DreqData::default());
            if let Some(requested) = link.requested() {
                let _ = link.passive().disconnect(now, requested, DreqData::default());
            }
            link.run();
        }
        link.assert_empty();
    }
}
