//! Connections by the connection manager.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ferroce::cm::{CmId, ConnectParameters, EventChannel, PortSpace};
use ferroce::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, Data, MemoryRegion, Operation,
    Options, QueuePair, QueuePairOptions, ReceiveRequest, SendRequest, ServiceType, Statistics,
    WorkId,
};

use super::{Outcome, PATIENCE, Record, options, record, scratch, text};
use crate::explain::status;

/// The statistics of a context that the connection manager opened.
fn unchanged(context: &Context) -> (Statistics, Statistics) {
    (context.statistics(), context.statistics())
}

pub(super) fn connect() -> Outcome<Record> {
    let capture = scratch()?;
    let options = options(&capture);
    let channel = EventChannel::with_options(options.clone()).map_err(text)?;
    let listener = CmId::new(&channel, PortSpace::Tcp).map_err(text)?;
    listener.bind(([127, 0, 0, 1], 0).into()).map_err(text)?;
    listener.listen(0).map_err(text)?;
    let address = listener.local_address().ok_or("the listener has no address")?;
    let mut steps = vec![format!("B listens on {address}")];
    let client = std::thread::spawn(move || client(address, options));
    let request = channel.wait_request(None).map_err(text)?;
    let end = CmEnd::new(&request.id)?;
    let sg_list = end.region.sge(0, 64).into();
    let receive = ReceiveRequest { id: WorkId(2), sg_list };
    end.queue_pair.post_receive(receive).map_err(text)?;
    steps.push("B gets the connection request, creates a QP, posts a receive and accepts".into());
    request.id.accept(&ConnectParameters::default()).map_err(text)?;
    steps.extend(client.join().map_err(|_| "the client panicked")??);
    let context = request.id.context().ok_or("no device")?;
    context.flush_capture();
    record(&capture, steps, Vec::new(), vec![end.queue_pair.number().0], unchanged(&context))
}

/// A: connects, sends a message, and disconnects.
fn client(server: SocketAddr, options: Options) -> Outcome<Vec<String>> {
    let channel = EventChannel::with_options(options).map_err(text)?;
    let timeout = Duration::from_secs(1);
    let id = CmId::resolve(&channel, PortSpace::Tcp, server, timeout).map_err(text)?;
    let end = CmEnd::new(&id)?;
    id.connect_blocking(&ConnectParameters::default(), None).map_err(text)?;
    let state = |end: &CmEnd| end.queue_pair.state().name();
    let mut steps = vec![format!("A is connected; its QP is in {}", state(&end))];
    let data = Data::Inline(b"hello".as_slice().into());
    let request = SendRequest::new(WorkId(1), Operation::SEND, data);
    end.queue_pair.post_send(request).map_err(text)?;
    let done = end.completions.wait_until(Instant::now() + PATIENCE).map_err(text)?;
    let done = done.ok_or("the SEND did not complete")?;
    steps.push(format!("A sends 5 bytes: {}", status::words(done.status)));
    id.disconnect().map_err(text)?;
    id.wait_disconnected(None).map_err(text)?;
    steps.push(format!("A has disconnected; its QP is in {}", state(&end)));
    Ok(steps)
}

/// One end of a connection that the connection manager makes.
struct CmEnd {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    region: MemoryRegion,
}

impl CmEnd {
    fn new(id: &CmId) -> Outcome<Self> {
        let context = id.context().ok_or("no device")?;
        let pd = context.protection_domain();
        let region = pd.allocate(4096, AccessFlags::LOCAL_WRITE).map_err(text)?;
        let channel = CompletionChannel::new().map_err(text)?;
        let completions = context.completion_queue(16, Some(&channel)).map_err(text)?;
        let options = QueuePairOptions::new(ServiceType::ReliableConnection, &completions);
        let queue_pair = id.create_queue_pair(&pd, &options).map_err(text)?;
        Ok(Self { queue_pair, completions, region })
    }
}

/// Nobody listens at the port.
pub(super) fn refused() -> Outcome<Record> {
    let capture = scratch()?;
    let channel = EventChannel::with_options(options(&capture)).map_err(text)?;
    // A port that was free a moment ago.
    let listener = CmId::new(&channel, PortSpace::Tcp).map_err(text)?;
    listener.bind(([127, 0, 0, 1], 0).into()).map_err(text)?;
    let address = listener.local_address().ok_or("no address")?;
    drop(listener);
    let timeout = Duration::from_secs(1);
    let id = CmId::resolve(&channel, PortSpace::Tcp, address, timeout).map_err(text)?;
    let end = CmEnd::new(&id)?;
    let mut steps = vec![format!("A connects to {address}, where nothing listens")];
    match id.connect_blocking(&ConnectParameters::default(), None) {
        Err(error) => steps.push(format!("A is refused: {error}")),
        Ok(_) => return Err("the connection was not refused".into()),
    }
    let context = id.context().ok_or("no device")?;
    context.flush_capture();
    record(&capture, steps, Vec::new(), vec![end.queue_pair.number().0], unchanged(&context))
}
