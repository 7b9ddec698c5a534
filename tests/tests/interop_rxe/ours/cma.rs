//! Connections by the connection manager, and the peers of `ucmatose` and `udaddy`; and cases without a listener.

use std::net::SocketAddr;
use std::time::Duration;

use ferroce::cm::{
    CmId, ConnectParameters, DATAGRAM_QUEUE_KEY, Established, EventChannel, EventKind, PortSpace,
    RejectReason, SidrStatus,
};
use ferroce::*;

use super::end::{End, pattern, same};
use super::{Task, ready, wait_for_the_other};

/// The port of `ucmatose`.
const CONNECTIONS: u16 = 7471;
/// The port of `udaddy`.
const DATAGRAMS: u16 = 7174;
/// A port without a listener.
const NOBODY: u16 = 7999;
const SECOND: Duration = Duration::from_secs(1);
/// The bytes of the GRH before each datagram.
const GRH: usize = 40;

/// An established connection, or a UD association.
pub(crate) struct Connection {
    pub events: EventChannel,
    pub id: CmId,
    pub queue_pair: QueuePair,
    pub end: End,
    /// Its private data; empty on the passive side of UD.
    established: Option<Box<Established>>,
    _listener: Option<CmId>,
}

/// Waits for the next event of any id.
pub(crate) fn event(events: &EventChannel) -> EventKind {
    events.wait(None).expect("a channel").expect("an event").kind
}

fn space(service: ServiceType) -> PortSpace {
    match service {
        ServiceType::UnreliableDatagram => PortSpace::Udp,
        _ => PortSpace::Tcp,
    }
}

fn equip(task: &Task, id: &CmId, service: ServiceType, bytes: usize) -> (End, QueuePair) {
    let context = id.context().expect("a device");
    let end = End::of(&context, id.source_index().expect("a source"), task, bytes);
    let options = QueuePairOptions::new(service, &end.completions);
    let queue_pair = id.create_queue_pair(&end.pd, &options).expect("a queue pair");
    (end, queue_pair)
}

fn bound(task: &Task, events: &EventChannel, port: u16, service: ServiceType) -> CmId {
    let listener = CmId::new(events, space(service)).expect("an id");
    listener.bind(SocketAddr::new(task.here(), port)).expect("a port");
    listener.listen(0).expect("a listener");
    ready();
    listener
}

/// Waits for a client, and accepts it. `prepare` is called before the client can send.
pub(crate) fn listen(
    task: &Task,
    port: u16,
    service: ServiceType,
    bytes: usize,
    answer: &ConnectParameters,
    prepare: impl FnOnce(&Connection),
) -> Connection {
    let events = EventChannel::new().expect("a channel");
    let listener = bound(task, &events, port, service);
    let EventKind::ConnectRequest(request) = event(&events) else { panic!("no request") };
    assert_eq!(request.id.peer_address().map(|peer| peer.ip()), Some(task.there()));
    let id = request.id;
    let (end, queue_pair) = equip(task, &id, service, bytes);
    let _listener = Some(listener);
    let mut peer = Connection { events, id, queue_pair, end, established: None, _listener };
    prepare(&peer);
    peer.id.accept(answer).expect("a client that waits");
    if service != ServiceType::UnreliableDatagram {
        assert_eq!(peer.id.path_mtu().bytes(), Some(task.mtu));
        let EventKind::Established(up) = event(&peer.events) else { panic!("no connection") };
        peer.established = Some(up);
    }
    peer
}

/// Returns an id with a resolved route to the machine, and its queue pair.
fn resolved(
    task: &Task,
    events: &EventChannel,
    port: u16,
    service: ServiceType,
    bytes: usize,
) -> (CmId, End, QueuePair) {
    let id = CmId::new(events, space(service)).expect("an id");
    id.resolve_address(None, SocketAddr::new(task.there(), port), SECOND).expect("an address");
    assert!(matches!(event(events), EventKind::AddressResolved));
    id.resolve_route(SECOND).expect("a route");
    assert!(matches!(event(events), EventKind::RouteResolved));
    assert_eq!(id.path_mtu().bytes(), Some(task.mtu));
    let (end, queue_pair) = equip(task, &id, service, bytes);
    (id, end, queue_pair)
}

/// Connects to the machine's server. `prepare` is called before the server can send.
pub(crate) fn connect(
    task: &Task,
    port: u16,
    service: ServiceType,
    bytes: usize,
    wish: &ConnectParameters,
    prepare: impl FnOnce(&Connection),
) -> Connection {
    let events = EventChannel::new().expect("a channel");
    let (id, end, queue_pair) = resolved(task, &events, port, service, bytes);
    let mut peer = Connection { events, id, queue_pair, end, established: None, _listener: None };
    prepare(&peer);
    peer.id.connect(wish).expect("a request");
    match event(&peer.events) {
        EventKind::Established(up) => peer.established = Some(up),
        other => panic!("no connection: {other:?}"),
    }
    peer
}

/// Posts all receives, to consecutive buffers.
fn post_receives(peer: &Connection, task: &Task, room: usize) {
    for number in 0..task.count {
        let receive = peer.end.receive(number * room, room);
        peer.queue_pair.post_receive(receive).expect("a receive");
    }
}

