//! The connection of a stream: its QP, its buffers, and the sends in flight.

use std::collections::VecDeque;
use std::ffi::c_int;

use ferroce::cm::CmId;
use ferroce::{
    AccessFlags, Capabilities, Context, Data, Immediate, MemoryRegion, Operation, ProtectionDomain,
    QueuePair, QueuePairOptions, RKey, ReceiveRequest, RemoteAddress, SendRequest, ServiceType,
    SgList, Status, VirtualAddress, WorkCompletion, WorkId,
};

use super::flow::{FlowControl, PeerClose, TARGET_ENTRIES};
use super::iomap::{self, IoMaps};
use super::wire::{ByteOrder, ConnectData, IoMap, MAP_BYTES, StreamMessage, TARGET_BYTES, Target};
use crate::completions::Completions;
use crate::error::{Errno, Result};
use crate::settings::{CONTROL_RECEIVES, MAX_CONTROL_MESSAGES, Settings};

/// Length limit of a message. Every message costs a WR, a CQE and often a wakeup on both sides, so that long ones need the
/// least CPU time per byte. rdma-core starts with 2 KiB, doubles up to 64 KiB, and lets the peer process the first part while the
/// next is copied; here that costs more than it saves.
const CHUNK_BYTES: usize = 1 << 17;
/// A stream is writable if it can take this part of the send buffer without blocking, and at least [`MIN_WRITABLE_BYTES`]. A
/// sender that had to wait then continues with a long message, not with one for every few bytes that become free.
const WRITABLE_PART: u32 = 8;
const MIN_WRITABLE_BYTES: u32 = 2048;

const RECEIVE: WorkId = WorkId(1);
const SEND: WorkId = WorkId(0);

/// A send in flight.
struct PostedSend {
    is_control: bool,
    /// Bytes of the send buffer that it occupies.
    bytes: u32,
}

const CONTROL: PostedSend = PostedSend { is_control: true, bytes: 0 };

/// A change of the connection, found in its completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The peer sends no more.
    Shutdown,
    /// The connection has ended.
    Closed,
    /// The connection failed with this number of `errno`.
    Failed(c_int),
}

pub(crate) struct Connection {
    queue_pair: QueuePair,
    pub(crate) completions: Completions,
    pub(crate) pd: ProtectionDomain,
    /// The ring that we send from, the ring that the peer writes to, and the lists that the peer writes to: the targets
    /// in its receive buffer, then its mapped buffers.
    send_buffer: MemoryRegion,
    receive_buffer: MemoryRegion,
    lists: MemoryRegion,
    settings: Settings,
    /// Offset in the send buffer for the next bytes, and the number of bytes in flight.
    send_offset: u32,
    bytes_in_flight: u32,
    posted: VecDeque<PostedSend>,
    /// Sends in flight other than control messages.
    sends_in_flight: u32,
    /// Known once the private data of the peer has arrived.
    pub(crate) peer: Option<Peer>,
    pub(crate) maps: IoMaps<MemoryRegion>,
}

/// The remote side of a connection.
pub(crate) struct Peer {
    pub(crate) flow: FlowControl,
    order: ByteOrder,
    lists: Target,
    /// Entries of its table of our mapped buffers.
    pub(crate) maps: u16,
}

fn read_region(region: &MemoryRegion, offset: usize, out: &mut [u8]) {
    // All ranges are within the region.
    let _ = region.read(offset, out);
}

