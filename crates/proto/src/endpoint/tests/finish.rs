//! Memory that takes time, for QPs of all services.

use core::time::Duration;
use std::vec::Vec;

use super::{SENDING, Side, pair, post, run, side};
use crate::endpoint::{Event, InboundPacket, Pending};
use crate::qp::{QueuePairAttributes, ServiceType, State};
use crate::reason::KeyFault;
use crate::testing::Ended;
use crate::time::Instant;
use crate::ud::Envelope;
use crate::work::Status;

/// Two sides of which the second has slow memory.
fn slow(service: ServiceType) -> [Side; 2] {
    let mut sides = pair(service);
    connect(&mut sides);
    sides
}

fn connect(sides: &mut [Side; 2]) {
    sides[0].bring(State::ReadyToSend, 2);
    sides[1].bring(State::ReadyToReceive, 1);
    sides[1].memory.pend(1, 1000, Duration::ZERO);
}

/// Finishes the oldest access, and handles the packets that waited for it.
fn finish(side: &mut Side) {
    finish_at(side, 0);
}

/// As [`finish`], for the access at this index.
pub(super) fn finish_at(side: &mut Side, index: usize) {
    match side.memory.finish(index) {
        Ended::Access(finished) => {
            side.endpoint.handle_finished(&finished, Some(&mut side.receives));
        }
        Ended::Read(read) => side.endpoint.handle_read(read),
    }
    while let Some(held) = side.endpoint.take_held(&side.memory) {
        let inbound = InboundPacket {
            time: Instant::ZERO,
            packet: &held.packet(),
            packets: held.packets,
            marked: false,
            envelope: &Envelope::default(),
        };
        side.endpoint.handle_packet(&inbound, Some(&mut side.receives), &mut side.memory);
    }
}

/// Two sides of which the first has memory that takes time to read.
fn slow_to_read(service: ServiceType) -> [Side; 2] {
    let mut sides = slow(service);
    sides[1].memory.pend(1, 0, Duration::ZERO);
    sides[0].memory.pend(1, 1000, Duration::ZERO);
    sides[0].memory.pending.reads = true;
    (8..11).for_each(|id| sides[1].post_receive(id, 0x1000 * id, 2000));
    sides
}

/// Finishes a read of the first side at an index.
fn finish_read(sides: &mut [Side; 2], index: usize) {
    let Ended::Read(read) = sides[0].memory.finish(index) else { panic!("it is a write") };
    sides[0].endpoint.handle_read(read);
    run(sides);
}

fn sent(side: &Side) -> Vec<(u64, Status)> {
    side.sent.iter().map(|one| (one.id.0, one.status)).collect()
}

fn statuses(side: &Side) -> Vec<(u64, Status)> {
    side.received.iter().map(|one| (one.id.0, one.status)).collect()
}

#[test]
fn every_service_completes_when_memory_has_finished() {
    for service in SENDING {
        let mut sides = slow(service);
        (8..10).for_each(|id| sides[1].post_receive(id, 0x1000 * id, 300));
        (0..2).for_each(|id| post(&mut sides[0], id, 250).unwrap());
        run(&mut sides);
        // Datagrams have no order: only these are written at the same time.
        let at_once = if service == ServiceType::UnreliableDatagram { 2 } else { 1 };
        assert_eq!((sides[1].endpoint.unfinished(), statuses(&sides[1])), (at_once, [].into()));
        for id in 8..10 {
            finish(&mut sides[1]);
            run(&mut sides);
            assert_eq!(statuses(&sides[1]).last(), Some(&(id, Status::Success)), "{service:?}");
        }
        assert_eq!((sides[1].endpoint.unfinished(), sides[0].sent.len()), (0, 2), "{service:?}");
    }
}

/// The owner learns from the number of unfinished accesses when memory is no longer touched. It does not count twice what
/// finishes after the reset.
#[test]
fn a_reset_queue_pair_still_counts_its_unfinished_accesses() {
    for service in SENDING {
        let mut sides = slow(service);
        sides[1].post_receive(8, 0x1000, 300);
        post(&mut sides[0], 1, 200).unwrap();
        run(&mut sides);
        let reset = QueuePairAttributes { state: Some(State::Reset), ..Default::default() };
        for side in &mut sides {
            side.endpoint.modify(&reset).unwrap();
        }
        assert_eq!(sides[1].endpoint.unfinished(), 1, "{service:?}");
        finish(&mut sides[1]);
        assert_eq!(sides[1].endpoint.unfinished(), 0, "{service:?}");
        sides.iter_mut().for_each(|side| side.received.clear());
        connect(&mut sides);
        sides[1].post_receive(9, 0x1000, 300);
        post(&mut sides[0], 2, 200).unwrap();
        run(&mut sides);
        finish(&mut sides[1]);
        run(&mut sides);
        assert_eq!(statuses(&sides[1]), [(9, Status::Success)], "{service:?}");
    }
}

