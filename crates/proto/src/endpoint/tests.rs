//! QPs from RESET to their end.

mod finish;
mod lifetimes;

use std::vec;
use std::vec::Vec;

use ferroce_wire::number::{PKey, Psn, QKey, Qpn, RKey, VirtualAddress};
use ferroce_wire::packet::Packet;

use super::{Budget, Endpoint, Event, InboundPacket, PostError, Settings};
use crate::congestion::Congestion;
use crate::memory::AccessFlags;
use crate::qp::{
    AckTimeout, AddressVector, Capabilities, ModifyError, PathMtu, Permission, QueuePairAttributes,
    RnrRetry, RnrTimer, ServiceType, State,
};
use crate::receive::{ReceiveQueue, XrcDomain, XrcProperties};
use crate::testing::{BASE, DOMAIN, KEY, Random, TestMemory, sge};
use crate::time::Instant;
use crate::ud::{self, AddressHandle, Envelope};
use crate::work::{
    Completion, Data, Operation, ReceiveRequest, RemoteAddress, SendRequest, SgList, Status, WorkId,
};

const XRC: XrcDomain = XrcDomain(3);
const SRQ: Qpn = Qpn(0x99);

struct Side {
    endpoint: Endpoint<u8>,
    receives: ReceiveQueue,
    memory: TestMemory,
    sent: Vec<Completion>,
    received: Vec<Completion>,
    events: Vec<Event>,
}

fn side(service: ServiceType, number: u32, shared: bool) -> Side {
    let settings = Settings {
        service,
        number: Qpn(number),
        pd: DOMAIN,
        capabilities: Capabilities { max_send_wr: 16, max_recv_wr: 16, ..Default::default() },
        signal_all: false,
        shared_receives: shared,
        xrc: XRC,
        partition: PKey(0xffff),
        port_mtu: 1024,
        groups: 2,
        congestion: Congestion::default(),
        keepalive: None,
    };
    let receives = match service {
        ServiceType::XrcTarget => {
            ReceiveQueue::with_xrc(16, XrcProperties { xrc: XRC, pd: DOMAIN })
        }
        _ => ReceiveQueue::new(16),
    };
    Side {
        endpoint: Endpoint::new(settings),
        receives,
        memory: TestMemory::new(&mut Random(u64::from(number))),
        sent: Vec::new(),
        received: Vec::new(),
        events: Vec::new(),
    }
}

/// All attributes that the transition accepts, and no others.
fn change(service: ServiceType, from: State, to: State, peer: u32) -> QueuePairAttributes {
    let mut all = QueuePairAttributes {
        state: Some(to),
        access: Some(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ),
        partition: Some(0),
        port: Some(1),
        queue_key: Some(QKey(0x1111)),
        path: Some(AddressVector { port: 1, ..Default::default() }),
        path_mtu: PathMtu::from_bytes(256),
        destination: Some(Qpn(peer)),
        receive_psn: Some(Psn(peer)),
        // Each side's QPN is also its first PSN.
        send_psn: Some(Psn(3 - peer)),
        max_rd_atomic: Some(4),
        max_dest_rd_atomic: Some(4),
        min_rnr_timer: RnrTimer::from_code(1),
        timeout: Some(AckTimeout(8)),
        retry_count: Some(3),
        rnr_retry: Some(RnrRetry(3)),
        ..QueuePairAttributes::default()
    };
    let rule = crate::qp::rule(service, from, to).expect("there is such a transition");
    all.clear(all.attributes() - rule.required - crate::qp::AttributeMask::STATE);
    all
}

const TRANSITION_PATH: [State; 4] =
    [State::Reset, State::Init, State::ReadyToReceive, State::ReadyToSend];

impl Side {
    fn bring(&mut self, to: State, peer: u32) {
        let service = self.endpoint.settings().service;
        let steps = TRANSITION_PATH.windows(2).skip_while(|step| step[0] != self.endpoint.state());
        for step in steps.collect::<Vec<_>>() {
            if self.endpoint.state() == to {
                return;
            }
            self.endpoint.modify(&change(service, step[0], step[1], peer)).unwrap();
        }
    }