impl Connection {
    /// Creates the QP and the buffers, and posts all receives.
    pub(crate) fn new(id: &CmId, context: &Context, settings: Settings) -> Result<Self> {
        let settings = settings.clamp_to(context);
        let (sends, receives) = (u32::from(settings.max_send_wr), u32::from(settings.max_recv_wr));
        let posted_receives = receives + CONTROL_RECEIVES;
        let completions = Completions::new(context, (sends + posted_receives) as usize)?;
        let pd = context.protection_domain();
        let capabilities = Capabilities {
            max_send_wr: sends,
            max_recv_wr: posted_receives,
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline_data: u32::from(settings.inline_bytes).max(MAP_BYTES as u32),
        };
        let options = QueuePairOptions {
            capabilities,
            signal_all: true,
            ..QueuePairOptions::new(ServiceType::ReliableConnection, &completions.queue)
        };
        let queue_pair = id.create_queue_pair(&pd, &options)?;
        let remote = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let list_bytes =
            TARGET_ENTRIES as usize * TARGET_BYTES + usize::from(settings.maps) * MAP_BYTES;
        let connection = Self {
            queue_pair,
            completions,
            send_buffer: pd.allocate(settings.send_bytes as usize, AccessFlags::LOCAL_WRITE)?,
            receive_buffer: pd.allocate(2 * settings.half_receive_bytes() as usize, remote)?,
            lists: pd.allocate(list_bytes, remote)?,
            pd,
            settings,
            send_offset: 0,
            bytes_in_flight: 0,
            posted: VecDeque::new(),
            sends_in_flight: 0,
            peer: None,
            maps: IoMaps::default(),
        };
        for _ in 0..posted_receives {
            connection.post_receive()?;
        }
        Ok(connection)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The private data for connecting or accepting.
    pub(crate) fn connect_data(&self) -> ConnectData {
        let target = |region: &MemoryRegion, length: u32| {
            let remote = region.remote(0);
            Target { address: remote.address.0, key: remote.key.0, length }
        };
        ConnectData {
            order: ByteOrder::NATIVE,
            credits: self.settings.max_recv_wr,
            maps: Some(self.settings.maps),
            targets: target(&self.lists, TARGET_ENTRIES),
            buffer: target(&self.receive_buffer, self.settings.half_receive_bytes()),
        }
    }

    /// Starts flow control with the peer's private data.
    pub(crate) fn set_peer(&mut self, peer: &ConnectData) -> Result<()> {
        let (half, receives) = (self.settings.half_receive_bytes(), self.settings.max_recv_wr);
        let flow = FlowControl::new(half, receives, peer).map_err(|_| Errno(libc::EPROTO))?;
        let (order, lists) = (peer.order, peer.targets);
        self.peer = Some(Peer { flow, order, lists, maps: peer.maps.unwrap_or(0) });
        Ok(())
    }

    fn post_receive(&self) -> Result<()> {
        Ok(self.queue_pair.post_receive(ReceiveRequest { id: RECEIVE, sg_list: SgList::NONE })?)
    }

    fn post(&mut self, operation: Operation, data: Data, posted: PostedSend) -> Result<()> {
        self.queue_pair.post_send(SendRequest::new(SEND, operation, data))?;
        self.bytes_in_flight += posted.bytes;
        self.sends_in_flight += u32::from(!posted.is_control);
        self.posted.push_back(posted);
        Ok(())
    }

    /// Posts an RDMA WRITE of `data` to `to` with a message as immediate data.
    fn post_message(
        &mut self,
        message: StreamMessage,
        to: Target,
        data: Data,
        posted: PostedSend,
    ) -> Result<()> {
        let remote = RemoteAddress { address: VirtualAddress(to.address), key: RKey(to.key) };
        let immediate = Some(Immediate(message.immediate()));
        self.post(Operation::Write { remote, immediate }, data, posted)
    }

    /// Sends a control message. Returns false if none can be sent now.
    pub(crate) fn send_control(&mut self, message: StreamMessage) -> Result<bool> {
        let Some(peer) = &mut self.peer else { return Ok(false) };
        if !peer.flow.take_control_slot() {
            return Ok(false);
        }
        self.post_message(message, Target::default(), Data::NONE, CONTROL)?;
        Ok(true)
    }

    /// Checks that the peer's device responds, by an empty RDMA WRITE that the peer's program does not notice. Does
    /// nothing if a send in flight checks the same.
    pub(crate) fn probe(&mut self) -> Result<()> {
        let Some(peer) = &self.peer else { return Ok(()) };
        if !self.posted.is_empty() {
            return Ok(());
        }
        let remote = RemoteAddress {
            address: VirtualAddress(peer.lists.address),
            key: RKey(peer.lists.key),
        };
        let operation = Operation::Write { remote, immediate: None };
        self.post(operation, Data::NONE, PostedSend { is_control: false, bytes: 0 })
    }

    /// Sends a credit update if one is due.
    fn send_credit_update(&mut self) -> Result<()> {
        let Some(peer) = &mut self.peer else { return Ok(()) };
        let Some(update) = peer.flow.credit_update() else { return Ok(()) };
        let (mut to, mut data) = (Target::default(), Data::NONE);
        if let Some((offset, entry)) = update.target {
            let remote = self.receive_buffer.remote(offset.into());
            let length = self.settings.half_receive_bytes();
            let half = Target { address: remote.address.0, key: remote.key.0, length };
            data = Data::Inline(half.write(peer.order).into());
            let at = u64::from(entry) * TARGET_BYTES as u64;
            to = Target { address: peer.lists.address.wrapping_add(at), ..peer.lists };
        }
        self.post_message(update.message, to, data, CONTROL)
    }

    /// Polls the CQ. Returns whether there were completions, and the change of the connection that they caused.
    pub(crate) fn process_completions(&mut self) -> (bool, Option<Outcome>) {
        let (mut any, mut outcome) = (false, None);
        loop {
            let batch = self.completions.poll();
            any |= batch[0].is_some();
            for completion in batch.iter().flatten() {
                let next = if completion.id == RECEIVE {
                    self.complete_receive(completion)
                } else {
                    self.complete_send(completion)
                };
                // The first failure counts: the others follow from it.
                outcome = match (outcome, next) {
                    (None | Some(Outcome::Shutdown), Some(next)) => Some(next),
                    (before, _) => before,
                };
            }
            // The CQ is empty after a batch that is not full. Another poll would drive the device once more.
            if batch.iter().any(Option::is_none) {
                break;
            }
        }
        if matches!(outcome, None | Some(Outcome::Shutdown)) {
            if let Err(error) = self.send_credit_update() {
                outcome = Some(Outcome::Failed(error.0));
            }
        }
        (any, outcome)
    }

    fn complete_receive(&mut self, completion: &WorkCompletion) -> Option<Outcome> {
        match completion.status {
            Status::Success => {}
            // The connection manager ends connections by flushing, too.
            Status::Flushed => return Some(Outcome::Closed),
            _ => return Some(Outcome::Failed(libc::EIO)),
        }
        let posted = self.post_receive();
        let peer = self.peer.as_mut()?;
        // The protocol has no messages without immediate data.
        let Some(immediate) = completion.immediate else {
            return Some(Outcome::Failed(libc::EPROTO));
        };
        let message = StreamMessage::from_immediate(immediate.0);
        match peer.flow.receive_message(message, completion.length) {
            Ok(None) => posted.err().map(|error| Outcome::Failed(error.0)),
            Ok(Some(PeerClose::Disconnect)) => Some(Outcome::Closed),
            Ok(Some(PeerClose::Shutdown)) => Some(Outcome::Shutdown),
            Err(_) => Some(Outcome::Failed(libc::EPROTO)),
        }
    }

    fn complete_send(&mut self, completion: &WorkCompletion) -> Option<Outcome> {
        if let Some(posted) = self.posted.pop_front() {
            self.bytes_in_flight -= posted.bytes;
            self.sends_in_flight -= u32::from(!posted.is_control);
            if let (true, Some(peer)) = (posted.is_control, &mut self.peer) {
                peer.flow.release_control_slot();
            }
        }
        match completion.status {
            Status::Success => None,
            Status::Flushed => Some(Outcome::Closed),
            // A peer that is only slow is waited for, so its process or its queue pair is gone. Linux disconnects then; here the
            // message that does so may come later than this.
            Status::RetryExceeded if self.queue_pair.shares_memory() => Some(Outcome::Closed),
            Status::RetryExceeded | Status::RnrRetryExceeded => {
                Some(Outcome::Failed(libc::ETIMEDOUT))
            }
            _ => Some(Outcome::Failed(libc::ECONNRESET)),
        }
    }

    /// Whether there are bytes to read.
    pub(crate) fn has_data(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.flow.has_data())
    }

