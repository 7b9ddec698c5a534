//! Memory that takes time, for QPs of all services.

use core::time::Duration;
use std::vec::Vec;

use super::{SENDING, Side, pair, post, run, side};
use crate::endpoint::{Event, InboundPacket};
use crate::qp::{QueuePairAttributes, ServiceType, State};
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
    match side.memory.finish(0) {
        Ended::Access(finished) => side.endpoint.handle_finished(&finished),
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
