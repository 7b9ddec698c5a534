//! The connection of a stream: its queue pair, its buffers, and what is under way.

use std::collections::VecDeque;
use std::ffi::c_int;

use ferroce::cm::CmId;
use ferroce::{
    AccessFlags, Capabilities, Context, Data, Immediate, MemoryRegion, Operation, ProtectionDomain,
    QueuePair, QueuePairOptions, RKey, ReceiveRequest, RemoteAddress, SendRequest, ServiceType,
    SgList, Status, VirtualAddress, WorkCompletion, WorkId,
};

use super::completions::Completions;
use super::flow::{CONTROLS, Flow, News, TARGETS};
use super::iomap::Maps;
use super::settings::Settings;
use super::wire::{ConnectData, MAP_BYTES, Message, Order, TARGET_BYTES, Target};
use crate::entry::{Errno, Result};

/// The first message of a call is no longer than this, and each one after it twice as long, up to [`LONGEST`]: the
/// peer is at the first part while we copy the next.
pub(super) const SHORTEST: usize = 2048;
const LONGEST: usize = 65536;
/// A stream is writable when it takes as many bytes without waiting.
const WRITABLE: u32 = 2048;

const RECEIVE: WorkId = WorkId(1);
const SEND: WorkId = WorkId(0);

/// A send that has not completed.
struct Posted {
    control: bool,
    /// Bytes of the send buffer that it holds.
    bytes: u32,
}

/// How the connection stands after its completions were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The peer is through with sending.
    Shutdown,
    /// The connection is over.
    Over,
    /// It failed.
    Failed(c_int),
}

pub(super) struct Link {
    queue_pair: QueuePair,
    pub(super) completions: Completions,
    pub(super) domain: ProtectionDomain,
    /// What we send from, a ring; what the peer writes to; and the lists of targets, of its buffers and of those that its
    /// program has mapped.
    outgoing: MemoryRegion,
    incoming: MemoryRegion,
    lists: MemoryRegion,
    settings: Settings,
    /// Where in the ring the next bytes go, and how many are under way.
    next: u32,
    held: u32,
    posted: VecDeque<Posted>,
    /// Sends that are under way and no control messages.
    requests: u32,
    /// What is known since the peer has answered.
    pub(super) peer: Option<Peer>,
    pub(super) maps: Maps,
}

/// The other side.
pub(super) struct Peer {
    pub(super) flow: Flow,
    pub(super) order: Order,
    lists: Target,
    /// The table of its program's buffers.
    pub(super) maps: u16,
}

fn part(region: &MemoryRegion, offset: usize, out: &mut [u8]) {
    // All that is asked for is within.
    let _ = region.read(offset, out);
}

