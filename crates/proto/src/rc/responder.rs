//! Requests of the peer, through a pipeline of checks (IBA 9.7.4): each may end in an answer, and only what passes all
//! of them is executed.
//!
//! PSN → opcode sequence → queue pair's permissions → resources → length → key, bounds, access → execution.

use alloc::collections::VecDeque;

use ferroce_wire::number::{Immediate, Psn, Qpn, RKey, VirtualAddress};
use ferroce_wire::opcode::{OpcodeInfo, Operation, Position};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::{NakCode, Syndrome, SyndromeKind};
use ferroce_wire::transport::Reth;

use super::queue_pair::{Config, Role};
use super::responses::{Answer, Executed, Response, Responses};
use super::sequence::Sequence;
use crate::counters::Counters;
use crate::memory::{AccessFlags, Accessor, Atomic, Memory, RemoteSpan};
use crate::receive::ReceiveQueue;
use crate::transmit::Transmit;
use crate::work::{Completion, CompletionKind, ReceiveRequest, Status};

/// The peer broke the protocol or was refused for good: it was told so, and the queue pair is in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) NakCode);

/// A message of several packets, under way.
#[derive(Debug)]
enum Message {
    None,
    Send,
    /// Where its next packet goes, and how much is still to come.
    Write(RemoteSpan),
}

#[derive(Debug)]
pub(super) struct Responder {
    expected: Sequence,
    /// The last packet executed that an acknowledgement alone answers: of a SEND or a WRITE.
    plain: Sequence,
    /// Messages completed (IBA 9.7.7.1).
    msn: u32,
    message: Message,
    /// Bytes of the message under way that arrived.
    received: u64,
    /// The receive request that it takes.
    receive: Option<ReceiveRequest>,
    /// The shared receive queue that it names, with XRC.
    receive_queue: Option<Qpn>,
    /// A packet is missing, and the requester was told: everything is silently dropped until it comes (IBA 9.7.5.2.8).
    nak_sent: bool,
    responses: Responses,
    pub(super) counters: Counters,
}

/// What a check says.
type Verdict = Result<(), Reply>;

/// What a request that does not pass is answered by.
#[derive(Clone, Copy, Debug)]
enum Reply {
    /// Wait, and send again.
    NotReady,
    /// Never.
    Nak(NakCode),
}

impl From<NakCode> for Reply {
    fn from(code: NakCode) -> Self {
        Self::Nak(code)
    }
}

