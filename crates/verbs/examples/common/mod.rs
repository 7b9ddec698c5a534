//! Helpers of the examples: one end of a connection, and how to get it from the connection manager.
#![allow(dead_code)] // Each example uses some of them.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use ferroce::cm::{CmId, ConnectParameters, EventChannel, PortSpace};
use ferroce::*;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Local write, and all remote access.
pub(crate) const SHARED: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// One end of a connection: a queue pair, its completion queue, and memory.
pub(crate) struct End {
    pub(crate) pd: ProtectionDomain,
    pub(crate) completions: CompletionQueue,
    pub(crate) queue_pair: QueuePair,
    pub(crate) region: MemoryRegion,
}

impl End {
    pub(crate) fn new(id: &CmId, service: ServiceType, bytes: usize) -> Outcome<Self> {
        let context = id.context().ok_or("the cm_id has no device yet")?;
        let pd = context.protection_domain();
        let completions = context.completion_queue(256, Some(&CompletionChannel::new()?))?;
        let queue_pair =
            id.create_queue_pair(&pd, &QueuePairOptions::new(service, &completions))?;
        let region = pd.allocate(bytes, SHARED)?;
        Ok(Self { pd, completions, queue_pair, region })
    }

    pub(crate) fn post(&self, id: u64, what: Operation, offset: u64, length: u32) -> Outcome<()> {
        let data = Data::SgList(self.region.sge(offset, length).into());
        Ok(self.queue_pair.post_send(SendRequest::new(WorkId(id), what, data))?)
    }

    pub(crate) fn post_receive(&self, id: u64, offset: u64, length: u32) -> Outcome<()> {
        let sg_list = self.region.sge(offset, length).into();
        Ok(self.queue_pair.post_receive(ReceiveRequest { id: WorkId(id), sg_list })?)
    }

    /// Waits for a successful completion.
    pub(crate) fn done(&self) -> Outcome<WorkCompletion> {
        match self.completions.wait()? {
            done if done.status == Status::Success => Ok(done),
            done => Err(format!("request {} failed: {:?}", done.id.0, done.status).into()),
        }
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.region.read(offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// Creates a listener at a free port of the loopback.
pub(crate) fn listen(channel: &EventChannel, space: PortSpace) -> Outcome<(CmId, SocketAddr)> {
    let listener = CmId::new(channel, space)?;
    listener.bind("127.0.0.1:0".parse()?)?;
    listener.listen(0)?;
    let address = listener.local_address().ok_or("not bound")?;
    Ok((listener, address))
}

/// Accepts a client, and sends it the address and rkey of the memory. `before` posts the first receives.
pub(crate) fn accept(
    channel: &EventChannel,
    bytes: usize,
    before: impl FnOnce(&End) -> Outcome<()>,
) -> Outcome<(CmId, End)> {
    let id = channel.wait_request(None)?.id;
    let end = End::new(&id, ServiceType::ReliableConnection, bytes)?;
    before(&end)?;
    let RemoteAddress { address, key } = end.region.remote(0);
    let private_data = [&address.0.to_be_bytes()[..], &key.0.to_be_bytes()].concat();
    id.accept(&ConnectParameters { private_data, ..ConnectParameters::default() })?;
    Ok((id, end))
}

/// Connects to a listener, and returns the address of its memory.
pub(crate) fn connect(server: SocketAddr, bytes: usize) -> Outcome<(CmId, End, RemoteAddress)> {
    let channel = EventChannel::from_env()?;
    let id = CmId::resolve(&channel, PortSpace::Tcp, server, Duration::from_secs(1))?;
    let end = End::new(&id, ServiceType::ReliableConnection, bytes)?;
    let accepted = id.connect_blocking(&ConnectParameters::default(), None)?;
    let (address, rest) = accepted.private_data.split_first_chunk().ok_or("no address")?;
    let (key, _) = rest.split_first_chunk().ok_or("no rkey")?;
    let address = VirtualAddress(u64::from_be_bytes(*address));
    Ok((id, end, RemoteAddress { address, key: RKey(u32::from_be_bytes(*key)) }))
}