    fn post_receive(&mut self, id: u64, offset: u64, length: u32) {
        let sg_list = SgList::from(sge(offset, length));
        self.receives.post(ReceiveRequest { id: WorkId(id), sg_list }).unwrap();
    }

    /// Packets of this side, encoded.
    fn poll(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut buffer = vec![0; 8192];
        while let Some(outgoing) =
            self.endpoint.poll_transmit(now, &mut { Budget::UNLIMITED }, &mut self.memory)
        {
            let psn = outgoing.transmit.bth.psn;
            match outgoing.transmit.encode(&self.memory, &mut buffer) {
                Ok(length) => packets.push([&buffer[..length], &[0; 4]].concat()),
                Err(_) => self.endpoint.handle_denied(psn, true, crate::testing::DENIED),
            }
        }
        self.sent.extend(core::iter::from_fn(|| self.endpoint.poll_send_completion()));
        self.received.extend(core::iter::from_fn(|| self.endpoint.poll_receive_completion()));
        self.events.extend(core::iter::from_fn(|| self.endpoint.poll_event()));
        packets
    }

    fn handle(&mut self, bytes: &[u8], now: Instant) {
        let packet = Packet::parse(bytes).unwrap();
        let envelope = Envelope::default();
        let inbound = InboundPacket {
            time: now,
            packet: &packet,
            packets: 1,
            marked: false,
            envelope: &envelope,
        };
        self.endpoint.handle_packet(&inbound, Some(&mut self.receives), &mut self.memory);
    }
}

fn run(sides: &mut [Side; 2]) {
    let now = Instant::ZERO;
    loop {
        let packets = [0, 1].map(|at| sides[at].poll(now));
        if packets.iter().all(Vec::is_empty) {
            return;
        }
        for (at, packets) in packets.iter().enumerate() {
            packets.iter().for_each(|bytes| sides[1 - at].handle(bytes, now));
        }
    }
}

fn send(id: u64, length: u32) -> SendRequest {
    SendRequest::new(WorkId(id), Operation::SEND, Data::SgList(SgList::from(sge(0, length))))
}

/// A send of any service.
fn post(side: &mut Side, id: u64, length: u32) -> Result<(), PostError> {
    match side.endpoint.settings().service {
        ServiceType::UnreliableDatagram => side.endpoint.post_datagram(ud::SendRequest {
            id: WorkId(id),
            address: AddressHandle { route: 7, destination: Qpn(2), queue_key: QKey(0x1111) },
            immediate: None,
            data: Data::SgList(SgList::from(sge(0, length))),
            signaled: true,
            solicited: false,
        }),
        ServiceType::XrcInitiator => {
            let request = SendRequest { receive_queue: Some(SRQ), ..send(id, length) };
            side.endpoint.post_send(request)
        }
        _ => side.endpoint.post_send(send(id, length)),
    }
}

fn pair(service: ServiceType) -> [Side; 2] {
    let peer = match service {
        ServiceType::XrcInitiator => ServiceType::XrcTarget,
        other => other,
    };
    [side(service, 1, false), side(peer, 2, false)]
}

const SENDING: [ServiceType; 4] = [
    ServiceType::ReliableConnection,
    ServiceType::UnreliableConnection,
    ServiceType::UnreliableDatagram,
    ServiceType::XrcInitiator,
];