impl Link {
    /// Makes what a connection needs, with all receives posted.
    pub(super) fn new(id: &CmId, context: &Context, settings: Settings) -> Result<Self> {
        let settings = settings.within(context);
        let (sends, receives) = (u32::from(settings.sends), u32::from(settings.receives));
        let completions = Completions::new(context, (sends + receives) as usize)?;
        let domain = context.protection_domain();
        let capabilities = Capabilities {
            max_send_wr: sends,
            max_recv_wr: receives,
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline_data: u32::from(settings.inline).max(MAP_BYTES as u32),
        };
        let options = QueuePairOptions::new(ServiceType::ReliableConnection, &completions.queue)
            .with_capabilities(capabilities)
            .with_signal_all(true);
        let queue_pair = id.create_queue_pair(&domain, &options)?;
        let remote = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let lists = TARGETS as usize * TARGET_BYTES + usize::from(settings.maps) * MAP_BYTES;
        let link = Self {
            queue_pair,
            completions,
            outgoing: domain.allocate(settings.send_bytes as usize, AccessFlags::LOCAL_WRITE)?,
            incoming: domain.allocate(2 * settings.half() as usize, remote)?,
            lists: domain.allocate(lists, remote)?,
            domain,
            settings,
            next: 0,
            held: 0,
            posted: VecDeque::new(),
            requests: 0,
            peer: None,
            maps: Maps::default(),
        };
        for _ in 0..settings.receives {
            link.post_receive()?;
        }
        Ok(link)
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the peer is told when we connect or accept.
    pub(super) fn connect_data(&self) -> ConnectData {
        let target = |region: &MemoryRegion, length: u32| {
            let place = region.remote(0);
            Target { address: place.address.0, key: place.key.0, length }
        };
        ConnectData {
            order: Order::HERE,
            credits: self.settings.receives,
            maps: Some(self.settings.maps),
            targets: target(&self.lists, TARGETS),
            buffer: target(&self.incoming, self.settings.half()),
        }
    }

    /// The peer has told of itself.
    pub(super) fn meet(&mut self, peer: &ConnectData) -> Result<()> {
        let flow = Flow::new(self.settings.half(), self.settings.receives, peer)
            .map_err(|_| Errno(libc::EPROTO))?;
        let (order, lists) = (peer.order, peer.targets);
        self.peer = Some(Peer { flow, order, lists, maps: peer.maps.unwrap_or(0) });
        Ok(())
    }

    fn post_receive(&self) -> Result<()> {
        Ok(self.queue_pair.post_receive(ReceiveRequest { id: RECEIVE, sg_list: SgList::NONE })?)
    }

    fn post(&mut self, operation: Operation, data: Data, posted: Posted) -> Result<()> {
        self.queue_pair.post_send(SendRequest::new(SEND, operation, data))?;
        self.held += posted.bytes;
        self.requests += u32::from(!posted.control);
        self.posted.push_back(posted);
        Ok(())
    }

    /// Sends a message, with these bytes for this place.
    fn post_message(
        &mut self,
        message: Message,
        to: Target,
        data: Data,
        posted: Posted,
    ) -> Result<()> {
        let remote = RemoteAddress { address: VirtualAddress(to.address), key: RKey(to.key) };
        let immediate = Some(Immediate(message.immediate()));
        self.post(Operation::Write { remote, immediate }, data, posted)
    }

    /// Sends a control message, if one may be sent now.
    pub(super) fn control(&mut self, message: Message) -> Result<bool> {
        let Some(peer) = &mut self.peer else { return Ok(false) };
        if !peer.flow.take_control() {
            return Ok(false);
        }
        let nothing = Posted { control: true, bytes: 0 };
        self.post_message(message, Target::default(), Data::NONE, nothing)?;
        Ok(true)
    }

    /// Asks the peer's device whether it is there, by a write of nothing, which no program notices: unless something is
    /// under way that asks the same.
    pub(super) fn probe(&mut self) -> Result<()> {
        let Some(peer) = &self.peer else { return Ok(()) };
        if !self.posted.is_empty() {
            return Ok(());
        }
        let remote = RemoteAddress {
            address: VirtualAddress(peer.lists.address),
            key: RKey(peer.lists.key),
        };
        let operation = Operation::Write { remote, immediate: None };
        self.post(operation, Data::NONE, Posted { control: false, bytes: 0 })
    }

    /// Tells the peer of room that there is.
    fn grant(&mut self) -> Result<()> {
        let Some(peer) = &mut self.peer else { return Ok(()) };
        let Some(grant) = peer.flow.grant() else { return Ok(()) };
        let (mut to, mut data) = (Target::default(), Data::NONE);
        if let Some((offset, entry)) = grant.half {
            let place = self.incoming.remote(offset.into());
            let half =
                Target { address: place.address.0, key: place.key.0, length: self.settings.half() };
            data = Data::Inline(half.write(peer.order).into());
            let at = u64::from(entry) * TARGET_BYTES as u64;
            to = Target { address: peer.lists.address.wrapping_add(at), ..peer.lists };
        }
        self.post_message(grant.message, to, data, Posted { control: true, bytes: 0 })
    }

    /// Looks at what has completed. Returns whether anything has, and how the connection stands if that is news.
    pub(super) fn progress(&mut self) -> (bool, Option<Outcome>) {
        let (mut any, mut outcome) = (false, None);
        loop {
            let found = self.completions.poll();
            if found[0].is_none() {
                break;
            }
            any = true;
            for one in found.iter().flatten() {
                let news = if one.id == RECEIVE { self.received(one) } else { self.sent(one) };
                // What came first counts: the rest follows from it.
                outcome = match (outcome, news) {
                    (None | Some(Outcome::Shutdown), Some(news)) => Some(news),
                    (before, _) => before,
                };
            }
        }
        if matches!(outcome, None | Some(Outcome::Shutdown)) {
            if let Err(error) = self.grant() {
                outcome = Some(Outcome::Failed(error.0));
            }
        }
        (any, outcome)
    }

    fn received(&mut self, one: &WorkCompletion) -> Option<Outcome> {
        match one.status {
            Status::Success => {}
            // The connection manager ends connections by this, too.
            Status::Flushed => return Some(Outcome::Over),
            _ => return Some(Outcome::Failed(libc::EIO)),
        }
        let posted = self.post_receive();
        let peer = self.peer.as_mut()?;
        // Messages of any other form are none of a peer that keeps to the protocol.
        let Some(immediate) = one.immediate else { return Some(Outcome::Failed(libc::EPROTO)) };
        match peer.flow.arrived(Message::from_immediate(immediate.0), one.length) {
            Ok(News::Noted) => posted.err().map(|error| Outcome::Failed(error.0)),
            Ok(News::Disconnected) => Some(Outcome::Over),
            Ok(News::Shutdown) => Some(Outcome::Shutdown),
            Err(_) => Some(Outcome::Failed(libc::EPROTO)),
        }
    }

    fn sent(&mut self, one: &WorkCompletion) -> Option<Outcome> {
        if let Some(posted) = self.posted.pop_front() {
            self.held -= posted.bytes;
            self.requests -= u32::from(!posted.control);
            if let (true, Some(peer)) = (posted.control, &mut self.peer) {
                peer.flow.control_done();
            }
        }
        match one.status {
            Status::Success => None,
            Status::Flushed => Some(Outcome::Over),
            Status::RetryExceeded | Status::RnrRetryExceeded => {
                Some(Outcome::Failed(libc::ETIMEDOUT))
            }
            _ => Some(Outcome::Failed(libc::ECONNRESET)),
        }
    }

    /// Whether there is something to read.
    pub(super) fn has_data(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.flow.has_data())
    }

