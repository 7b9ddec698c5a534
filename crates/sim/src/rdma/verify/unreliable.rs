//! UC: whole messages in order, or nothing.

use ferroce_proto::work::{CompletionKind, Status};

use super::{ExpectedMemory, ProgramResult, Verifier};
use crate::rdma::plan::Connection;
use crate::rdma::program::{Effect, Program};

impl Verifier<'_> {
    pub(super) fn unreliable(
        &mut self,
        number: usize,
        program: &Program,
        connection: &Connection,
    ) -> ProgramResult {
        let mut result = ProgramResult::default();
        let active = self.endpoint(program.active);
        if let Some(endpoint) = active.filter(|endpoint| endpoint.pending.is_none()) {
            let Some(found) = self.completions(number, endpoint, &program.steps, false) else {
                return result;
            };
            result = found;
            if result.failed.is_some() && program.violation() != Some(result.cause) {
                self.report(number, format!("{:?} without a cause", result.failed));
            }
        }
        self.receives(number, program);
        self.delivered(number, program, connection, result.succeeded);
        result
    }

    fn delivered(
        &mut self,
        number: usize,
        program: &Program,
        connection: &Connection,
        succeeded: usize,
    ) {
        let Some(endpoint) = self.endpoint(program.passive) else { return };
        let Some(found_memory) = self.region(program.passive, program.regions[1]) else { return };
        let [ours, theirs] = &program.before;
        let mut image = ExpectedMemory::new(theirs);
        let mut completions = endpoint
            .receive_completions
            .iter()
            .filter(|one| one.status == Status::Success)
            .peekable();
        let lives = connection.endpoints.iter().all(|endpoint| self.hosts[endpoint.host].is_some());
        let all = self.network.faultless && lives;
        for (index, step) in program.steps.iter().enumerate() {
            let (from, length, to, immediate) = match step.effect {
                Effect::Sent { from, length, immediate, .. } => (from, length, None, immediate),
                Effect::Written { from, to, length, immediate } => {
                    (from, length, Some(to), immediate)
                }
                _ => continue,
            };
            let message = &ours[from..from + length];
            // Either the next completion is of this message, or this message was dropped.
            let mine = step.effect.consumes_receive()
                && completions.peek().is_some_and(|one| {
                    let is_write = one.kind == CompletionKind::ReceiveWriteImmediate;
                    one.length as usize == length
                        && one.immediate == immediate
                        && is_write == to.is_some()
                        && (is_write || self.received(program, one) == Some(message))
                });
            if mine {
                completions.next();
            } else if all && step.effect.consumes_receive() && index < succeeded {
                self.report(number, format!("request {index} was not received"));
            }
            let Some(to) = to else { continue };
            let found = &found_memory[to..to + length];
            let whole = mine || (all && index < succeeded);
            let partly = found
                .iter()
                .zip(message)
                .zip(&theirs[to..])
                .all(|((found, sent), before)| found == sent || found == before);
            if (whole && found != message) || !partly {
                self.report(
                    number,
                    format!("request {index}: the WRITE was received with wrong bytes"),
                );
            }
            image.accept(to, length, found_memory);
        }
        if let Some(more) = completions.next() {
            self.report(number, format!("{more:?} is not a message that was sent, in order"));
        }
        // A dropped message may have left any bytes in a buffer.
        for &(at, length) in program.buffers.iter().flatten() {
            image.accept(at, length, found_memory);
        }
        if let Some(what) = image.compare(found_memory) {
            self.report(number, format!("the peer's memory has {what}"));
        }
    }
}
