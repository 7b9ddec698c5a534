//! Inbound messages, validated step by step (IBA 9.8.2.2). A message that fails a check is dropped silently and
//! completely; UC sends no responses.
//!
//! PSN → opcode sequence → QP permissions → resources → length → rkey, bounds, access → execution.

#[cfg(debug_assertions)]
mod invariants;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use ferroce_wire::number::{Psn, VirtualAddress};
use ferroce_wire::opcode::{OpcodeInfo, Operation, Position};
use ferroce_wire::packet::Packet;

use super::drops::{self, Drops};
use super::queue_pair::Config;
use crate::counters::Uncollected;
use crate::held::HeldPackets;
use crate::memory::{AccessFlags, Begun, Denied, Memory, Outcome, RemoteRange, Token};
use crate::qp::Fault;
use crate::reason::{KeyFault, Reason, RefusedAccess};
use crate::receive::ReceiveQueue;
use crate::withheld::{Released, Withheld};
use crate::work::{Completion, CompletionKind, MAX_MESSAGE, ReceiveRequest, Status};

/// PSNs up to this far behind the expected one count as late or duplicate packets. InfiniBand networks neither
/// reorder nor duplicate, so the specification treats every unexpected PSN as a loss (IBA 9.8.2.2); over UDP both
/// happen, and a message must not be delivered twice. All other PSNs count as ahead, so that a peer that was cut off
/// for half of the PSN space is received again immediately.
const LATE_PSN_WINDOW: i32 = 1 << 16;

/// The message that the preceding packets belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InboundMessage {
    /// No message in progress.
    None,
    /// The message is dropped, with its remaining packets.
    Dropped,
    Send,
    /// Destination of the remaining payload.
    Write(RemoteRange),
    /// Memory has not finished with the message, which has ended or was dropped: the next one waits.
    Placing,
}

/// Why a packet fails a check.
#[derive(Clone, Debug)]
enum Refusal {
    /// It is dropped. The reason is boxed, so that a check that passes returns two words.
    Drop(drops::Reason, Box<Reason>),
    /// The rest of a message that was dropped before.
    Remainder,
    /// The receive request's own memory denies the access.
    Failed(Box<Reason>),
}

impl drops::Reason {
    #[cold]
    fn because(self, reason: Reason) -> Refusal {
        Refusal::Drop(self, Box::new(reason))
    }
}

#[derive(Debug)]
pub(super) struct Responder {
    expected: Psn,
    message: InboundMessage,
    /// Bytes received of the message in progress.
    received: u64,
    /// The receive request that it consumes.
    receive: Option<ReceiveRequest>,
    pub(super) drops: Drops,
    /// The completion behind unfinished accesses to memory.
    pub(super) withheld: Withheld<RefusedAccess, Completion>,
    /// The number of the reason why one of these accesses failed.
    failed: Option<u16>,
    /// The packets of later messages.
    pub(super) held: HeldPackets,
}

impl Responder {
    /// The PSN expected next.
    pub(super) fn expected_psn(&self) -> Psn {
        self.expected
    }

    pub(super) fn new(config: &Config) -> Self {
        Self {
            expected: config.receive_psn,
            message: InboundMessage::None,
            received: 0,
            receive: None,
            drops: Drops::default(),
            withheld: Withheld::default(),
            failed: None,
            held: HeldPackets::default(),
        }
    }