    /// Whether the SQ and the send buffer have space.
    fn has_send_space(&self) -> bool {
        self.sends_in_flight < u32::from(self.settings.max_send_wr) - MAX_CONTROL_MESSAGES
            && self.settings.send_bytes - self.bytes_in_flight >= self.writable_bytes()
    }

    fn writable_bytes(&self) -> u32 {
        (self.settings.send_bytes / WRITABLE_PART).max(MIN_WRITABLE_BYTES)
    }

    /// Whether bytes can be sent now.
    pub(crate) fn can_send(&mut self) -> bool {
        self.has_send_space() && self.sendable() > 0
    }

    /// Whether a write to a mapped buffer of the peer, or an entry of its table, can be sent now.
    pub(crate) fn can_write_remote(&self) -> bool {
        self.has_send_space() && self.peer.as_ref().is_some_and(|peer| peer.flow.has_credit())
    }

    /// Whether everything sent was acknowledged.
    pub(crate) fn is_idle(&self) -> bool {
        self.posted.is_empty()
    }

    /// The number of bytes that the peer allows the next message to have.
    fn sendable(&mut self) -> u32 {
        let Some(peer) = &mut self.peer else { return 0 };
        if let Some(entry) = peer.flow.next_target() {
            let mut bytes = [0; TARGET_BYTES];
            read_region(&self.lists, entry as usize * TARGET_BYTES, &mut bytes);
            // The peer writes entries in our byte order.
            peer.flow.set_target(Target::read(&bytes, ByteOrder::NATIVE));
        }
        peer.flow.sendable()
    }