#[test]
fn every_service_carries_a_message_from_reset_to_its_completion() {
    for service in SENDING {
        let mut sides = pair(service);
        assert_eq!(sides[0].endpoint.permits_receive() == Permission::Refused, {
            service != ServiceType::XrcInitiator
        });
        for state in [State::Init, State::ReadyToReceive] {
            assert_eq!(post(&mut sides[0], 1, 100), Err(PostError::State), "{service:?}");
            sides[0].bring(state, 2);
        }
        sides[0].bring(State::ReadyToSend, 2);
        sides[1].bring(State::ReadyToReceive, 1);
        sides[1].post_receive(9, 0x1000, 200);
        post(&mut sides[0], 1, 100).unwrap();
        run(&mut sides);
        assert_eq!(sides[0].sent.len(), 1, "{service:?}");
        assert_eq!((sides[0].sent[0].id.0, sides[0].sent[0].status), (1, Status::Success));
        assert_eq!(sides[1].received.len(), 1, "{service:?}");
        let front = if service == ServiceType::UnreliableDatagram { 40 } else { 0 };
        let there = sides[1].memory.part(0x1000 + front, 100);
        assert_eq!(there, sides[0].memory.part(0, 100), "{service:?}");
        let connected = service != ServiceType::UnreliableDatagram;
        assert_eq!(sides[1].events, [Event::Established][..usize::from(connected)]);
    }
}

#[test]
fn reports_a_drained_send_queue_and_resumes() {
    for service in SENDING {
        let mut sides = pair(service);
        sides[0].bring(State::ReadyToSend, 2);
        sides[1].bring(State::ReadyToReceive, 1);
        (0..2).for_each(|id| sides[1].post_receive(id, 0x1000, 2000));
        post(&mut sides[0], 1, 900).unwrap();
        // One of its packets is in flight.
        let now = Instant::ZERO;
        let first = {
            let Side { endpoint, memory, .. } = &mut sides[0];
            let outgoing = endpoint.poll_transmit(now, &mut { Budget::UNLIMITED }, memory).unwrap();
            let mut buffer = vec![0; 8192];
            let length = outgoing.transmit.encode(memory, &mut buffer).unwrap();
            [&buffer[..length], &[0; 4]].concat()
        };
        let drain = QueuePairAttributes {
            state: Some(State::SendQueueDrain),
            drain_notice: Some(true),
            ..QueuePairAttributes::default()
        };
        sides[0].endpoint.modify(&drain).unwrap();
        post(&mut sides[0], 2, 10).unwrap();
        let resume = QueuePairAttributes {
            state: Some(State::ReadyToSend),
            ..QueuePairAttributes::default()
        };
        if service != ServiceType::UnreliableDatagram {
            assert!(sides[0].endpoint.is_draining(), "{service:?}");
            assert_eq!(sides[0].endpoint.modify(&resume), Err(ModifyError::StillDraining));
        }
        sides[1].handle(&first, now);
        run(&mut sides);
        assert_eq!(sides[0].events, [Event::SendQueueDrained], "{service:?}");
        assert_eq!(sides[0].sent.len(), 1, "{service:?}: the second waits");
        sides[0].endpoint.modify(&resume).unwrap();
        run(&mut sides);
        assert_eq!(sides[0].sent.len(), 2, "{service:?}");
    }
}

#[test]
fn a_failed_send_enters_sqe_or_err_by_service() {
    for service in SENDING {
        let mut sides = pair(service);
        sides[0].bring(State::ReadyToSend, 2);
        sides[1].bring(State::ReadyToReceive, 1);
        sides[0].memory.valid = false;
        post(&mut sides[0], 1, 100).unwrap();
        post(&mut sides[0], 2, 100).unwrap();
        run(&mut sides);
        let statuses: Vec<_> = sides[0].sent.iter().map(|one| one.status).collect();
        assert_eq!(statuses, [Status::LocalProtection, Status::Flushed], "{service:?}");
        let acknowledged =
            matches!(service, ServiceType::ReliableConnection | ServiceType::XrcInitiator);
        let expected = if acknowledged { State::Error } else { State::SendQueueError };
        assert_eq!(sides[0].endpoint.state(), expected);
        if acknowledged {
            continue;
        }
        // After the repair it resumes.
        sides[0].memory.valid = true;
        let resume = QueuePairAttributes {
            state: Some(State::ReadyToSend),
            ..QueuePairAttributes::default()
        };
        sides[0].endpoint.modify(&resume).unwrap();
        sides[1].post_receive(9, 0x1000, 200);
        post(&mut sides[0], 3, 100).unwrap();
        run(&mut sides);
        assert_eq!(sides[0].sent.last().map(|one| one.status), Some(Status::Success));
    }
}

