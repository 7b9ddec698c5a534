//! Helpers of the tests: ends of connections, and waiting for events.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use ferroce::cm::{
    CmId, ConnectParameters, DatagramPeer, Event, EventChannel, EventKind, PortSpace, Request,
    ResponseTimeout,
};
use ferroce::*;

use crate::other::port;

pub(crate) const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// A channel whose cm_ids use a UDP port of this test only: on the common port, processes come and go, and a message may be
/// lost with one of them.
pub(crate) fn channel() -> EventChannel {
    let options = Options { port: port(), ..Options::from_env().unwrap() };
    EventChannel::with_options(options).unwrap()
}

/// Waits for the next event, for up to 20 s on a busy host.
pub(crate) fn next(channel: &EventChannel) -> Event {
    let deadline = Instant::now() + Duration::from_secs(20);
    channel.wait(Some(deadline)).unwrap().expect("no event")
}

/// Waits for the next event, which must be this one of this cm_id.
macro_rules! expect {
    ($channel:expr, $id:expr, $kind:pat => $out:expr) => {{
        let event = next(&$channel);
        assert_eq!(event.id, $id.name(), "{event:?}");
        match event.kind {
            $kind => $out,
            other => panic!("another event: {other:?}"),
        }
    }};
    ($channel:expr, $id:expr, $kind:pat) => {
        expect!($channel, $id, $kind => ())
    };
}

pub(crate) fn listener(
    channel: &EventChannel,
    space: PortSpace,
    ip: IpAddr,
    backlog: usize,
) -> (CmId, SocketAddr) {
    let id = CmId::new(channel, space).unwrap();
    id.bind(SocketAddr::new(ip, 0)).unwrap();
    id.listen(backlog).unwrap();
    let address = id.local_address().unwrap();
    assert_ne!(address.port(), 0);
    (id, address)
}

/// A cm_id that is ready to connect.
pub(crate) fn resolved(channel: &EventChannel, space: PortSpace, to: SocketAddr) -> CmId {
    let id = CmId::new(channel, space).unwrap();
    id.resolve_address(None, to, SECOND).unwrap();
    expect!(channel, id, EventKind::AddressResolved);
    id.resolve_route(SECOND).unwrap();
    expect!(channel, id, EventKind::RouteResolved);
    id
}

/// The resources of an end of a connection.
pub(crate) struct End {
    pub(crate) queue_pair: QueuePair,
    pub(crate) completions: CompletionQueue,
    pub(crate) region: MemoryRegion,
    pub(crate) pd: ProtectionDomain,
}

pub(crate) fn equip_with(id: &CmId, service: ServiceType) -> End {
    let context = id.context().unwrap();
    let pd = context.protection_domain();
    let channel = CompletionChannel::new().unwrap();
    let completions = context.completion_queue(64, Some(&channel)).unwrap();
    let options = QueuePairOptions::new(service, &completions);
    let queue_pair = id.create_queue_pair(&pd, &options).unwrap();
    End { queue_pair, completions, region: pd.allocate(1 << 16, ACCESS).unwrap(), pd }
}

pub(crate) fn equip(id: &CmId) -> End {
    equip_with(id, ServiceType::ReliableConnection)
}

impl End {
    pub(crate) fn receive(&self, offset: u64, length: u32) {
        let sg_list = self.region.sge(offset, length).into();
        self.queue_pair.post_receive(ReceiveRequest { id: WorkId(7), sg_list }).unwrap();
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        self.region.write(0, bytes).unwrap();
        let data = Data::SgList(self.region.sge(0, bytes.len() as u32).into());
        self.queue_pair
            .post_send(SendRequest::new(
                WorkId(1),
                Operation::Send { immediate: None, invalidate: None },
                data,
            ))
            .unwrap();
    }

    pub(crate) fn done(&self) -> WorkCompletion {
        let done = self.completions.wait().unwrap();
        assert_eq!(done.status, Status::Success);
        done
    }

    pub(crate) fn holds(&self, offset: usize, bytes: &[u8]) {
        let mut found = vec![0; bytes.len()];
        self.region.read(offset, &mut found).unwrap();
        assert_eq!(found, bytes);
    }
}

pub(crate) fn with_data(private_data: &[u8]) -> ConnectParameters {
    ConnectParameters { private_data: private_data.into(), ..ConnectParameters::default() }
}

/// Short timeouts, for requests without a response.
pub(crate) fn short_timeouts() -> ConnectParameters {
    ConnectParameters {
        ack_timeout: AckTimeout(10),
        response_timeout: ResponseTimeout(12),
        max_retries: 2,
        ..ConnectParameters::default()
    }
}

pub(crate) fn padded(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut all = bytes.to_vec();
    all.resize(length, 0);
    all
}

pub(crate) fn request(channel: &EventChannel, listener: &CmId) -> Box<Request> {
    expect!(channel, listener, EventKind::ConnectRequest(request) => request)
}

/// An established connection.
pub(crate) struct Pair {
    pub(crate) client: (EventChannel, CmId, End),
    pub(crate) server: (EventChannel, CmId, End),
    pub(crate) _listener: CmId,
}

pub(crate) fn connected(ip: IpAddr, wish: &ConnectParameters, answer: &ConnectParameters) -> Pair {
    let (here, there) = (channel(), channel());
    let (listener, address) = listener(&there, PortSpace::Tcp, ip, 0);
    let client = resolved(&here, PortSpace::Tcp, address);
    let end = equip(&client);
    client.connect(wish).unwrap();
    let asked = request(&there, &listener);
    assert_eq!(asked.private_data, padded(&wish.private_data, 56));
    let server = asked.id;
    let other = equip(&server);
    other.receive(1024, 1024);
    end.receive(1024, 1024);
    server.accept(answer).unwrap();
    let up = expect!(here, client, EventKind::Established(up) => up);
    assert_eq!(up.private_data, padded(&answer.private_data, 196));
    assert_eq!(up.parameters.queue_pair, other.queue_pair.number());
    expect!(there, server, EventKind::Established(_));
    assert_eq!(client.peer_address(), Some(address));
    assert_eq!(server.peer_address(), client.local_address());
    assert_eq!(server.local_address().unwrap(), address);
    Pair { client: (here, client, end), server: (there, server, other), _listener: listener }
}

pub(crate) fn data_both_ways(one: &End, other: &End) {
    for (from, to) in [(one, other), (other, one)] {
        from.send(b"through the middle");
        let (sent, received) = (from.done(), to.done());
        assert_eq!((sent.id, received.id), (WorkId(1), WorkId(7)));
        to.holds(1024, b"through the middle");
    }
}

pub(crate) fn datagram(from: &End, peer: &DatagramPeer, bytes: &[u8]) {
    from.region.write(0, bytes).unwrap();
    let address = from.pd.address_handle(&peer.address).unwrap();
    let data = Data::SgList(from.region.sge(0, bytes.len() as u32).into());
    let request = address.request(WorkId(1), peer.queue_pair, peer.queue_key, data);
    let request = UdSendRequest { immediate: Some(Immediate(77)), ..request };
    from.queue_pair.post_datagram(request).unwrap();
    from.done();
}