/// In ERR, a receive request whose buffer is being written to is flushed before the others, and the last event of an SRQ waits
/// for it.
#[test]
fn receive_requests_are_flushed_in_order() {
    for shared in [false, true] {
        let service = ServiceType::ReliableConnection;
        let mut sides = [side(service, 1, false), side(service, 2, shared)];
        connect(&mut sides);
        (8..10).for_each(|id| sides[1].post_receive(id, 0x1000 * id, 300));
        post(&mut sides[0], 1, 200).unwrap();
        run(&mut sides);
        let error = QueuePairAttributes { state: Some(State::Error), ..Default::default() };
        sides[1].endpoint.modify(&error).unwrap();
        run(&mut sides);
        assert_eq!(
            (statuses(&sides[1]), &sides[1].events[..]),
            ([].into(), &[Event::Established][..])
        );
        assert_eq!(sides[1].endpoint.flush_receive(&mut sides[1].receives), None);
        finish(&mut sides[1]);
        run(&mut sides);
        assert_eq!(statuses(&sides[1]), [(8, Status::Success)]);
        let flushed = sides[1].endpoint.flush_receive(&mut sides[1].receives);
        assert_eq!(flushed.map(|one| one.id.0), Some(9).filter(|_| !shared));
        let event = sides[1].events.get(1);
        assert_eq!(event, Some(&Event::LastReceiveReached).filter(|_| shared));
    }
}

/// In ERR, the request of a dropped UC message is flushed, once memory has finished with its buffer.
#[test]
fn the_receive_of_a_dropped_message_is_flushed() {
    for (shared, finished) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
        let service = ServiceType::UnreliableConnection;
        let mut sides = [side(service, 1, false), side(service, 2, shared)];
        connect(&mut sides);
        (8..10).for_each(|id| sides[1].post_receive(id, 0x1000 * id, 1000));
        post(&mut sides[0], 1, 700).unwrap();
        let packets = sides[0].poll(Instant::ZERO);
        [0, 2].into_iter().for_each(|index| sides[1].handle(&packets[index], Instant::ZERO));
        assert_eq!((sides[1].endpoint.unfinished(), sides[1].receives.len()), (1, 1));
        (0..finished).for_each(|_| finish(&mut sides[1]));
        let error = QueuePairAttributes { state: Some(State::Error), ..Default::default() };
        sides[1].endpoint.modify(&error).unwrap();
        (finished..1).for_each(|_| {
            run(&mut sides);
            assert_eq!((statuses(&sides[1]), sides[1].events.len()), ([].into(), 1));
            assert_eq!(sides[1].endpoint.flush_receive(&mut sides[1].receives), None);
            finish(&mut sides[1]);
        });
        run(&mut sides);
        let Side { endpoint, receives, received, .. } = &mut sides[1];
        received.extend(core::iter::from_fn(|| endpoint.flush_receive(receives)));
        // What is in an SRQ belongs to no QP (IBA 10.2.9).
        let (flushed, left): (&[u64], _) = match (shared, finished) {
            (false, _) => (&[8, 9], 0),
            (true, 0) => (&[8], 1),
            (true, _) => (&[], 2),
        };
        assert!(
            statuses(&sides[1]).iter().copied().eq(flushed.iter().map(|id| (*id, Status::Flushed)))
        );
        assert_eq!((sides[1].receives.len(), sides[1].endpoint.unfinished()), (left, 0));
        assert_eq!(sides[1].events.get(1), Some(&Event::LastReceiveReached).filter(|_| shared));
    }
}

/// A copy that fails puts every service into ERR, and its receive request tells why.
#[test]
fn a_failed_copy_is_an_error_of_every_service() {
    for service in SENDING {
        let mut sides = slow(service);
        (8..10).for_each(|id| sides[1].post_receive(id, 0x1000 * id, 300));
        (0..2).for_each(|id| post(&mut sides[0], id, 250).unwrap());
        run(&mut sides);
        sides[1].memory.pending.failing = 1000;
        while sides[1].endpoint.unfinished() > 0 {
            finish(&mut sides[1]);
            sides[1].memory.pending.failing = 0;
        }
        run(&mut sides);
        assert_eq!(sides[1].endpoint.state(), State::Error, "{service:?}");
        assert_eq!(statuses(&sides[1])[0], (8, Status::LocalProtection), "{service:?}");
        let reliable =
            matches!(service, ServiceType::ReliableConnection | ServiceType::XrcInitiator);
        let status = if reliable { Status::RemoteOperation } else { Status::Success };
        assert_eq!(sides[0].sent[0].status, status, "{service:?}");
    }
}

