//! Inbound requests, validated step by step (IBA 9.7.4): each check may produce a NAK, and only requests that pass
//! all checks are executed.
//!
//! PSN → opcode sequence → QP permissions → resources → length → rkey, bounds, access → execution.
//!
//! Where memory takes time, the packets of one message are placed in any order (IBA o9-20), and its ACK and completion wait for
//! all before them. The next message waits for its end (IBA C9-28): its packets are held.
//!
//! | file | role |
//! |---|---|
//! | `checks` | the checks after the PSN check |
//! | `execute` | execution and receive completions |
//! | `duplicates` | duplicate requests |
//! | `payload` | the payload of READ responses |
//! | `placement` | what waits for the end of an access to memory |
//! | `invariants` | what is true after every event |

mod checks;
mod duplicates;
mod execute;
#[cfg(debug_assertions)]
mod invariants;
mod payload;
mod placement;
mod whole;

pub use whole::Message;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use ferroce_wire::number::{Psn, Qpn};
use ferroce_wire::opcode::{OpcodeInfo, Operation, Position};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::{NakCode, SyndromeKind};
use ferroce_wire::transport::{Aeth, Bth};

use self::placement::{Effect, Placement};
use super::queue_pair::{Config, Role};
use super::responses::{Response, ResponseKind, Responses};
use crate::counters::Uncollected;
use crate::held::HeldPackets;
use crate::memory::{Accessor, Memory, RemoteRange};
use crate::reason::Reason;
use crate::receive::ReceiveQueue;
use crate::sequence::Sequence;
use crate::staging::Staging;
use crate::transmit::Transmit;
use crate::withheld::Withheld;
use crate::work::{Completion, ReceiveRequest, Status};

/// A request failed with a fatal NAK: the QP enters ERR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: NakCode,
    /// A receive completion reports the error locally.
    pub(super) reported: bool,
}

/// The multi-packet message in progress.
#[derive(Debug)]
enum MessageInProgress {
    None,
    Send,
    /// Destination of the remaining payload.
    Write(RemoteRange),
    /// All packets of the message have arrived, and memory has not finished with them: the next message waits.
    Placing,
}

/// PSNs further ahead of the expected one than this are not from the connection's requester: 64 MiB in flight at a
/// path MTU of 1024.
///
/// Each sequence NAK causes a retransmission, so a narrow window means that an attacker who knows only the QPN has to
/// try more PSNs. The cost: the loss of a single READ request longer than this is only detected by the requester's
/// timer.
const PSN_WINDOW: u32 = 1 << 16;

#[derive(Debug)]
pub(super) struct Responder {
    /// First PSN of the connection: nothing before it was executed.
    first: Sequence,
    expected: Sequence,
    /// The last executed SEND or WRITE packet: only these are answered by a plain ACK.
    last_ackable: Sequence,
    /// Message sequence number: completed messages (IBA 9.7.7.1).
    msn: u32,
    message: MessageInProgress,
    /// Bytes received of the message in progress.
    received: u64,
    /// The receive request that it consumes.
    receive: Option<ReceiveRequest>,
    /// The SRQ that it names, with XRC.
    receive_queue: Option<Qpn>,
    /// A NAK was sent: packets are dropped silently until the NAKed PSN arrives (IBA 9.7.5.2.8 after an RNR NAK; from
    /// rdma_rxe's behaviour after a sequence NAK).
    nak_sent: bool,
    /// The packets of the request in hand that are one run.
    run: u32,
    responses: Responses,
    pub(super) counters: Uncollected,
    /// The payload of the next READ response.
    pub(super) staging: Staging,
    /// It is being read.
    pub(super) awaits_payload: bool,
    /// The responses and completions behind unfinished accesses to memory.
    pub(super) withheld: Withheld<Placement, Effect>,
    /// The number of the reason why one of these accesses failed.
    failed: Option<u16>,
    /// The packets of later messages.
    pub(super) held: HeldPackets,
}

/// Result of a check.
type Verdict = Result<(), Reply>;

/// Response to a request that fails a check.
#[derive(Clone, Debug)]
enum Reply {
    /// RNR NAK.
    NotReady,
    /// Fatal NAK. The reason is boxed, so that a check that passes returns two words.
    Refuse(Refusal, Box<Reason>),
}

/// Why a request gets a fatal NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Its opcode or headers do not match the message in progress, the QP's permissions or its resources.
    Request,
    /// It is longer or shorter than announced, longer than the receive buffer, or longer than the maximum message.
    Length,
    /// The rkey denies the access.
    Access,
    /// The rkey of a SEND with invalidate cannot be invalidated.
    Invalidate,
    /// The lkey of the local receive request denies the access, or a copy to memory failed that was allowed.
    Receive,
}

