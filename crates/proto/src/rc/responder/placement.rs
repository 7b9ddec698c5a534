//! What waits for the end of an access to memory: ACKs and NAKs, receive completions, the result of an atomic operation.

use alloc::collections::VecDeque;

use ferroce_wire::opcode::Operation;
use ferroce_wire::syndrome::SyndromeKind;

use super::{MessageInProgress, Refusal, Refused, Responder};
use crate::memory::{AccessFlags, Memory, Outcome, RemoteRange, Token};
use crate::rc::queue_pair::Config;
use crate::rc::responses::{Executed, Response, ResponseKind};
use crate::reason::{KeyFault, Reason, RefusedAccess};
use crate::sequence::Sequence;
use crate::withheld::Released;
use crate::work::{Completion, Status};

/// An access to memory that was begun for a request packet.
#[derive(Debug)]
pub(in crate::rc) struct Placement {
    access: RefusedAccess,
    /// Position of the packet.
    pub(super) sequence: Sequence,
    /// The last SEND or WRITE packet before it.
    pub(super) ackable: Sequence,
    /// The atomic operation.
    atomic: Option<Executed>,
}

impl Placement {
    pub(super) const fn new(access: RefusedAccess, sequence: Sequence, ackable: Sequence) -> Self {
        Self { access, sequence, ackable, atomic: None }
    }
}

#[derive(Debug)]
pub(in crate::rc) enum Effect {
    Respond(Response),
    Complete(Completion),
}

impl Responder {
    /// Whether the next message waits for the end of the one before.
    #[inline]
    pub(in crate::rc) fn is_placing(&self) -> bool {
        matches!(self.message, MessageInProgress::Placing)
    }

    /// The payload of the packet at `sequence` is being written.
    #[cold]
    pub(super) fn place(&mut self, token: Token, access: RefusedAccess, sequence: Sequence) {
        self.withheld.begin(token, Placement::new(access, sequence, self.last_ackable));
    }

    /// An atomic operation is being executed. It can be a duplicate only when its result is known.
    #[cold]
    pub(super) fn place_atomic(&mut self, token: Token, executed: Executed) {
        let access = RefusedAccess::remote(executed.request.range, AccessFlags::REMOTE_ATOMIC);
        let (sequence, atomic) = (executed.start, Some(executed));
        let placement = Placement::new(access, sequence, executed.last_ackable);
        self.withheld.begin(token, Placement { atomic, ..placement });
        self.message = MessageInProgress::Placing;
    }

    /// Queues a response behind the accesses; adjacent ACKs and NAKs are coalesced, as in [`Responses::push`](crate::rc::responses::Responses::push).
    #[cold]
    pub(super) fn withhold_response(&mut self, response: Response) {
        if let Some(Effect::Respond(newest)) = self.withheld.newest_effect() {
            if newest.kind.is_acknowledge() && response.kind.is_acknowledge() {
                if newest.sequence <= response.sequence {
                    *newest = response;
                }
                return;
            }
        }
        self.withheld.push(Effect::Respond(response));
    }

    /// An access has finished. `None` if it is of no request.
    pub(in crate::rc) fn handle_finished(
        &mut self,
        token: Token,
        outcome: Outcome,
        config: &Config,
        in_error: bool,
        done: &mut VecDeque<Completion>,
    ) -> Option<Result<(), Refused>> {
        if !self.withheld.finish(token, outcome) {
            return None;
        }
        let mut result = Ok(());
        while let Some(released) = self.withheld.pop() {
            match released {
                Released::Access(placement, Outcome::Failed) if self.failed.is_none() => {
                    let reason = Reason::Memory(placement.access, KeyFault::CopyFailed);
                    self.failed = Some(self.counters.report(reason));
                    if !in_error {
                        result = Err(self.refuse_placed(placement.sequence, done));
                    }
                }
                // What follows a failure was not executed.
                _ if self.failed.is_some() => {
                    if let Released::Effect(Effect::Complete(completion)) = released {
                        done.push_back(self.fail_completion(completion));
                    }
                }
                Released::Access(Placement { atomic: Some(executed), .. }, outcome) => {
                    self.finish_atomic(executed, outcome, config);
                }
                Released::Access(..) => {}
                Released::Effect(Effect::Respond(response)) => self.responses.push(response),
                Released::Effect(Effect::Complete(completion)) => done.push_back(completion),
            }
        }
        if self.is_placing() && self.withheld.is_empty() {
            self.message = MessageInProgress::None;
        }
        Some(result)
    }

    /// A copy failed that the key allows: the peer is not at fault (IBA 9.7.5.2.6).
    fn refuse_placed(&mut self, sequence: Sequence, done: &mut VecDeque<Completion>) -> Refused {
        let code = Refusal::Receive.code();
        let kind = ResponseKind::Acknowledge(SyndromeKind::Nak(code).into());
        self.responses.push(Response { sequence, msn: self.msn, kind });
        let completes = self.withheld.effects().any(|effect| matches!(effect, Effect::Complete(_)));
        let reason = self.failed.unwrap_or(0);
        let ends = self.end_receive(Refusal::Receive.receive_status(), reason, done);
        Refused { code, reported: completes || ends }
    }

    /// The completion of the message of which a packet could not be placed.
    fn fail_completion(&self, completion: Completion) -> Completion {
        if completion.status != Status::Success {
            return completion;
        }
        let status = Refusal::Receive.receive_status();
        Completion { status, vendor_error: self.failed.unwrap_or(0), ..completion }
    }

    fn finish_atomic(&mut self, executed: Executed, outcome: Outcome, config: &Config) {
        let original = if let Outcome::Executed(original) = outcome { original } else { 0 };
        let executed = Executed { original, ..executed };
        let kind = match executed.request.operation {
            Operation::CompareSwap | Operation::FetchAdd => {
                ResponseKind::Atomic { original, duplicate: false }
            }
            // The response to an ATOMIC WRITE is an empty READ response (IBA A19).
            _ => ResponseKind::Read {
                range: RemoteRange::default(),
                sent: 0,
                by: executed.request.by,
                duplicate: false,
            },
        };
        self.responses.remember(executed, config);
        self.responses.push(Response { sequence: executed.start, msn: self.msn, kind });
    }

    /// Asks for the packets that were not held, once those before them have been handled.
    pub(in crate::rc) fn ask_for_dropped<M: Memory>(&mut self) {
        if core::mem::take(&mut self.held.dropped) && !self.is_placing() {
            self.refuse_gap::<M>();
        }
    }
}
