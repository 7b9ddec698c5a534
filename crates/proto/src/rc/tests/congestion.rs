//! Marks, notifications, and what they do to the requester (IBA A17.9).

use core::time::Duration;

use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;

use super::pair::{Faults, Pair};
use super::telling::{FAR, opcodes, read, remote, request, statuses, write};
use crate::congestion::{Congestion, DcqcnParameters, NotificationPacer, cost};
use crate::work::{Operation, Status};

fn dcqcn(seed: u64, faults: Faults) -> Pair {
    Pair::with(seed, faults, 1024, |config| {
        config.congestion = Congestion::Dcqcn(DcqcnParameters {
            line_rate: 1_000_000_000,
            ..DcqcnParameters::default()
        });
    })
}

#[test]
fn a_mark_is_answered_by_a_notification_once_in_a_while() {
    let mut pair = dcqcn(1, Faults::default());
    pair.marking = true;
    pair.hosts[0].qp.post_send(write(1, 64 * 1024)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    let notifications = opcodes(&pair, 1).into_iter().filter(|one| *one == Opcode::CNP).count();
    let most = pair.now.as_nanos() / NotificationPacer::INTERVAL.as_nanos() as u64 + 1;
    assert!((1..=most as usize).contains(&notifications), "{notifications}, at most {most}");
    let (_, bytes) = pair.log.iter().find(|(_, bytes)| bytes[0] == Opcode::CNP.0).unwrap();
    let packet = Packet::parse(bytes).unwrap();
    assert!(packet.bth.becn);
    assert_eq!((packet.bth.psn.0, packet.payload), (0, &[0; 16][..]));
}

#[test]
fn notifications_slow_the_requester_down() {
    let time = |marking| {
        let mut pair = dcqcn(1, Faults::default());
        pair.marking = marking;
        pair.hosts[0].qp.post_send(write(1, 512 * 1024)).unwrap();
        pair.run();
        assert_eq!(statuses(&pair), [(1, Status::Success)]);
        let now = pair.now;
        (now, pair.hosts[0].qp.rate(now).unwrap())
    };
    let ((free, full), (slowed, cut)) = (time(false), time(true));
    assert!(slowed.as_nanos() > 2 * free.as_nanos(), "{free} and {slowed}");
    assert!(cut < full / 2, "{cut} of {full} bit/s");
}

#[test]
fn a_rate_is_no_reason_to_lose_anything() {
    for seed in 0..100 {
        let mut pair = dcqcn(seed, Faults::of(seed));
        pair.marking = seed % 2 == 0;
        pair.hosts[0].qp.post_send(write(1, 50_000)).unwrap();
        pair.hosts[0].qp.post_send(read(2, 50_000)).unwrap();
        pair.run();
        let ended = statuses(&pair);
        assert_eq!(ended.len(), 2);
        if pair.hosts[0].qp.fault().is_none() {
            assert_eq!(
                pair.hosts[1].memory.part(FAR, 50_000),
                pair.hosts[0].memory.part(0, 50_000)
            );
        }
    }
}

#[test]
fn a_long_read_is_asked_for_in_pieces() {
    let mut pair = Pair::with(1, Faults::default(), 256, |config| {
        config.congestion = Congestion::Window(8 * cost(256, 1));
    });
    pair.hosts[0].qp.post_send(read(1, 256 * 10 + 1)).unwrap();
    pair.drain();
    assert_eq!(opcodes(&pair, 0).len(), 2, "two pieces fill the window");
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(pair.hosts[0].memory.part(0, 2561), pair.hosts[1].memory.part(FAR, 2561));
    let asked = pair.log.iter().filter(|(side, _)| *side == 0).map(|(_, bytes)| {
        let reth = Packet::parse(bytes).unwrap().extensions.reth.unwrap();
        (reth.address.0 - remote(FAR).address.0, reth.length)
    });
    assert!(asked.eq([(0, 1024), (1024, 1024), (2048, 513)]));
}

#[test]
fn one_slot_is_enough_for_a_long_read_behind_an_atomic() {
    let mut pair = Pair::with(1, Faults::default(), 256, |config| {
        config.congestion = Congestion::Window(8 * cost(256, 1));
        config.max_rd_atomic = 1;
        config.max_dest_rd_atomic = 1;
    });
    let add = Operation::FetchAdd { remote: remote(FAR), add: 1 };
    pair.hosts[0].qp.post_send(request(1, add, 8)).unwrap();
    pair.hosts[0].qp.post_send(read(2, 5000)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)]);
    assert!(pair.now.as_nanos() < Duration::from_micros(450).as_nanos() as u64, "no timer ran out");
}
