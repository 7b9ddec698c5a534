//! One end of a connection: a QP with its CQ, and buffers for messages.

use std::cell::Cell;
use std::time::{Duration, Instant};

use ferroce::{
    AccessFlags, CompletionChannel, CompletionKind, CompletionQueue, Context, Data, MemoryRegion,
    Operation, ProtectionDomain, QueuePair, QueuePairOptions, ReceiveRequest, SendRequest,
    ServiceType, Status, WorkCompletion, WorkId,
};

use super::failure::Failure;
use super::protocol::{MAIL, SessionMessage};

/// Receives posted at any time, which bounds the messages in flight.
const RECEIVES: usize = 16;

/// The length of the SQ.
pub(crate) const SENDS: u32 = 64;

/// How long a completion may take. Network failures show earlier, by the transport's own timers.
pub(crate) const COMPLETION_TIMEOUT: Duration = Duration::from_secs(30);

/// Local write.
pub(crate) const LOCAL: AccessFlags = AccessFlags::LOCAL_WRITE;

/// All that peers may do.
pub(crate) const SHARED: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// A completion queue that can be waited on.
#[derive(Debug)]
struct Completions {
    queue: CompletionQueue,
}

impl Completions {
    fn new(context: &Context, capacity: usize) -> Result<Self, Failure> {
        let channel = CompletionChannel::new()?;
        Ok(Self { queue: context.completion_queue(capacity, Some(&channel))? })
    }

    /// Waits for the next completion; `None` after a timeout.
    fn next(&self, timeout: Duration) -> Result<Option<WorkCompletion>, Failure> {
        Ok(self.queue.wait_until(Instant::now() + timeout)?)
    }
}

/// A received message or immediate.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message.
    Message(SessionMessage),
    /// Immediate data, with the length of its WRITE.
    Immediate(u32, u32),
}

/// The resources of an end before its QP is created.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) pd: ProtectionDomain,
    sends: Completions,
    receives: Completions,
    mail: MemoryRegion,
}

impl Parts {
    pub(crate) fn new(context: &Context) -> Result<Self, Failure> {
        let pd = context.protection_domain();
        let mail = pd.allocate((RECEIVES + 1) * MAIL, LOCAL)?;
        let sends = Completions::new(context, SENDS as usize)?;
        Ok(Self { pd, sends, receives: Completions::new(context, RECEIVES)?, mail })
    }

    /// The options of its QP.
    pub(crate) fn options(&self) -> QueuePairOptions<'_> {
        let mut options = QueuePairOptions::new(ServiceType::ReliableConnection, &self.sends.queue);
        options.recv_cq = &self.receives.queue;
        options.capabilities.max_send_wr = SENDS;
        options.capabilities.max_recv_wr = RECEIVES as u32;
        (options.capabilities.max_send_sge, options.capabilities.max_recv_sge) = (1, 1);
        options
    }

    pub(crate) fn with(self, queue_pair: QueuePair) -> End {
        End { parts: self, queue_pair, next_id: Cell::new(1) }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) parts: Parts,
    pub(crate) queue_pair: QueuePair,
    next_id: Cell<u64>,
}

impl End {
    /// Posts all receives, once the QP accepts them.
    pub(crate) fn post_receives(&self) -> Result<(), Failure> {
        (0..RECEIVES).try_for_each(|slot| self.post_receive(slot))
    }

    fn post_receive(&self, slot: usize) -> Result<(), Failure> {
        let sg_list = self.parts.mail.sge((slot * MAIL) as u64, MAIL as u32).into();
        let request = ReceiveRequest { id: WorkId(slot as u64), sg_list };
        Ok(self.queue_pair.post_receive(request)?)
    }

    /// A request with a new work request ID.
    pub(crate) fn request(&self, operation: Operation, data: Data) -> SendRequest {
        let id = self.next_id.replace(self.next_id.get() + 1);
        SendRequest::new(WorkId(id), operation, data)
    }

    /// Waits for a send to complete.
    pub(crate) fn completed(&self) -> Result<WorkCompletion, Failure> {
        let found = self.parts.sends.next(COMPLETION_TIMEOUT)?;
        let found = found.ok_or(Failure::Timeout("a completion", COMPLETION_TIMEOUT.as_secs()))?;
        succeeded(found)
    }

    /// Performs one operation.
    pub(crate) fn run(&self, operation: Operation, data: Data) -> Result<WorkCompletion, Failure> {
        self.queue_pair.post_send(self.request(operation, data))?;
        self.completed()
    }

    /// A SEND of a message.
    pub(crate) fn message(&self, message: &SessionMessage) -> Result<SendRequest, Failure> {
        let bytes = message.emit();
        let at = RECEIVES * MAIL;
        self.parts.mail.write(at, &bytes)?;
        let sge = self.parts.mail.sge(at as u64, bytes.len() as u32);
        Ok(self.request(Operation::SEND, Data::SgList(sge.into())))
    }

    pub(crate) fn send(&self, message: &SessionMessage) -> Result<WorkCompletion, Failure> {
        self.queue_pair.post_send(self.message(message)?)?;
        self.completed()
    }

    /// Waits for a message or immediate; `None` after a timeout.
    pub(crate) fn receive(
        &self,
        timeout: Duration,
    ) -> Result<Option<(Received, WorkCompletion)>, Failure> {
        let Some(found) = self.parts.receives.next(timeout)? else { return Ok(None) };
        let done = succeeded(found)?;
        let slot = done.id.0 as usize;
        let arrival = match (done.kind, done.immediate) {
            (CompletionKind::ReceiveWriteImmediate, Some(immediate)) => {
                Received::Immediate(immediate.0, done.length)
            }
            _ => {
                let mut bytes = vec![0; (done.length as usize).min(MAIL)];
                self.parts.mail.read(slot * MAIL, &mut bytes)?;
                Received::Message(SessionMessage::parse(&bytes).ok_or(Failure::IncompatiblePeer)?)
            }
        };
        self.post_receive(slot)?;
        Ok(Some((arrival, done)))
    }

    /// Waits for the peer's message.
    pub(crate) fn answer(
        &self,
        timeout: Duration,
    ) -> Result<(SessionMessage, WorkCompletion), Failure> {
        match self.receive(timeout)? {
            Some((Received::Message(message), done)) => Ok((message, done)),
            Some((Received::Immediate(..), _)) => Err(Failure::IncompatiblePeer),
            None => Err(Failure::Timeout("the peer's answer", timeout.as_secs())),
        }
    }

    /// Probes the peer with a zero-length WRITE, which is acknowledged whatever its rkey (IBA 9.7.4.1.7).
    pub(crate) fn is_peer_there(&self) -> bool {
        let remote =
            ferroce::RemoteAddress { address: ferroce::VirtualAddress(0), key: ferroce::RKey(0) };
        self.run(Operation::Write { remote, immediate: None }, Data::NONE).is_ok()
    }
}

fn succeeded(done: WorkCompletion) -> Result<WorkCompletion, Failure> {
    match done.status {
        Status::Success => Ok(done),
        // The connection manager does this when the peer disconnects.
        Status::Flushed => Err(Failure::Disconnected),
        status => Err(Failure::Work(done.kind, status)),
    }
}
