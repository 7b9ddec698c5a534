//! Requests of the peer, through a pipeline of checks (IBA 9.7.4): each may end in an answer, and only what passes all
//! of them is executed.
//!
//! PSN → opcode sequence → queue pair's permissions → resources → length → key, bounds, access → execution.
//!
//! | file | role |
//! |---|---|
//! | `checks` | the checks behind the PSN |
//! | `execute` | what a request does, and the receive completions |
//! | `duplicates` | requests that were executed before |

mod checks;
mod duplicates;
mod execute;

use alloc::collections::VecDeque;

use ferroce_wire::number::{Psn, Qpn};
use ferroce_wire::opcode::{OpcodeInfo, Operation};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::{NakCode, SyndromeKind};

use super::queue_pair::{Config, Role};
use super::responses::{Answer, Response, Responses};
use super::sequence::Sequence;
use crate::counters::Counters;
use crate::memory::{Accessor, Memory, RemoteRange};
use crate::receive::ReceiveQueue;
use crate::transmit::Transmit;
use crate::work::{Completion, ReceiveRequest, Status};

/// The peer broke the protocol or was refused for good: it was told so, and the queue pair is in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: NakCode,
    /// A receive completion reports the error to the owner.
    pub(super) reported: bool,
}

/// A message of several packets, in progress.
#[derive(Debug)]
enum Message {
    None,
    Send,
    /// Where its next packet goes, and how much is still to come.
    Write(RemoteRange),
}

/// PSNs further than this from the expected one are taken for a stranger's: 64 MiB in flight at a path MTU of 1024.
///
/// Each sequence NAK makes the requester go back, so the narrower this is, the more PSNs somebody who knows no more than
/// the QPN has to try for one. What it costs: the loss of a single READ request longer than this is noticed by the
/// requester's timer.
const WINDOW: u32 = 1 << 16;

#[derive(Debug)]
pub(super) struct Responder {
    /// The connection's first PSN: nothing before it was executed.
    first: Sequence,
    expected: Sequence,
    /// The last packet executed that an acknowledgement alone answers: of a SEND or a WRITE.
    plain: Sequence,
    /// Messages completed (IBA 9.7.7.1).
    msn: u32,
    message: Message,
    /// Bytes of the message in progress that arrived.
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
    Refuse(Refusal),
}

/// Why a request is refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Its opcode, headers or number do not fit the message in progress, the QP's permissions or its resources.
    Request,
    /// It is longer or shorter than announced, than the receive, or than a message may be.
    Length,
    /// The rkey does not allow it.
    Access,
    /// The rkey of a SEND with invalidate cannot be invalidated.
    Invalidate,
    /// The lkey of our own receive request does not allow it.
    Receive,
}

impl Refusal {
    /// What the requester is told (IBA 9.7.5.2, table 58).
    const fn code(self) -> NakCode {
        match self {
            Self::Request | Self::Length => NakCode::InvalidRequest,
            Self::Access | Self::Invalidate => NakCode::RemoteAccessError,
            // The peer did nothing wrong (IBA 9.7.5.2.6).
            Self::Receive => NakCode::RemoteOperationalError,
        }
    }

    /// How the receive request of the message ends, if it took one (IBA 11.6.2).
    const fn receive_status(self) -> Status {
        match self {
            Self::Request | Self::Invalidate => Status::LocalOperation,
            Self::Length => Status::LocalLength,
            Self::Access => Status::LocalAccess,
            Self::Receive => Status::LocalProtection,
        }
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}

impl Responder {
    pub(super) fn new(config: &Config) -> Self {
        let first = Sequence::starting(config.receive_psn);
        Self {
            first,
            expected: first,
            plain: first.before(),
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
            self.duplicate(sequence, packet, info, config, by, memory);
            return Ok(());
        }
        if sequence > self.expected {
            self.counters.out_of_sequence += 1;
            if sequence.since(self.expected) > WINDOW {
                // Not from our requester: a NAK would make that one go back for nothing.
                self.counters.out_of_window_request += 1;
                return Ok(());
            }
            if !self.nak_sent {
                self.nak_sent = true;
                let syndrome = SyndromeKind::Nak(NakCode::PsnSequenceError).into();
                self.answer(self.expected, Answer::Acknowledge(syndrome));
            }
            return Ok(());
        }
        let queue = packet.extensions.xrceth.map(|header| header.receive_queue.into());
        let verdict = self.check_sequence(info, queue).and_then(|()| {
            // IBA A14: a queue that is not there, or of another domain, is no place for a message.
            let by = by.ok_or(Refusal::Request)?;
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
                // The packets behind this one are out of sequence now, and dropped in silence (IBA 9.7.5.2.8).
                self.nak_sent = true;
                let syndrome = SyndromeKind::RnrNak(config.rnr_timer).into();
                self.answer(sequence, Answer::Acknowledge(syndrome));
                Ok(())
            }
            Err(Reply::Refuse(refusal)) => {
                let code = refusal.code();
                self.answer(sequence, Answer::Acknowledge(SyndromeKind::Nak(code).into()));
                let reported = self.end_receive(refusal.receive_status(), done);
                Err(Refused { code, reported })
            }
        }
    }

    fn answer(&mut self, sequence: Sequence, answer: Answer) {
        self.responses.push(Response { sequence, msn: self.msn, answer });
    }

    /// The queue pair is in error: a message in progress ends, answers that are due still go out.
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
}

/// As whom a request is executed. `None` when it names no receive queue that it may.
fn accessor(config: &Config, receives: Option<&ReceiveQueue>) -> Option<Accessor> {
    let pd = match config.role {
        Role::Target(xrc) => receives?.xrc().filter(|queue| queue.xrc == xrc)?.pd,
        Role::Both | Role::Initiator => config.pd,
    };
    Some(Accessor { pd, queue_pair: config.number })
}

/// What a request names of our memory.
fn named(packet: &Packet<'_>) -> Option<RemoteRange> {
    let reth = packet.extensions.reth.as_ref().map(RemoteRange::from);
    let atomic = || packet.extensions.atomic;
    let words =
        || atomic().map(|eth| RemoteRange { key: eth.key, address: eth.address, length: 8 });
    reth.or_else(words)
}

/// Whether a response of its own answers the request, so that it counts against `max_dest_rd_atomic` (IBA 9.4.4, A19).
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
