//! UC: whole messages in order, or nothing.

use ferroce_proto::work::{CompletionKind, Status};

use super::{Image, Judge, Progress};
use crate::rdma::plan::Connection;
use crate::rdma::program::{Effect, Program};

impl Judge<'_> {
    pub(super) fn unreliable(
        &mut self,
        number: usize,
        program: &Program,
        connection: &Connection,
    ) -> Progress {
        let mut progress = Progress::default();
        let active = self.end(program.active);
        if let Some(end) = active.filter(|end| end.waiting.is_none()) {
            let Some(found) = self.completions(number, end, &program.steps, false) else {
                return progress;
            };
            progress = found;
            if progress.failed.is_some() && program.violation() != Some(progress.cause) {
                self.say(number, format!("{:?} for no reason", progress.failed));
            }
        }
        self.receives(number, program);
        self.delivered(number, program, connection, progress.succeeded);
        progress
    }

    fn delivered(
        &mut self,
        number: usize,
        program: &Program,
        connection: &Connection,
        succeeded: usize,
    ) {
        let Some(end) = self.end(program.passive) else { return };
        let Some(there) = self.region(program.passive, program.regions[1]) else { return };
        let [ours, theirs] = &program.before;
        let mut image = Image::new(theirs);
        let mut completions =
            end.received.iter().filter(|one| one.status == Status::Success).peekable();
        let lives = connection.ends.iter().all(|place| self.hosts[place.host].is_some());
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
            // The next completion is of this message, or this message was dropped.
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
                self.say(number, format!("request {index} was not received"));
            }
            let Some(to) = to else { continue };
            let found = &there[to..to + length];
            let whole = mine || (all && index < succeeded);
            let partly = found
                .iter()
                .zip(message)
                .zip(&theirs[to..])
                .all(|((found, sent), before)| found == sent || found == before);
            if (whole && found != message) || !partly {
                self.say(number, format!("request {index}: WRITE came with other bytes"));
            }
            image.leave(to, length, there);
        }
        if let Some(more) = completions.next() {
            self.say(number, format!("{more:?} is no message that was sent, in order"));
        }
        // What a dropped message left in a buffer is not known to anybody.
        for &(at, length) in program.buffers.iter().flatten() {
            image.leave(at, length, there);
        }
        if let Some(what) = image.compare(there) {
            self.say(number, format!("the peer's memory has {what}"));
        }
    }
}