/// `ucmatose`: the server sends its messages, the client sends the same number back, and the server disconnects.
pub(crate) fn connections(task: &Task) {
    let (size, count) = (task.size, task.count);
    let (service, parameters) = (ServiceType::ReliableConnection, ConnectParameters::default());
    let prepare = |peer: &Connection| post_receives(peer, task, size);
    let (room, out) = (size * (count + 1), size * count);
    let establish = if task.serves { listen } else { connect };
    let peer = establish(task, CONNECTIONS, service, room, &parameters, &prepare);
    let sent_bytes = pattern(7, size);
    peer.end.write(out, &sent_bytes);
    let send =
        || (0..count).for_each(|_| peer.end.post(&peer.queue_pair, Operation::SEND, out, size));
    let (mut sent, mut received) = (0, 0);
    if task.serves {
        send();
    }
    while received < count || sent < count {
        let done = peer.end.next();
        // The server disconnects when it has received all, possibly before a lost acknowledgement is retransmitted.
        let ended = !task.serves && received == count && done.status == Status::Flushed;
        assert!(done.status == Status::Success || (task.lossy && ended), "{done:?}");
        if done.kind != CompletionKind::Receive {
            sent += 1;
            continue;
        }
        assert_eq!(done.length as usize, size);
        if task.serves {
            // It responds from the buffer that it receives into.
            same(&peer.end.bytes(received * size, size), &sent_bytes, "what came back");
        }
        received += 1;
        if received == count && !task.serves {
            send();
        }
    }
    if task.serves {
        peer.id.disconnect().expect("a connection");
    }
    assert!(matches!(event(&peer.events), EventKind::Disconnected(_)));
    wait_for_the_other();
}

/// `udaddy`: the client sends datagrams, and the server sends the same number back, each with the sender's QPN.
pub(crate) fn datagrams(task: &Task) {
    let (size, count) = (task.size, task.count);
    let (service, parameters) = (ServiceType::UnreliableDatagram, ConnectParameters::default());
    let room = GRH + size;
    let prepare = |peer: &Connection| post_receives(peer, task, room);
    let out = room * count;
    let establish = if task.serves { listen } else { connect };
    let peer = establish(task, DATAGRAMS, service, out + size, &parameters, &prepare);
    peer.end.write(out, &pattern(9, size));
    let send = |destination: Qpn, queue_key: QKey, path: &AddressVector| {
        let address = peer.end.pd.address_handle(path).expect("a way");
        for _ in 0..count {
            let datagram = UdSendRequest {
                immediate: Some(Immediate(peer.queue_pair.number().0)),
                ..address.request(WorkId(1), destination, queue_key, peer.end.data(out, size))
            };
            peer.queue_pair.post_datagram(datagram).expect("a datagram");
        }
    };
    if let Some(up) = &peer.established {
        let there = up.datagram.expect("a datagram queue pair");
        send(there.queue_pair, there.queue_key, &there.address);
    }
    let (mut sent, mut received) = (0, 0);
    while received < count || sent < count {
        let done = peer.end.done();
        if done.kind != CompletionKind::Receive {
            sent += 1;
            continue;
        }
        assert_eq!(done.length as usize, room);
        assert_eq!(done.immediate.map(|number| Qpn(number.0)), done.source);
        received += 1;
        if received == count && task.serves {
            let from = done.source.expect("a sender");
            send(from, DATAGRAM_QUEUE_KEY, &peer.end.path(Gid::from_ip(task.there())));
        }
    }
    wait_for_the_other();
}

/// The machine connects to us, and we have no listener.
pub(crate) fn nobody(task: &Task) {
    let _device = End::open(task, 4096);
    ready();
    wait_for_the_other();
}

/// The machine connects to us, and we reject it.
pub(crate) fn refuse(task: &Task) {
    let events = EventChannel::new().expect("a channel");
    let _listener = bound(task, &events, CONNECTIONS, ServiceType::ReliableConnection);
    let EventKind::ConnectRequest(request) = event(&events) else { panic!("no request") };
    request.id.reject(b"not today").expect("a client that waits");
    wait_for_the_other();
}

/// We connect to the machine, which has no listener.
pub(crate) fn nobody_there(task: &Task) {
    let events = EventChannel::new().expect("a channel");
    let (id, ..) = resolved(task, &events, NOBODY, ServiceType::ReliableConnection, 4096);
    id.connect(&ConnectParameters::default()).expect("a request");
    match event(&events) {
        EventKind::Rejected { reason, .. } => assert_eq!(reason, RejectReason::INVALID_SERVICE_ID),
        other => panic!("not rejected: {other:?}"),
    }
}

/// We send a UD request to the machine, which has no listener.
pub(crate) fn no_datagrams_there(task: &Task) {
    let events = EventChannel::new().expect("a channel");
    let (id, ..) = resolved(task, &events, NOBODY, ServiceType::UnreliableDatagram, 4096);
    id.connect(&ConnectParameters::default()).expect("a request");
    match event(&events) {
        EventKind::Unreachable(status) => assert_eq!(status, Some(SidrStatus::UNSUPPORTED_SERVICE)),
        other => panic!("not refused: {other:?}"),
    }
}