impl Refusal {
    /// The NAK code (IBA 9.7.5.2.2).
    const fn code(self) -> NakCode {
        match self {
            Self::Request | Self::Length => NakCode::InvalidRequest,
            Self::Access | Self::Invalidate => NakCode::RemoteAccessError,
            // The peer is not at fault (IBA 9.7.5.2.6).
            Self::Receive => NakCode::RemoteOperationalError,
        }
    }

    /// Status of the receive request that the message consumed, if any (IBA 11.6.2).
    const fn receive_status(self) -> Status {
        match self {
            Self::Request | Self::Invalidate => Status::LocalOperation,
            Self::Length => Status::LocalLength,
            Self::Access => Status::LocalAccess,
            Self::Receive => Status::LocalProtection,
        }
    }

    #[cold]
    fn because(self, reason: Reason) -> Reply {
        Reply::Refuse(self, Box::new(reason))
    }
}

impl Responder {
    /// The PSN of the request packet expected next.
    #[inline]
    pub(super) fn expected_psn(&self) -> Psn {
        self.expected.psn()
    }

    pub(super) fn new(config: &Config) -> Self {
        let first = Sequence::starting(config.receive_psn);
        Self {
            first,
            expected: first,
            last_ackable: first.before(),
            msn: 0,
            message: MessageInProgress::None,
            received: 0,
            receive: None,
            receive_queue: None,
            nak_sent: false,
            run: 1,
            responses: Responses::default(),
            counters: Uncollected::default(),
            staging: Staging::default(),
            awaits_payload: false,
            withheld: Withheld::default(),
            failed: None,
            held: HeldPackets::default(),
        }
    }

    #[inline]
    pub(super) fn wants_to_send(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Whether all queued responses are positive ACKs.
    #[inline]
    pub(super) fn owes_only_acks(&self) -> bool {
        self.responses.are_acks()
    }

    /// Payload bytes of the next packet, if it belongs to a READ response.
    #[inline]
    pub(super) fn next_read_payload(&self, config: &Config) -> Option<usize> {
        self.responses.next_read_payload(config)
    }

    #[inline]
    pub(super) fn poll_transmit<M: Memory>(
        &mut self,
        config: &Config,
        max_run: u32,
    ) -> Option<Transmit<'_>> {
        if !M::CAN_PEND {
            return self.responses.poll_transmit(config, max_run);
        }
        let position = self.next_position(config);
        let part = self.staging.end(position).map_or(u32::MAX, |end| end.since(position));
        let transmit = self.responses.poll_transmit(config, max_run.min(part))?;
        Some(self.staging.with_payload::<M>(transmit, position, config.mtu))
    }

    pub(super) fn take_ack(&mut self, config: &Config) -> Option<(Bth, Aeth)> {
        self.responses.take_ack(config)
    }

    /// Handles a packet of a request, or a run of `packets`: of MIDDLE packets, or of all packets of a message.
    #[allow(clippy::too_many_arguments)] // Everything that a request may change.
    pub(super) fn handle_request<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        packets: u32,
        info: &OpcodeInfo,
        config: &Config,
        receives: Option<&mut ReceiveQueue>,
        memory: &mut M,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Refused> {
        let by = accessor(config, receives.as_deref());
        // Step 1: PSN (IBA 9.7.4.1.1).
        let mut sequence = self.expected.near(packet.bth.psn);
        self.run = packets;
        let rest;
        let mut packet = packet;
        if sequence < self.expected && sequence.plus(packets) > self.expected {
            if info.position == Position::Only {
                // The message was sent again, packet by packet, before it arrived as a whole: the other packets follow.
                return Ok(());
            }
            // The first packets of the run are duplicates.
            let before = self.expected.since(sequence);
            self.counters.get_mut().duplicate_request += u64::from(before);
            (sequence, self.run) = (self.expected, packets - before);
            rest = without(packet, before, config);
            packet = &rest;
        }
        if sequence < self.expected {
            self.counters.get_mut().duplicate_request += u64::from(packets);
            self.duplicate(sequence, packet, info, config, by, memory);
            return Ok(());
        }
        if sequence > self.expected {
            self.counters.get_mut().out_of_sequence += u64::from(packets);
            if sequence.since(self.expected) > PSN_WINDOW {
                // Not from the connection's requester: a NAK would make it retransmit needlessly.
                self.counters.get_mut().out_of_window_request += 1;
                let (psn, expected) = (packet.bth.psn, self.expected.psn());
                self.counters.report(Reason::PsnOutOfWindow { psn, expected });
                return Ok(());
            }
            if M::CAN_PEND && self.is_placing() {
                self.held.push(packet, self.run);
                return Ok(());
            }
            self.refuse_gap::<M>();
            return Ok(());
        }
        if M::CAN_PEND && self.is_placing() {
            self.held.push(packet, self.run);
            return Ok(());
        }
        let queue = packet.extensions.xrceth.map(|header| header.receive_queue.into());
        let verdict = self.check_sequence(packet, info, queue).and_then(|()| {
            // A message must name an existing SRQ of the target's XRC domain (IBA A14).
            let by = by.ok_or_else(|| Refusal::Request.because(Reason::NoXrcQueue(queue)))?;
            checks::check_permission(packet, info, config)?;
            self.receive_queue = queue;
            self.check_resources(info, config, receives)?;
            self.check_length(packet, info, config)?;
            checks::check_key(packet, info, by, memory)?;
            self.execute(packet, info, config, by, memory, done)
        });
        match verdict {
            Ok(()) => {
                self.nak_sent = false;
                Ok(())
            }
            Err(Reply::NotReady) => {
                if !self.nak_sent {
                    self.counters.report(Reason::NoReceive { queue: None, repeated: true });
                }
                // Packets behind this one are out of sequence now, and dropped silently (IBA 9.7.5.2.8).
                self.nak_sent = true;
                let syndrome = SyndromeKind::RnrNak(config.rnr_timer).into();
                self.respond::<M>(sequence, ResponseKind::Acknowledge(syndrome));
                Ok(())
            }
            Err(Reply::Refuse(refusal, reason)) => {
                let code = refusal.code();
                let reason = self.counters.report(*reason);
                let syndrome = SyndromeKind::Nak(code).into();
                self.respond::<M>(sequence, ResponseKind::Acknowledge(syndrome));
                let reported = self.end_receive(refusal.receive_status(), reason, done);
                Err(Refused { code, reported })
            }
        }
    }