    /// Whether the send queue and the send buffer have room.
    fn has_room(&self) -> bool {
        self.requests < u32::from(self.settings.sends) - CONTROLS
            && self.settings.send_bytes - self.held >= WRITABLE
    }

    /// Whether bytes can be sent now.
    pub(super) fn can_send(&mut self) -> bool {
        self.has_room() && self.room() > 0
    }

    /// Whether a write to a buffer that the peer's program has mapped can be sent, or the news of one of ours.
    pub(super) fn can_send_directly(&self) -> bool {
        self.has_room() && self.peer.as_ref().is_some_and(|peer| peer.flow.has_credit())
    }

    /// Whether all that was sent has arrived.
    pub(super) fn is_idle(&self) -> bool {
        self.posted.is_empty()
    }

    /// Bytes that one message may have, as the peer has it.
    fn room(&mut self) -> u32 {
        let Some(peer) = &mut self.peer else { return 0 };
        if let Some(entry) = peer.flow.next_target() {
            let mut bytes = [0; TARGET_BYTES];
            part(&self.lists, entry as usize * TARGET_BYTES, &mut bytes);
            // Written by the peer for us, in our order.
            peer.flow.set_target(Target::read(&bytes, Order::HERE));
        }
        peer.flow.room()
    }

    /// Sends some of the bytes, if any can be sent now, and returns how many. `longest` is the length of a message, and
    /// becomes that of the next.
    pub(super) fn send(&mut self, bytes: &[u8], longest: &mut usize) -> Result<usize> {
        if !self.can_send() {
            return Ok(0);
        }
        let length = self.next_length(bytes.len(), longest).min(self.room() as usize);
        let (data, held) = self.stage(&bytes[..length]);
        let Some(peer) = &mut self.peer else { return Ok(0) };
        let to = peer.flow.send(length as u32);
        let posted = Posted { control: false, bytes: held };
        self.post_message(Message::Data(length as u32), to, data, posted)?;
        Ok(length)
    }