/// Requests leave in order, whatever the order in which their payload is read.
#[test]
fn every_service_sends_when_memory_has_been_read() {
    for service in SENDING {
        let mut sides = slow_to_read(service);
        (0..3).for_each(|id| post(&mut sides[0], id, 600).unwrap());
        run(&mut sides);
        assert_eq!((sides[0].endpoint.unfinished(), statuses(&sides[1])), (3, [].into()));
        assert_eq!(sides[0].endpoint.pending(), Pending::Nothing, "{service:?}");
        finish_read(&mut sides, 1);
        assert_eq!(statuses(&sides[1]), [], "{service:?}");
        finish_read(&mut sides, 0);
        assert_eq!(statuses(&sides[1]), [(8, Status::Success), (9, Status::Success)]);
        finish_read(&mut sides, 0);
        assert_eq!(sent(&sides[0]), [0, 1, 2].map(|id| (id, Status::Success)), "{service:?}");
        let there = if service == ServiceType::UnreliableDatagram { 0xa028 } else { 0xa000 };
        assert_eq!(sides[1].memory.part(there, 600), sides[0].memory.part(0, 600), "{service:?}");
    }
}

/// A payload that cannot be read fails its request, after those before it, and the later ones are flushed (IBA 10.3.1.6).
#[test]
fn a_failed_read_fails_its_request() {
    for service in SENDING {
        let mut sides = slow_to_read(service);
        (0..3).for_each(|id| post(&mut sides[0], id, 600).unwrap());
        run(&mut sides);
        sides[0].memory.pending.failing = 1000;
        finish_read(&mut sides, 1);
        assert_eq!(sent(&sides[0]), [], "{service:?}");
        sides[0].memory.pending.failing = 0;
        finish_read(&mut sides, 0);
        let expected = [(0, Status::Success), (1, Status::LocalProtection), (2, Status::Flushed)];
        assert_eq!(sent(&sides[0]), expected, "{service:?}");
        assert_eq!(sides[0].sent[1].vendor_error, KeyFault::CopyFailed.number(), "{service:?}");
        assert_eq!(sides[0].endpoint.unfinished(), 1, "{service:?}: the third is still read");
        let unreliable =
            matches!(service, ServiceType::UnreliableConnection | ServiceType::UnreliableDatagram);
        if unreliable {
            assert_eq!(sides[0].endpoint.state(), State::SendQueueError);
            let resume =
                QueuePairAttributes { state: Some(State::ReadyToSend), ..Default::default() };
            sides[0].endpoint.modify(&resume).unwrap();
            post(&mut sides[0], 3, 600).unwrap();
            run(&mut sides);
            assert_eq!(sides[0].endpoint.unfinished(), 2, "{service:?}");
        }
        finish_read(&mut sides, 0);
        assert_eq!(sides[0].sent.len(), 3, "{service:?}");
        if unreliable {
            finish_read(&mut sides, 0);
            assert_eq!(sent(&sides[0])[3], (3, Status::Success), "{service:?}");
        }
        assert_eq!(sides[0].endpoint.unfinished(), 0, "{service:?}");
    }
}

/// What was refused before it is read fails when its turn comes, as with memory that is read at once.
#[test]
fn a_denied_read_fails_its_request() {
    for service in SENDING {
        let mut sides = slow_to_read(service);
        post(&mut sides[0], 0, 600).unwrap();
        run(&mut sides);
        sides[0].memory.valid = false;
        post(&mut sides[0], 1, 600).unwrap();
        run(&mut sides);
        assert_eq!((sides[0].endpoint.unfinished(), sent(&sides[0])), (1, [].into()));
        finish_read(&mut sides, 0);
        let expected = [(0, Status::Success), (1, Status::LocalProtection)];
        assert_eq!(sent(&sides[0]), expected, "{service:?}");
    }
}

/// In ERR, requests are flushed while their payload is still read; the owner waits for that before it destroys the QP.
#[test]
fn unfinished_reads_outlive_err_and_reset() {
    for service in SENDING {
        for state in [State::Error, State::Reset] {
            let mut sides = slow_to_read(service);
            (0..3).for_each(|id| post(&mut sides[0], id, 600).unwrap());
            run(&mut sides);
            let change = QueuePairAttributes { state: Some(state), ..Default::default() };
            sides[0].endpoint.modify(&change).unwrap();
            run(&mut sides);
            let flushed = [0, 1, 2].map(|id| (id, Status::Flushed));
            let expected = if state == State::Error { &flushed[..] } else { &[] };
            assert_eq!(sent(&sides[0]), expected, "{service:?}");
            for left in [3, 2, 1] {
                assert_eq!(sides[0].endpoint.unfinished(), left, "{service:?} in {state}");
                finish_read(&mut sides, 0);
            }
            assert_eq!((sides[0].endpoint.unfinished(), statuses(&sides[1])), (0, [].into()));
        }
    }
}
