//! Responses whose payload is being written to memory: their requests, and all behind them, complete when that is done.

use alloc::collections::VecDeque;

use super::requester::{QueuedRequest, Requester};
use crate::memory::{Outcome, Token};
use crate::qp::Fault;
use crate::reason::{KeyFault, Reason, RefusedAccess};
use crate::sequence::Sequence;
use crate::withheld::Released;
use crate::work::{Completion, Status};

/// A part of a response that is being written to memory.
#[derive(Debug)]
pub(super) struct Placement {
    access: RefusedAccess,
    /// Where the request starts.
    start: Sequence,
    /// The completion of the request if the write fails.
    failure: Completion,
    signaled: bool,
}

impl Placement {
    pub(super) fn new(access: RefusedAccess, queued: &QueuedRequest) -> Self {
        let (start, signaled) = (queued.start, queued.request.signaled);
        Self { access, start, failure: queued.completion(Status::LocalProtection), signaled }
    }
}

/// A response could not be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    /// The next completion is of the request that has failed already.
    skips_next: bool,
}

#[cfg(debug_assertions)]
impl Failed {
    pub(super) fn skips_next(self) -> bool {
        self.skips_next
    }
}

impl Requester {
    /// Whether a response to a request before this one is being written.
    #[cold]
    pub(super) fn awaits_earlier_response(&self, queued: &QueuedRequest) -> bool {
        self.withheld.oldest().is_some_and(|oldest| oldest.start < queued.start)
    }

    /// Withholds the completions that were added to `done` since there were `released`, if responses are being written.
    pub(super) fn withhold(&mut self, done: &mut VecDeque<Completion>) {
        self.withheld.absorb(done, self.released);
    }

    /// An access to memory has finished. `None` if it is of no response.
    pub(super) fn handle_finished(
        &mut self,
        token: Token,
        outcome: Outcome,
        in_error: bool,
        done: &mut VecDeque<Completion>,
    ) -> Option<Result<(), Fault>> {
        if !self.withheld.finish(token, outcome) {
            return None;
        }
        self.stalled = false;
        let mut result = Ok(());
        while let Some(released) = self.withheld.pop() {
            match (released, &mut self.failed) {
                (Released::Access(placement, Outcome::Failed), None) => {
                    let reason = Reason::Memory(placement.access, KeyFault::CopyFailed);
                    let reason = self.counters.report(reason);
                    let mut skips_next = false;
                    if !in_error {
                        done.push_back(placement.failure.because(reason));
                        // Its last response may have arrived.
                        match self.queue.front() {
                            Some(queued) if queued.start == placement.start => {
                                self.queue.pop_front();
                            }
                            _ => skips_next = placement.signaled,
                        }
                        result = Err(Fault::Requester);
                    }
                    self.failed = Some(Failed { skips_next });
                }
                (Released::Access(..), _) => {}
                (Released::Effect(completion), None) => done.push_back(completion),
                (Released::Effect(_), Some(Failed { skips_next: skips @ true })) => *skips = false,
                (Released::Effect(completion), Some(_)) => {
                    let status = match completion.status {
                        Status::Success => Status::Flushed,
                        status => status,
                    };
                    done.push_back(Completion { status, ..completion });
                }
            }
        }
        Some(result)
    }
}