    /// Writes some of the bytes to the peer's memory, without a word about it.
    pub(super) fn write(
        &mut self,
        bytes: &[u8],
        to: RemoteAddress,
        longest: &mut usize,
    ) -> Result<usize> {
        let length = self.next_length(bytes.len(), longest);
        let (data, held) = self.stage(&bytes[..length]);
        let operation = Operation::Write { remote: to, immediate: None };
        self.post(operation, data, Posted { control: false, bytes: held })?;
        Ok(length)
    }

    /// Tells the peer of a buffer that the program has mapped.
    pub(super) fn tell_map(&mut self, index: u16, entry: &[u8; MAP_BYTES]) -> Result<()> {
        let Some(peer) = &mut self.peer else { return Ok(()) };
        let lists = u64::from(peer.lists.length) * TARGET_BYTES as u64;
        let at = lists + u64::from(index) * MAP_BYTES as u64;
        let to = Target { address: peer.lists.address.wrapping_add(at), ..peer.lists };
        peer.flow.spend_credit();
        let data = Data::Inline(entry.as_slice().into());
        self.post_message(Message::Mapped(index), to, data, Posted { control: false, bytes: 0 })
    }

    /// An entry of the table of buffers that the peer's program has mapped.
    pub(super) fn map(&self, index: u16) -> [u8; MAP_BYTES] {
        let mut bytes = [0; MAP_BYTES];
        let at = TARGETS as usize * TARGET_BYTES + usize::from(index) * MAP_BYTES;
        part(&self.lists, at, &mut bytes);
        bytes
    }

    fn next_length(&self, left: usize, longest: &mut usize) -> usize {
        let length = left.min(*longest).min((self.settings.send_bytes - self.held) as usize);
        *longest = (*longest * 2).min(LONGEST);
        length
    }

    /// Takes bytes over from the program: small ones into the request itself, others into the ring.
    fn stage(&mut self, bytes: &[u8]) -> (Data, u32) {
        if bytes.len() <= self.settings.inline.into() {
            return (Data::Inline(bytes.into()), 0);
        }
        let first = bytes.len().min((self.settings.send_bytes - self.next) as usize);
        let (head, tail) = bytes.split_at(first);
        // Both are within the ring, and no longer than what of it is free.
        let _ = self.outgoing.write(self.next as usize, head);
        let sge = self.outgoing.sge(self.next.into(), head.len() as u32);
        let sg_list = if tail.is_empty() {
            SgList::from(sge)
        } else {
            let _ = self.outgoing.write(0, tail);
            [sge, self.outgoing.sge(0, tail.len() as u32)].as_slice().into()
        };
        self.next = (self.next + bytes.len() as u32) % self.settings.send_bytes;
        (Data::SgList(sg_list), bytes.len() as u32)
    }

    /// Gives the program what has arrived, as much as it takes; it stays there if it only peeks.
    pub(super) fn receive(&mut self, out: &mut [u8], peek: bool) -> usize {
        let Some(peer) = &mut self.peer else { return 0 };
        let mut done = 0;
        for (offset, length) in peer.flow.readable(out.len()) {
            let length = length as usize;
            part(&self.incoming, offset as usize, &mut out[done..done + length]);
            done += length;
        }
        if !peek {
            peer.flow.consume(done as u32);
        }
        done
    }

    /// Tells the peer of room that reading has made.
    pub(super) fn tell_room(&mut self) -> Option<Outcome> {
        self.grant().err().map(|error| Outcome::Failed(error.0))
    }
}