impl Responder {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            expected: Sequence::starting(config.receive_psn),
            plain: Sequence::starting(config.receive_psn).before(),
            msn: 0,
            message: Message::None,
            received: 0,
            receive: None,
            receive_queue: None,
            nak_sent: false,
            responses: Responses::default(),
            counters: Counters::default(),
        }
    }

    pub(super) fn wants_to_send(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Payload bytes of the next packet, if it is one of a READ response.
    pub(super) fn next_read_payload(&self, config: &Config) -> Option<usize> {
        self.responses.next_read_payload(config)
    }

    pub(super) fn poll_transmit(&mut self, config: &Config) -> Option<Transmit<'static>> {
        self.responses.poll_transmit(config)
    }

    pub(super) fn handle_request(
        &mut self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
        receives: Option<&mut ReceiveQueue>,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Refused> {
        let by = accessor(config, receives.as_deref());
        // 1. PSN (IBA 9.7.4.1.1).
        let sequence = self.expected.near(packet.bth.psn);
        if sequence < self.expected {
            self.counters.duplicate_request += 1;
            if let Some(by) = by {
                self.duplicate(sequence, packet, info, config, by, memory);
            }
            return Ok(());
        }
        if sequence > self.expected {
            self.counters.out_of_sequence += 1;
            if !self.nak_sent {
                self.nak_sent = true;
                let syndrome = SyndromeKind::Nak(NakCode::PsnSequenceError).into();
                self.answer(self.expected, Answer::Acknowledge(syndrome));
            }
            return Ok(());
        }
        let queue = packet.extensions.xrceth.map(|header| header.receive_queue);
        let verdict = self.check_sequence(info, queue).and_then(|()| {
            // IBA A14: a queue that is not there, or of another domain, is no place for a message.
            let by = by.ok_or(NakCode::InvalidRequest)?;
            check_permission(packet, info, config)?;
            self.receive_queue = queue;
            self.check_resources(info, config, receives)?;
            self.check_length(packet, info, config)?;
            check_key(packet, info, by, memory)?;
            self.execute(packet, info, config, by, memory, done)
        });
        match verdict {
            Ok(()) => {
                self.nak_sent = false;
                Ok(())
            }
            Err(Reply::NotReady) => {
                // The packets behind this one are out of sequence now, and dropped in silence (IBA 9.7.5.2.8).
                self.nak_sent = true;
                let syndrome = SyndromeKind::RnrNak(config.rnr_timer).into();
                self.answer(sequence, Answer::Acknowledge(syndrome));
                Ok(())
            }
            Err(Reply::Nak(code)) => {
                let syndrome = SyndromeKind::Nak(code).into();
                self.answer(sequence, Answer::Acknowledge(syndrome));
                self.fail_receive(code, done);
                Err(Refused(code))
            }
        }
    }

    fn answer(&mut self, sequence: Sequence, answer: Answer) {
        self.responses.push(Response { sequence, msn: self.msn, answer });
    }

    /// 2. Packets of a message follow each other, and messages do not mix (IBA 9.7.4.1.2, table 48).
    ///
    /// With XRC, all of a message is for one queue (IBA A14).
    fn check_sequence(&self, info: &OpcodeInfo, queue: Option<Qpn>) -> Verdict {
        let fits = (info.position.opens() || queue == self.receive_queue)
            && matches!(
                (&self.message, info.operation, info.position),
                (Message::None, _, Position::First | Position::Only)
                    | (Message::Send, Operation::Send, Position::Middle | Position::Last)
                    | (Message::Write(_), Operation::Write, Position::Middle | Position::Last)
            );
        if fits { Ok(()) } else { Err(NakCode::InvalidRequest.into()) }
    }

    /// 4. A receive request for what needs one, room for READs and atomics (IBA 9.7.4.1.4, 9.7.4.1.5).
    fn check_resources(
        &mut self,
        info: &OpcodeInfo,
        config: &Config,
        receives: Option<&mut ReceiveQueue>,
    ) -> Verdict {
        let opens_send = info.operation == Operation::Send && info.position.opens();
        if (opens_send || info.immediate) && self.receive.is_none() {
            let request = receives.and_then(ReceiveQueue::take).ok_or(Reply::NotReady)?;
            self.receive = Some(request);
        }
        let slot = matches!(
            info.operation,
            Operation::ReadRequest
                | Operation::CompareSwap
                | Operation::FetchAdd
                | Operation::Flush
                | Operation::AtomicWrite
        );
        if slot && self.responses.unanswered() >= usize::from(config.max_dest_rd_atomic) {
            return Err(NakCode::InvalidRequest.into());
        }
        Ok(())
    }

    /// 5. Full packets but the last, nothing longer than was announced or than there is room for (IBA 9.7.4.1.6).
    fn check_length(&self, packet: &Packet<'_>, info: &OpcodeInfo, config: &Config) -> Verdict {
        let (length, mtu) = (packet.payload_len as u64, u64::from(config.mtu));
        let packet_fits = match info.position {
            _ if !info.payload => length == 0,
            Position::First | Position::Middle => length == mtu,
            Position::Last => (1..=mtu).contains(&length),
            Position::Only => length <= mtu,
        };
        let message_fits = match info.operation {
            Operation::Send => {
                let before = if info.position.opens() { 0 } else { self.received };
                let receive = self.receive.as_ref();
                receive.is_some_and(|request| before + length <= request.spans.len())
            }
            Operation::Write => {
                let left = match (&self.message, packet.extensions.reth) {
                    (Message::Write(span), _) => u64::from(span.length),
                    (_, Some(reth)) => u64::from(reth.length),
                    _ => 0,
                };
                if info.position.ends() { length == left } else { length < left }
            }
            // IBA A19.4.
            Operation::AtomicWrite => length == 8,
            _ => true,
        };
        if packet_fits && message_fits { Ok(()) } else { Err(NakCode::InvalidRequest.into()) }
    }

    /// 7. Everything is in order: do it.
    fn execute(
        &mut self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
        by: Accessor,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Verdict {
        let sequence = self.expected;
        let extensions = &packet.extensions;
        if info.position.opens() {
            self.received = 0;
        }
        match info.operation {
            Operation::Send => {
                self.place(packet.payload, by, memory)?;
                self.message = if info.position.ends() { Message::None } else { Message::Send };
            }
            Operation::Write => {
                let mut span = match (&self.message, extensions.reth) {
                    (Message::Write(span), _) => *span,
                    (_, Some(reth)) => span_of(&reth),
                    _ => return Err(NakCode::InvalidRequest.into()),
                };
                let length = packet.payload.len() as u32;
                if length > 0 {
                    let part = RemoteSpan { length, ..span };
                    (memory.write_remote(by, part, packet.payload))
                        .map_err(|_| NakCode::RemoteAccessError)?;
                }
                span.address = VirtualAddress(span.address.0.wrapping_add(u64::from(length)));
                span.length -= length;
                self.message =
                    if info.position.ends() { Message::None } else { Message::Write(span) };
            }
            Operation::ReadRequest => {
                let Some(reth) = extensions.reth else {
                    return Err(NakCode::InvalidRequest.into());
                };
                self.msn = self.msn.wrapping_add(1);
                self.answer(
                    sequence,
                    Answer::Read { span: span_of(&reth), sent: 0, by, again: false },
                );
                let packets = reth.length.div_ceil(u32::from(config.mtu)).max(1);
                self.expected = sequence.plus(packets);
                return Ok(());
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                let Some((span, what)) = atomic(packet, info) else {
                    return Err(NakCode::InvalidRequest.into());
                };
                let original =
                    (memory.atomic(by, span, what)).map_err(|_| NakCode::RemoteAccessError)?;
                self.msn = self.msn.wrapping_add(1);
                self.responses.remember(Executed { sequence, original }, config);
                self.answer(sequence, Answer::Atomic(original));
                self.expected = sequence.plus(1);
                return Ok(());
            }
            Operation::AtomicWrite | Operation::Flush => {
                if let (Operation::AtomicWrite, Some(reth), Ok(bytes)) =
                    (info.operation, extensions.reth, packet.payload.try_into())
                {
                    let what = Atomic::Write(u64::from_ne_bytes(bytes));
                    (memory.atomic(by, span_of(&reth), what))
                        .map_err(|_| NakCode::RemoteAccessError)?;
                }
                self.msn = self.msn.wrapping_add(1);
                // IBA A19: answered by an empty READ response.
                let span = RemoteSpan::default();
                self.answer(sequence, Answer::Read { span, sent: 0, by, again: false });
                self.expected = sequence.plus(1);
                return Ok(());
            }
            _ => return Err(NakCode::InvalidRequest.into()),
        }
        self.received += packet.payload.len() as u64;
        if let Some(ieth) = extensions.ieth {
            // IBA 9.4.1.1.3: a key that cannot be made invalid is a memory protection error.
            (memory.invalidate(by, ieth.key)).map_err(|_| NakCode::RemoteAccessError)?;
        }
        if info.position.ends() {
            self.msn = self.msn.wrapping_add(1);
        }
        if info.completes {
            let immediate = extensions.immediate.map(|immediate| immediate.value);
            let invalidated = extensions.ieth.map(|ieth| ieth.key);
            self.complete(packet, info, immediate, invalidated, done);
        }
        self.plain = sequence;
        self.expected = sequence.plus(1);
        if packet.bth.ack_request {
            self.answer(sequence, Answer::Acknowledge(Syndrome::ACK));
        }
        Ok(())
    }

    /// Puts the payload of a SEND behind what has come of it.
    fn place(&mut self, payload: &[u8], by: Accessor, memory: &mut impl Memory) -> Verdict {
        let Some(request) = &self.receive else { return Err(NakCode::InvalidRequest.into()) };
        let mut data = payload;
        for span in request.spans.range(self.received, payload.len() as u64) {
            let (part, rest) = data.split_at(data.len().min(span.length as usize));
            // Our own receive request names memory that it may not: the peer did nothing wrong (IBA 9.7.5.2.6).
            (memory.write_local(by.domain, span, part))
                .map_err(|_| NakCode::RemoteOperationalError)?;
            data = rest;
        }
        Ok(())
    }

    fn complete(
        &mut self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        immediate: Option<Immediate>,
        invalidated: Option<RKey>,
        done: &mut VecDeque<Completion>,
    ) {
        let Some(request) = self.receive.take() else { return };
        let by_write = info.operation == Operation::Write;
        done.push_back(Completion {
            id: request.id,
            status: Status::Success,
            kind: if by_write {
                CompletionKind::ReceiveWriteImmediate
            } else {
                CompletionKind::Receive
            },
            length: self.received as u32,
            immediate,
            invalidated,
            solicited: packet.bth.solicited,
            source: None,
            over_ipv4: false,
            receive_queue: self.receive_queue,
        });
    }

    /// The message under way failed: its receive request ends in error.
    fn fail_receive(&mut self, code: NakCode, done: &mut VecDeque<Completion>) {
        let status = match code {
            NakCode::RemoteOperationalError => Status::LocalProtection,
            NakCode::InvalidRequest => Status::LocalLength,
            _ => Status::LocalOperation,
        };
        self.end_receive(status, done);
    }

    fn end_receive(&mut self, status: Status, done: &mut VecDeque<Completion>) {
        if let Some(request) = self.receive.take() {
            done.push_back(Completion {
                receive_queue: self.receive_queue,
                ..Completion::new(request.id, CompletionKind::Receive, status)
            });
        }
    }

    /// The queue pair is in error: a message under way ends, answers that are due still go out.
    pub(super) fn stop(&mut self, done: &mut VecDeque<Completion>) {
        self.end_receive(Status::Flushed, done);
        self.message = Message::None;
    }

    /// The memory of a READ may not be read any more: what is left of the answer is a refusal.
    pub(super) fn fail_read(&mut self, psn: Psn) {
        let sequence = self.expected.near(psn);
        self.responses.forget_all();
        let syndrome = SyndromeKind::Nak(NakCode::RemoteAccessError).into();
        self.answer(sequence, Answer::Acknowledge(syndrome));
    }

    /// A request that was executed before (IBA 9.7.5.1.5): it is answered again, and never executed again, but for a
    /// READ, whose answer is the memory as it is now.
    fn duplicate(
        &mut self,
        sequence: Sequence,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
        by: Accessor,
        memory: &mut impl Memory,
    ) {
        match info.operation {
            Operation::ReadRequest => {
                let Some(reth) = packet.extensions.reth else { return };
                let span = span_of(&reth);
                let packets = reth.length.div_ceil(u32::from(config.mtu)).max(1);
                // It must be one that was executed: its last response lies before what is expected next.
                if sequence.plus(packets) > self.expected
                    || check_key(packet, info, by, memory).is_err()
                {
                    return;
                }
                // The requester takes nothing from behind the gap, and asks for all of it again.
                self.responses.forget_from(sequence);
                self.answer(sequence, Answer::Read { span, sent: 0, by, again: true });
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                let Some(executed) = self.responses.executed(sequence) else { return };
                self.responses.forget_from(sequence);
                self.answer(sequence, Answer::Atomic(executed.original));
            }
            Operation::AtomicWrite | Operation::Flush => {
                self.responses.forget_from(sequence);
                self.answer(
                    sequence,
                    Answer::Read { span: RemoteSpan::default(), sent: 0, by, again: true },
                );
            }
            // IBA 9.7.5.1.2: the newest acknowledgement covers it. Not one with the PSN of a READ or an atomic that came
            // behind: their answers carry something, and an acknowledgement in their place would say that it did not
            // arrive, or, to requesters that do not look, that it did.
            _ => self.answer(self.plain, Answer::Acknowledge(Syndrome::ACK)),
        }
    }
}

/// As whom a request is executed. `None` when it names no receive queue that it may.
fn accessor(config: &Config, receives: Option<&ReceiveQueue>) -> Option<Accessor> {
    let domain = match config.role {
        Role::Target(xrc) => receives?.xrc().filter(|queue| queue.xrc == xrc)?.domain,
        Role::Both | Role::Initiator => config.domain,
    };
    Some(Accessor { domain, queue_pair: config.number })
}

fn span_of(reth: &Reth) -> RemoteSpan {
    RemoteSpan { key: reth.key, address: reth.address, length: reth.length }
}

fn atomic(packet: &Packet<'_>, info: &OpcodeInfo) -> Option<(RemoteSpan, Atomic)> {
    let eth = packet.extensions.atomic?;
    let span = RemoteSpan { key: eth.key, address: eth.address, length: 8 };
    let what = match info.operation {
        Operation::CompareSwap => {
            Atomic::CompareSwap { compare: eth.compare.0, swap: eth.swap_or_add.0 }
        }
        _ => Atomic::FetchAdd(eth.swap_or_add.0),
    };
    Some((span, what))
}

/// 3. The queue pair allows the operation (IBA 9.7.4.1.3).
fn check_permission(packet: &Packet<'_>, info: &OpcodeInfo, config: &Config) -> Verdict {
    if config.access.contains(needed_access(packet, info)) {
        Ok(())
    } else {
        Err(NakCode::InvalidRequest.into())
    }
}

/// What an operation needs to be allowed, of the queue pair and of the memory.
fn needed_access(packet: &Packet<'_>, info: &OpcodeInfo) -> AccessFlags {
    match info.operation {
        Operation::Write | Operation::AtomicWrite => AccessFlags::REMOTE_WRITE,
        Operation::ReadRequest => AccessFlags::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => AccessFlags::REMOTE_ATOMIC,
        // IBA A19: each kind of placement is allowed by itself.
        Operation::Flush => match packet.extensions.feth.map_or(0, |feth| feth.placement.0) {
            1 => AccessFlags::FLUSH_GLOBAL,
            2 => AccessFlags::FLUSH_PERSISTENT,
            3 => AccessFlags::FLUSH_GLOBAL | AccessFlags::FLUSH_PERSISTENT,
            _ => AccessFlags::default(),
        },
        _ => AccessFlags::default(),
    }
}

/// 6. The key allows all that the message announces, before its first byte is touched (IBA 9.7.4.1.7).
fn check_key(
    packet: &Packet<'_>,
    info: &OpcodeInfo,
    by: Accessor,
    memory: &impl Memory,
) -> Verdict {
    let span = match (packet.extensions.reth, packet.extensions.atomic) {
        (Some(reth), _) => span_of(&reth),
        (None, Some(atomic)) => {
            // IBA 9.4.5.1: aligned, or refused as invalid.
            if atomic.address.0 % 8 != 0 {
                return Err(NakCode::InvalidRequest.into());
            }
            RemoteSpan { key: atomic.key, address: atomic.address, length: 8 }
        }
        (None, None) => return Ok(()),
    };
    // IBA 9.7.4.1.7: nothing is accessed, so nothing is checked.
    if span.length == 0 {
        return Ok(());
    }
    let access = needed_access(packet, info);
    (memory.check_remote(by, span, access)).map_err(|_| NakCode::RemoteAccessError.into())
}
