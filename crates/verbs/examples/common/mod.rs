//! What the examples share: one end of a connection, and the ways to get there by the connection manager.
#![allow(dead_code)] // Each example uses a part of it.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use ferroce::cm::{CmId, ConnectParameters, EventChannel, EventKind, PortSpace};
use ferroce::*;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Local write, and everything that a peer may do.
pub(crate) const SHARED: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Resolving asks nobody, so it takes no time to speak of.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// One end: a queue pair, where its work completes, and memory.
pub(crate) struct End {
    pub(crate) pd: ProtectionDomain,
    pub(crate) completions: CompletionQueue,
    pub(crate) queue_pair: QueuePair,
    pub(crate) region: MemoryRegion,
}

impl End {
    /// What an id needs before it connects or accepts.
    pub(crate) fn new(id: &CmId, service: ServiceType, bytes: usize) -> Outcome<Self> {
        let context = id.context().ok_or("the id has no device yet")?;
        let pd = context.protection_domain();
        let channel = CompletionChannel::new()?;
        let completions = context.completion_queue(256, Some(&channel))?;
        let options = QueuePairOptions::new(service, &completions);
        let queue_pair = id.create_queue_pair(&pd, &options)?;
        let region = pd.allocate(bytes, SHARED)?;
        Ok(Self { pd, completions, queue_pair, region })
    }

    /// A part of the region, for a work request.
    pub(crate) fn data(&self, offset: u64, length: u32) -> Data {
        Data::SgList(self.region.sge(offset, length).into())
    }

    pub(crate) fn post(
        &self,
        id: u64,
        operation: Operation,
        offset: u64,
        length: u32,
    ) -> Outcome<()> {
        let request = SendRequest::new(WorkId(id), operation, self.data(offset, length));
        Ok(self.queue_pair.post_send(request)?)
    }

    pub(crate) fn post_receive(&self, id: u64, offset: u64, length: u32) -> Outcome<()> {
        let sg_list = self.region.sge(offset, length).into();
        Ok(self.queue_pair.post_receive(ReceiveRequest { id: WorkId(id), sg_list })?)
    }

    /// Waits for a completion, which must be a success.
    pub(crate) fn done(&self) -> Outcome<WorkCompletion> {
        let done = self.completions.wait()?;
        match done.status {
            Status::Success => Ok(done),
            status => Err(format!("request {} ended with {status:?}", done.id.0).into()),
        }
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.region.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Address and key of the region: what a peer needs to reach it.
    pub(crate) fn capability(&self) -> Vec<u8> {
        let RemoteAddress { address, key } = self.region.remote(0);
        [&address.0.to_be_bytes()[..], &key.0.to_be_bytes()].concat()
    }
}

/// The other side of [`End::capability`].
pub(crate) fn remote(private_data: &[u8]) -> Outcome<RemoteAddress> {
    let (address, rest) = private_data.split_first_chunk().ok_or("no address")?;
    let (key, _) = rest.split_first_chunk().ok_or("no key")?;
    let address = VirtualAddress(u64::from_be_bytes(*address));
    Ok(RemoteAddress { address, key: RKey(u32::from_be_bytes(*key)) })
}

/// Waits for the next event.
pub(crate) fn next(channel: &EventChannel) -> Outcome<EventKind> {
    Ok(channel.wait(None)?.ok_or("no event")?.kind)
}

/// A listener; port 0 is any that is free.
pub(crate) fn listen(channel: &EventChannel, address: SocketAddr) -> Outcome<(CmId, SocketAddr)> {
    let listener = CmId::new(channel, PortSpace::Tcp)?;
    listener.bind(address)?;
    listener.listen(0)?;
    let address = listener.local_address().ok_or("not bound")?;
    Ok((listener, address))
}

/// Waits for a client and accepts it, with the capability of our region. `before` posts the first receives.
pub(crate) fn accept(
    channel: &EventChannel,
    bytes: usize,
    before: impl FnOnce(&End) -> Outcome<()>,
) -> Outcome<(CmId, End)> {
    let EventKind::ConnectRequest(request) = next(channel)? else {
        return Err("no request".into());
    };
    let end = End::new(&request.id, ServiceType::ReliableConnection, bytes)?;
    before(&end)?;
    request.id.accept(&parameters(end.capability()))?;
    Ok((request.id, end))
}

/// Connects to a listener, and returns where its memory is.
pub(crate) fn connect(
    channel: &EventChannel,
    server: SocketAddr,
    bytes: usize,
) -> Outcome<(CmId, End, RemoteAddress)> {
    let id = CmId::new(channel, PortSpace::Tcp)?;
    id.resolve_address(None, server, SECOND)?;
    let EventKind::AddressResolved = next(channel)? else { return Err("no way there".into()) };
    id.resolve_route(SECOND)?;
    let EventKind::RouteResolved = next(channel)? else { return Err("no route there".into()) };
    let end = End::new(&id, ServiceType::ReliableConnection, bytes)?;
    id.connect(&parameters(Vec::new()))?;
    match next(channel)? {
        EventKind::Established(up) => Ok((id, end, remote(&up.private_data)?)),
        other => Err(format!("not connected: {other:?}").into()),
    }
}

pub(crate) fn parameters(private_data: Vec<u8>) -> ConnectParameters {
    ConnectParameters { private_data, ..ConnectParameters::default() }
}

/// Waits until the connection is over, whoever ends it.
pub(crate) fn ended(channel: &EventChannel) -> Outcome<()> {
    while !matches!(next(channel)?, EventKind::Disconnected) {}
    Ok(())
}

/// Brings a queue pair from RESET to RTS, with what each step wants. A connection manager does this for other services.
pub(crate) fn bring_up(queue_pair: &QueuePair, source_index: u8, peer: Qpn) -> Outcome<()> {
    let gids = queue_pair.context().device().gids();
    let all = QueuePairAttributes {
        access: Some(SHARED),
        partition: Some(0),
        port: Some(1),
        path: Some(AddressVector {
            port: 1,
            source_index,
            destination: gids.get(usize::from(source_index)).ok_or("no such GID")?.gid,
            ..AddressVector::default()
        }),
        path_mtu: Some(queue_pair.context().mtu()),
        destination: Some(peer),
        receive_psn: Some(Psn(0)),
        send_psn: Some(Psn(0)),
        max_rd_atomic: Some(1),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: RnrTimer::from_code(12),
        timeout: Some(AckTimeout(14)),
        retry_count: Some(7),
        rnr_retry: Some(RnrRetry(7)),
        ..QueuePairAttributes::default()
    };
    let steps = [State::Reset, State::Init, State::ReadyToReceive, State::ReadyToSend];
    for step in steps.windows(2) {
        let mut change = QueuePairAttributes { state: Some(step[1]), ..all };
        let rule = rule(queue_pair.service(), step[0], step[1]).ok_or("no such step")?;
        change.clear(change.attributes() - rule.required - AttributeMask::STATE);
        queue_pair.modify(&change)?;
    }
    Ok(())
}