    /// Queues a response, behind the accesses to memory that it waits for.
    #[inline]
    fn respond<M: Memory>(&mut self, sequence: Sequence, kind: ResponseKind) {
        let response = Response { sequence, msn: self.msn, kind };
        if M::CAN_PEND && !self.withheld.is_empty() {
            self.withhold_response(response);
        } else {
            self.responses.push(response);
        }
    }

    /// Asks for the expected packet, once.
    fn refuse_gap<M: Memory>(&mut self) {
        if !self.nak_sent {
            self.nak_sent = true;
            let syndrome = SyndromeKind::Nak(NakCode::PsnSequenceError).into();
            self.respond::<M>(self.expected, ResponseKind::Acknowledge(syndrome));
        }
    }

    /// Ends the message in progress when the QP enters ERR; queued responses are still sent.
    pub(super) fn stop(&mut self, done: &mut VecDeque<Completion>) {
        self.end_receive(Status::Flushed, 0, done);
        self.message = MessageInProgress::None;
        self.held.clear();
    }

    /// The position of a request or response with this PSN.
    pub(super) fn near(&self, psn: Psn) -> Sequence {
        self.expected.near(psn)
    }

    /// The memory of a READ can no longer be read: a NAK replaces the remaining responses.
    pub(super) fn fail_read(&mut self, sequence: Sequence, code: NakCode) {
        self.responses.clear();
        self.staging.clear();
        self.awaits_payload = false;
        let kind = ResponseKind::Acknowledge(SyndromeKind::Nak(code).into());
        // Accesses that have not finished are of later requests.
        self.responses.push(Response { sequence, msn: self.msn, kind });
    }
}

/// The QP and PD that a request is executed for; `None` when an XRC request names no usable SRQ.
fn accessor(config: &Config, receives: Option<&ReceiveQueue>) -> Option<Accessor> {
    let pd = match config.role {
        Role::Target(xrc) => receives?.xrc().filter(|queue| queue.xrc == xrc)?.pd,
        Role::Both | Role::Initiator => config.pd,
    };
    Some(Accessor { pd, queue_pair: config.number })
}

/// A run of MIDDLE packets without the first ones.
pub(super) fn without<'a>(packet: &Packet<'a>, first: u32, config: &Config) -> Packet<'a> {
    let bytes = (first as usize * usize::from(config.mtu)).min(packet.payload.len());
    let mut rest = *packet;
    rest.bth.psn = packet.bth.psn.add(first);
    rest.payload = &packet.payload[bytes..];
    rest.payload_len -= bytes;
    rest
}

/// The memory range that a request accesses.
fn remote_range(packet: &Packet<'_>) -> Option<RemoteRange> {
    let reth = packet.extensions.reth.as_ref().map(RemoteRange::from);
    let atomic = || packet.extensions.atomic;
    let words =
        || atomic().map(|eth| RemoteRange { key: eth.key, address: eth.address, length: 8 });
    reth.or_else(words)
}

/// Whether the operation has its own response and counts against `max_dest_rd_atomic` (IBA 9.4.4, A19).
const fn has_response(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::ReadRequest
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::Flush
            | Operation::AtomicWrite
    )
}