    #[allow(clippy::too_many_arguments)] // Everything that a packet may change.
    pub(super) fn handle_packet<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
        receives: &mut ReceiveQueue,
        memory: &mut M,
        done: &mut VecDeque<Completion>,
        reports: &mut Uncollected,
    ) -> Result<(), Fault> {
        // Step 1: PSN (IBA 9.8.2.2). A gap drops the message in progress; the sequence continues behind the gap.
        let ahead = packet.bth.psn.distance(self.expected);
        if (-LATE_PSN_WINDOW..0).contains(&ahead) {
            self.drops.late += 1;
            return Ok(());
        }
        if M::CAN_PEND && self.must_hold(info) {
            self.held.push(packet, 1);
            return Ok(());
        }
        if ahead != 0 {
            self.drops.gaps += 1;
            // If the start of a message is missing, its remaining packets are dropped; a FIRST or ONLY starts a new
            // message.
            self.message =
                if info.position.opens() { InboundMessage::None } else { InboundMessage::Dropped };
        }
        self.expected = packet.bth.psn.add(1);
        // A message in progress is dropped when another one starts. A SEND takes its request again, a WRITE needs none.
        if let Some(request) = self.receive.take_if(|_| info.position.opens()) {
            receives.put_back(request);
        }
        let verdict = self
            .check_sequence(packet, info)
            .and_then(|()| check_permission(packet, info, config))
            .and_then(|()| self.check_resources(info, receives))
            .and_then(|()| self.check_length(packet, info, config))
            .and_then(|()| check_key(packet, config, memory))
            .and_then(|()| self.execute(packet, info, config, memory, done));
        let mut failed = None;
        if let Err(refusal) = verdict {
            match refusal {
                Refusal::Drop(class, reason) => {
                    self.drops.count(class);
                    reports.report(*reason);
                    self.message = InboundMessage::Dropped;
                }
                Refusal::Remainder => {
                    self.drops.count(drops::Reason::Remainder);
                    self.message = InboundMessage::Dropped;
                }
                Refusal::Failed(reason) => failed = Some(reports.report(*reason)),
            }
        }
        if info.position.ends() {
            self.message = self.after_message();
        }
        let Some(request) = self.receive.take() else { return Ok(()) };
        match (failed, self.message) {
            (Some(reason), _) => {
                let failure = request.completion(Status::LocalProtection).because(reason);
                self.complete(failure, done);
                return Err(Fault::Responder);
            }
            // Its buffer is still written to. It is for the next message, which waits for that.
            _ if M::CAN_PEND && !self.withheld.is_empty() => self.receive = Some(request),
            // The message was dropped: the next message consumes the request, possibly one of another QP if it is
            // from an SRQ.
            (_, InboundMessage::None | InboundMessage::Dropped) => receives.put_back(request),
            (_, InboundMessage::Send | InboundMessage::Write(_) | InboundMessage::Placing) => {
                self.receive = Some(request);
            }
        }
        Ok(())
    }

    /// Step 2: the opcode continues the message in progress or starts one (IBA 9.8.2.2). A new start while a message
    /// is in progress drops only the old message.
    fn check_sequence(&mut self, packet: &Packet<'_>, info: &OpcodeInfo) -> Result<(), Refusal> {
        if info.position.opens() {
            if !matches!(self.message, InboundMessage::None | InboundMessage::Dropped) {
                self.drops.count(drops::Reason::Opcode);
            }
            self.message = InboundMessage::None;
            self.received = 0;
            return Ok(());
        }
        match (self.message, info.operation) {
            (InboundMessage::Send, Operation::Send)
            | (InboundMessage::Write(_), Operation::Write) => Ok(()),
            (InboundMessage::Dropped, _) => Err(Refusal::Remainder),
            _ => Err(unexpected(packet)),
        }
    }

    /// Step 4: a receive request for operations that consume one (IBA 9.8.2.2).
    fn check_resources(
        &mut self,
        info: &OpcodeInfo,
        receives: &mut ReceiveQueue,
    ) -> Result<(), Refusal> {
        if (info.operation == Operation::Send || info.completes) && self.receive.is_none() {
            let request = receives.take().ok_or_else(no_receive)?;
            self.receive = Some(request);
        }
        Ok(())
    }

    /// Step 5: all packets but the last are MTU-sized, and the message fits its announced length and its buffer (IBA
    /// 9.8.2.2).
    fn check_length(
        &self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
    ) -> Result<(), Refusal> {
        let (length, mtu) = (packet.payload.len() as u64, config.packet_size());
        let packet_fits = match info.position {
            Position::First | Position::Middle => length == mtu,
            Position::Last => (1..=mtu).contains(&length),
            Position::Only => length <= mtu,
        };
        let message_fits = if info.operation == Operation::Send {
            let capacity = self.receive.as_ref().map_or(0, |request| request.sg_list.len());
            self.received + length <= capacity
        } else {
            let left = self.destination(packet).map_or(0, |range| range.length);
            let left = u64::from(left);
            left <= u64::from(MAX_MESSAGE)
                && if info.position.ends() { length == left } else { length < left }
        };
        if packet_fits && message_fits {
            return Ok(());
        }
        let (payload, mtu, mtu_bytes) = (packet.payload.len(), config.mtu, mtu);
        let announced = self.destination(packet).map_or(0, |range| range.length);
        Err(drops::Reason::Length.because(if !packet_fits && length > mtu_bytes {
            Reason::PayloadOverMtu { payload, mtu }
        } else if !packet_fits {
            Reason::PayloadUnderMtu { payload, mtu }
        } else if info.operation == Operation::Send {
            let receive = self.receive.as_ref().map_or(0, |request| request.sg_list.len());
            Reason::MessageTooLong { message: self.received + length, receive }
        } else if announced > MAX_MESSAGE {
            Reason::OverMaxMessage { length: announced }
        } else {
            Reason::LengthMismatch { announced: announced.into(), payload }
        }))
    }

    /// Destination of a WRITE packet's payload and of all that follows.
    fn destination(&self, packet: &Packet<'_>) -> Option<RemoteRange> {
        match self.message {
            InboundMessage::Write(range) => Some(range),
            _ => announced(packet),
        }
    }

    /// Step 7: execution.
    fn execute(
        &mut self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Refusal> {
        if info.operation == Operation::Send {
            self.write_payload(packet.payload, config, memory)?;
            self.message = InboundMessage::Send;
        } else {
            let range = self.destination(packet).ok_or_else(|| unexpected(packet))?;
            let length = packet.payload.len() as u32;
            if length > 0 {
                // The MR may have been deregistered since the message began.
                let part = RemoteRange { length, ..range };
                match memory.begin_write_remote(config.accessor(), part, packet.payload) {
                    Ok(Begun::Done(())) => {}
                    Ok(Begun::Pending(token)) => {
                        let access = RefusedAccess::remote(part, AccessFlags::REMOTE_WRITE);
                        self.withheld.begin(token, access);
                    }
                    Err(denied) => return Err(refused(part, denied, config, memory)),
                }
            }
            self.message = InboundMessage::Write(RemoteRange {
                address: VirtualAddress(range.address.0.wrapping_add(u64::from(length))),
                length: range.length.saturating_sub(length),
                ..range
            });
        }
        self.received += packet.payload.len() as u64;
        if info.completes {
            let by_send = info.operation == Operation::Send;
            if let Some(request) = self.receive.take() {
                let completion = Completion {
                    kind: if by_send {
                        CompletionKind::Receive
                    } else {
                        CompletionKind::ReceiveWriteImmediate
                    },
                    length: self.received as u32,
                    immediate: packet.extensions.immediate.map(|immediate| immediate.value),
                    solicited: packet.bth.solicited,
                    ..request.completion(Status::Success)
                };
                self.complete(completion, done);
            }
        }
        Ok(())
    }

    /// Writes the payload of a SEND behind the bytes received before. If the receive request's own lkey denies the
    /// access, the peer is not at fault: the request fails, and the QP enters ERR (IBA 10.3.1.7).
    fn write_payload(
        &mut self,
        payload: &[u8],
        config: &Config,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let Self { receive, received, withheld, .. } = self;
        let Some(request) = receive else { return Err(no_receive()) };
        let (sg_list, by) = (&request.sg_list, config.accessor());
        let pending = |token, access| withheld.begin(token, access);
        sg_list.scatter(*received, payload, by, memory, pending).map_err(|denied| {
            let part = (*received, payload.len() as u64);
            Refusal::Failed(Box::new(sg_list.explain(part, true, denied, by, memory)))
        })
    }

    /// Ends the message in progress when the QP enters ERR.
    pub(super) fn stop(&mut self, done: &mut VecDeque<Completion>) {
        self.message = InboundMessage::None;
        self.held.clear();
        if let Some(request) = self.receive.take() {
            self.complete(request.completion(Status::Flushed), done);
        }
    }

    /// Adds a completion, behind the accesses to memory that it waits for.
    fn complete(&mut self, completion: Completion, done: &mut VecDeque<Completion>) {
        if self.withheld.is_empty() {
            done.push_back(completion);
        } else {
            self.withheld.push(completion);
        }
    }

    /// The state between messages.
    fn after_message(&self) -> InboundMessage {
        if self.withheld.is_empty() { InboundMessage::None } else { InboundMessage::Placing }
    }

    /// Whether a packet waits: messages are executed in order, as with RC, while the packets of one message are placed
    /// in any order. A start while a message is in progress ends that one.
    fn must_hold(&mut self, info: &OpcodeInfo) -> bool {
        if info.position.opens() && !self.withheld.is_empty() {
            if matches!(self.message, InboundMessage::Send | InboundMessage::Write(_)) {
                self.drops.count(drops::Reason::Opcode);
            }
            self.message = InboundMessage::Placing;
        }
        self.message == InboundMessage::Placing
    }

    /// Whether the next message waits for the end of the one before.
    pub(super) fn is_placing(&self) -> bool {
        self.message == InboundMessage::Placing
    }

    /// The receive request of a message that was dropped, if memory has finished with its buffer. It is for the next message
    /// (IBA 9.8.2.2), possibly of another QP if it is from an SRQ.
    pub(super) fn take_dropped(&mut self) -> Option<ReceiveRequest> {
        let dropped = matches!(self.message, InboundMessage::None | InboundMessage::Dropped);
        self.receive.take_if(|_| dropped && self.withheld.is_empty())
    }

    /// An access to memory has finished. `None` if it is of no message. A copy that fails is an error of this host, as
    /// with a receive request whose own lkey denies the access.
    pub(super) fn handle_finished(
        &mut self,
        token: Token,
        outcome: Outcome,
        done: &mut VecDeque<Completion>,
        reports: &mut Uncollected,
    ) -> Option<Result<(), Fault>> {
        if !self.withheld.finish(token, outcome) {
            return None;
        }
        let mut result = Ok(());
        while let Some(released) = self.withheld.pop() {
            match (released, self.failed) {
                (Released::Access(access, Outcome::Failed), None) => {
                    let reason = reports.report(Reason::Memory(access, KeyFault::CopyFailed));
                    self.failed = Some(reason);
                    if let Some(request) = self.receive.take() {
                        let failure = request.completion(Status::LocalProtection);
                        self.complete(failure.because(reason), done);
                    }
                    result = Err(Fault::Responder);
                }
                (Released::Access(..), _) => {}
                (Released::Effect(completion), Some(reason))
                    if completion.status == Status::Success =>
                {
                    let status = Status::LocalProtection;
                    done.push_back(Completion { status, ..completion }.because(reason));
                }
                (Released::Effect(completion), _) => done.push_back(completion),
            }
        }
        if self.is_placing() {
            self.message = self.after_message();
        }
        Some(result)
    }
}