#[test]
fn a_fatal_nak_raises_an_event_at_the_responder() {
    for (key, length, event) in
        [(KEY + 1, 8, Event::AccessRefused), (KEY, 8, Event::RequestRefused)]
    {
        let mut sides = [
            side(ServiceType::ReliableConnection, 1, false),
            side(ServiceType::ReliableConnection, 2, true),
        ];
        sides[0].bring(State::ReadyToSend, 2);
        sides[1].bring(State::ReadyToSend, 1);
        if event == Event::RequestRefused {
            let none = QueuePairAttributes {
                access: Some(AccessFlags::default()),
                ..QueuePairAttributes::default()
            };
            sides[1].endpoint.modify(&none).unwrap();
        }
        let remote = RemoteAddress { address: VirtualAddress(BASE), key: RKey(key) };
        let write = Operation::Write { remote, immediate: None };
        let data = Data::SgList(SgList::from(sge(0, length)));
        sides[0].endpoint.post_send(SendRequest::new(WorkId(1), write, data)).unwrap();
        run(&mut sides);
        assert_ne!(sides[0].sent[0].status, Status::Success);
        assert_eq!(sides[1].events, [event, Event::LastReceiveReached]);
        assert_eq!(sides[1].endpoint.state(), State::Error);
    }
}

/// Events are for errors that no completion reports (IBA 11.6.3.2).
#[test]
fn an_error_with_a_receive_completion_raises_no_event() {
    for (key, room, status) in
        [(KEY + 1, 100, Status::LocalProtection), (KEY, 99, Status::LocalLength)]
    {
        let mut sides = pair(ServiceType::ReliableConnection);
        sides[0].bring(State::ReadyToSend, 2);
        sides[1].bring(State::ReadyToSend, 1);
        let mut buffer = sge(0x1000, room);
        buffer.key.0 = key;
        let sg_list = SgList::from(buffer);
        sides[1].receives.post(ReceiveRequest { id: WorkId(9), sg_list }).unwrap();
        post(&mut sides[0], 1, 100).unwrap();
        run(&mut sides);
        assert_eq!(sides[1].received[0].status, status);
        assert_eq!(sides[1].events, []);
        assert_eq!(sides[1].endpoint.state(), State::Error);
    }
}

#[test]
fn err_flushes_and_reset_discards() {
    let mut sides = pair(ServiceType::ReliableConnection);
    sides[0].bring(State::ReadyToSend, 2);
    sides[0].post_receive(5, 0, 10);
    post(&mut sides[0], 1, 100).unwrap();
    let error = QueuePairAttributes { state: Some(State::Error), ..QueuePairAttributes::default() };
    sides[0].endpoint.modify(&error).unwrap();
    post(&mut sides[0], 2, 100).unwrap();
    assert_eq!(sides[0].poll(Instant::ZERO), Vec::<Vec<u8>>::new());
    let ended: Vec<_> = sides[0].sent.iter().map(|one| (one.id.0, one.status)).collect();
    assert_eq!(ended, [(1, Status::Flushed), (2, Status::Flushed)]);
    let Side { endpoint, receives, .. } = &mut sides[0];
    assert_eq!(endpoint.flush_receive(receives).map(|one| one.id.0), Some(5));
    assert_eq!(endpoint.flush_receive(receives), None);

    let reset = QueuePairAttributes { state: Some(State::Reset), ..QueuePairAttributes::default() };
    endpoint.modify(&reset).unwrap();
    assert_eq!(
        endpoint.attributes(),
        QueuePairAttributes { state: Some(State::Reset), ..QueuePairAttributes::default() }
    );
    assert_eq!((endpoint.poll_event(), endpoint.poll_send_completion()), (None, None));
    // It can be used again.
    sides[0].bring(State::ReadyToSend, 2);
    sides[1].bring(State::ReadyToReceive, 1);
    sides[1].post_receive(9, 0x1000, 200);
    sides[0].sent.clear();
    post(&mut sides[0], 3, 100).unwrap();
    run(&mut sides);
    assert_eq!(sides[0].sent[0].status, Status::Success);
}