    /// Sends as many of the bytes as one message takes, and returns their number, zero if none can be sent now.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        if !self.can_send() {
            return Ok(0);
        }
        let length = self.next_length(bytes.len()).min(self.sendable() as usize);
        let (data, buffered) = self.stage(&bytes[..length]);
        let Some(peer) = &mut self.peer else { return Ok(0) };
        let to = peer.flow.send(length as u32);
        let posted = PostedSend { is_control: false, bytes: buffered };
        self.post_message(StreamMessage::Data(length as u32), to, data, posted)?;
        Ok(length)
    }

    /// Writes as many of the bytes as one WR takes to a mapped buffer of the peer, without notifying its program.
    pub(crate) fn write_remote(&mut self, bytes: &[u8], to: RemoteAddress) -> Result<usize> {
        let length = self.next_length(bytes.len());
        let (data, buffered) = self.stage(&bytes[..length]);
        let operation = Operation::Write { remote: to, immediate: None };
        self.post(operation, data, PostedSend { is_control: false, bytes: buffered })?;
        Ok(length)
    }

    /// Sends the peer the entries of mapped buffers that it does not have. Returns `None` if that has to wait.
    pub(crate) fn announce_maps(&mut self) -> Option<Result<()>> {
        let order = self.peer.as_ref().map_or(ByteOrder::NATIVE, |peer| peer.order);
        while let Some((index, buffer)) = self.maps.next_unannounced() {
            let entry = buffer.entry(buffer.region.rkey()).write(order);
            if !self.can_write_remote() {
                return None;
            }
            if let Err(error) = self.announce_map(index, &entry) {
                return Some(Err(error));
            }
            self.maps.announced();
        }
        Some(Ok(()))
    }

    fn announce_map(&mut self, index: u16, entry: &[u8; MAP_BYTES]) -> Result<()> {
        let Some(peer) = &mut self.peer else { return Ok(()) };
        let target_list = u64::from(peer.lists.length) * TARGET_BYTES as u64;
        let at = target_list + u64::from(index) * MAP_BYTES as u64;
        let to = Target { address: peer.lists.address.wrapping_add(at), ..peer.lists };
        peer.flow.use_credit();
        let data = Data::Inline(entry.as_slice().into());
        let posted = PostedSend { is_control: false, bytes: 0 };
        self.post_message(StreamMessage::Mapped(index), to, data, posted)
    }

    /// The mapped buffer of the peer that contains this offset, and the number of bytes from there to its end.
    pub(crate) fn find_remote_map(&self, offset: u64) -> Option<(RemoteAddress, u64)> {
        let maps = (0..self.settings.maps).map(|index| {
            let mut bytes = [0; MAP_BYTES];
            let at = TARGET_ENTRIES as usize * TARGET_BYTES + usize::from(index) * MAP_BYTES;
            read_region(&self.lists, at, &mut bytes);
            IoMap::read(&bytes, ByteOrder::NATIVE)
        });
        iomap::find(maps, offset)
    }

    fn next_length(&self, left: usize) -> usize {
        let space = (self.settings.send_bytes - self.bytes_in_flight) as usize;
        left.min(CHUNK_BYTES).min(space)
    }

    /// Copies bytes of the program: short ones into the WR, others into the send buffer. Returns the number of bytes of
    /// the send buffer used.
    fn stage(&mut self, bytes: &[u8]) -> (Data, u32) {
        if bytes.len() <= self.settings.inline_bytes.into() {
            return (Data::Inline(bytes.into()), 0);
        }
        let first = bytes.len().min((self.settings.send_bytes - self.send_offset) as usize);
        let (head, tail) = bytes.split_at(first);
        // Both parts are within the ring and no longer than its free space.
        let _ = self.send_buffer.write(self.send_offset as usize, head);
        let sge = self.send_buffer.sge(self.send_offset.into(), head.len() as u32);
        let sg_list = if tail.is_empty() {
            SgList::from(sge)
        } else {
            let _ = self.send_buffer.write(0, tail);
            [sge, self.send_buffer.sge(0, tail.len() as u32)].as_slice().into()
        };
        self.send_offset = (self.send_offset + bytes.len() as u32) % self.settings.send_bytes;
        (Data::SgList(sg_list), bytes.len() as u32)
    }

    /// Copies received bytes to the program, and returns their number. They remain unread if it only peeks.
    pub(crate) fn receive(&mut self, out: &mut [u8], peek: bool) -> usize {
        let Some(peer) = &mut self.peer else { return 0 };
        let mut done = 0;
        for (offset, length) in peer.flow.readable(out.len()) {
            let length = length as usize;
            read_region(&self.receive_buffer, offset as usize, &mut out[done..done + length]);
            done += length;
        }
        if !peek {
            peer.flow.consume(done as u32);
        }
        done
    }

    /// Returns credits to the peer after reading, if an update is due.
    pub(crate) fn return_credits(&mut self) -> Option<Outcome> {
        self.send_credit_update().err().map(|error| Outcome::Failed(error.0))
    }
}