#[cold]
fn unexpected(packet: &Packet<'_>) -> Refusal {
    drops::Reason::Opcode.because(Reason::OpcodeSequence(packet.bth.opcode))
}

#[cold]
fn no_receive() -> Refusal {
    drops::Reason::NoReceive.because(Reason::NoReceive { queue: None, repeated: false })
}

#[cold]
fn refused(range: RemoteRange, denied: Denied, config: &Config, memory: &impl Memory) -> Refusal {
    let access = RefusedAccess::remote(range, AccessFlags::REMOTE_WRITE);
    drops::Reason::Key.because(Reason::denied(access, denied, config.accessor(), memory))
}

fn announced(packet: &Packet<'_>) -> Option<RemoteRange> {
    packet.extensions.reth.as_ref().map(RemoteRange::from)
}

/// Step 3: the QP's access flags allow the operation (IBA 9.8.2.2).
fn check_permission(
    packet: &Packet<'_>,
    info: &OpcodeInfo,
    config: &Config,
) -> Result<(), Refusal> {
    match info.operation {
        Operation::Send => Ok(()),
        Operation::Write if config.access.contains(AccessFlags::REMOTE_WRITE) => Ok(()),
        Operation::Write => {
            let missing = AccessFlags::REMOTE_WRITE;
            let reason = Reason::NotPermitted { opcode: packet.bth.opcode, missing };
            Err(drops::Reason::Permission.because(reason))
        }
        _ => Err(unexpected(packet)),
    }
}

/// Step 6: the rkey allows the whole announced range, before the first byte is written (IBA 9.8.2.2). A zero-length
/// WRITE is not checked (IBA C9-88).
fn check_key(packet: &Packet<'_>, config: &Config, memory: &impl Memory) -> Result<(), Refusal> {
    let Some(range) = announced(packet).filter(|range| range.length > 0) else { return Ok(()) };
    (memory.check_remote(config.accessor(), range, AccessFlags::REMOTE_WRITE))
        .map_err(|denied| refused(range, denied, config, memory))
}