/// A datagram needs an address, and the requests of other services must have none.
#[test]
fn requests_of_another_service_are_refused() {
    for service in SENDING {
        let mut side = side(service, 1, false);
        side.bring(State::ReadyToSend, 2);
        let datagrams = side.endpoint.datagram().is_some();
        assert_eq!(datagrams, service == ServiceType::UnreliableDatagram);
        let posted = match datagrams {
            true => side.endpoint.post_send(send(1, 10)),
            false => side.endpoint.post_datagram(ud::SendRequest {
                id: WorkId(1),
                address: AddressHandle::default(),
                immediate: None,
                data: Data::NONE,
                signaled: true,
                solicited: false,
            }),
        };
        assert_eq!(posted, Err(PostError::Address), "{service:?}");
        assert_eq!(side.endpoint.send_queue_len(), 0);
    }
}

/// ERR flushes what is posted (IBA 10.3.1.7), whatever the state before it; other states without a peer refuse it.
#[test]
fn a_queue_pair_that_was_never_connected_flushes_in_err() {
    for service in SENDING {
        for from in TRANSITION_PATH {
            for fatal in [false, true] {
                let mut side = side(service, 1, false);
                side.bring(from, 2);
                if from != State::ReadyToSend {
                    assert_eq!(
                        post(&mut side, 1, 10),
                        Err(PostError::State),
                        "{service:?} in {from}"
                    );
                }
                let error = QueuePairAttributes {
                    state: Some(State::Error),
                    ..QueuePairAttributes::default()
                };
                if fatal {
                    side.endpoint.handle_fatal();
                } else {
                    side.endpoint.modify(&error).unwrap();
                }
                if side.endpoint.state() == State::Reset {
                    // A report that is late: the next connection is another one.
                    side.bring(State::ReadyToSend, 2);
                    post(&mut side, 1, 10).unwrap();
                    assert_eq!(side.poll(Instant::ZERO).len(), 1, "{service:?}");
                    continue;
                }
                side.post_receive(9, 0, 10);
                (2..4).for_each(|id| post(&mut side, id, 10).unwrap());
                assert_eq!(side.poll(Instant::ZERO), Vec::<Vec<u8>>::new());
                let ended: Vec<_> = side.sent.iter().map(|one| (one.id.0, one.status)).collect();
                let expected = [(2, Status::Flushed), (3, Status::Flushed)];
                assert_eq!(ended, expected, "{service:?} from {from}");
                let Side { endpoint, receives, .. } = &mut side;
                assert_eq!(endpoint.flush_receive(receives).map(|one| one.id.0), Some(9));
                assert_eq!(side.events, [Event::Fatal][..usize::from(fatal)]);
                side.endpoint
                    .modify(&QueuePairAttributes { state: Some(State::Reset), ..error })
                    .unwrap();
                assert_eq!(post(&mut side, 4, 10), Err(PostError::State), "{service:?}");
            }
        }
    }
}

#[test]
fn a_fatal_error_is_reported_once() {
    let mut sides = pair(ServiceType::UnreliableConnection);
    sides[0].bring(State::ReadyToSend, 2);
    sides[0].endpoint.handle_fatal();
    sides[0].endpoint.handle_fatal();
    sides[0].poll(Instant::ZERO);
    assert_eq!(sides[0].events, [Event::Fatal]);
    assert_eq!(sides[0].endpoint.state(), State::Error);
}
