//! RC and XRC: everything arrives exactly as posted, or the queue pair is in error.

use ferroce_proto::rc;
use ferroce_proto::work::{CompletionKind, Status};

use super::{Image, Judge, Progress};
use crate::rdma::host::Pair;
use crate::rdma::plan::Connection;
use crate::rdma::program::{Effect, Program};

impl Judge<'_> {
    pub(super) fn reliable(
        &mut self,
        number: usize,
        program: &Program,
        connection: &Connection,
    ) -> Progress {
        let active = self.end(program.active);
        // The other direction shares the queue pair, and may have ended it.
        let ended = connection.programs.iter().any(|one| one.violation().is_some());
        let peer_lives = self.hosts[program.passive.host].is_some();
        let out_of_reach = !self.network.faultless || !peer_lives || ended;
        let mut progress = Progress::default();
        if let Some(end) = active {
            if end.waiting.is_some() {
                // The connection never came up: nothing was posted, and nothing may have happened.
                if !end.sent.is_empty() {
                    self.say(number, "completions without a connection".to_owned());
                }
            } else if let Some(found) = self.completions(number, end, &program.steps, out_of_reach)
            {
                progress = found;
                self.cause(number, program, out_of_reach, progress);
            } else {
                return progress;
            }
            if end.bound.iter().any(|one| one.status != Status::Success) {
                self.say(number, format!("windows were not bound: {:?}", end.bound));
            }
        }
        self.receives(number, program);
        self.messages(number, program, progress.succeeded);
        self.memory(number, program, progress.succeeded, active.is_some());
        progress
    }

    /// Whether the first failure has a reason.
    fn cause(&mut self, number: usize, program: &Program, out_of_reach: bool, progress: Progress) {
        let Some(status) = progress.failed else { return };
        if program.violation() == Some(progress.cause) {
            return;
        }
        let end = self.end(program.active);
        let fault = end.and_then(|end| match &end.pair {
            Pair::Reliable(pair) => pair.fault(),
            _ => None,
        });
        let right = match status {
            Status::RetryExceeded => out_of_reach,
            Status::Flushed => fault != Some(rc::Fault::Requester),
            _ => false,
        };
        if !right {
            let index = progress.cause;
            self.say(number, format!("request {index} ended with {status:?} for no reason"));
        }
    }

    /// Receive completions are those of the messages that were sent, in order.
    fn messages(&mut self, number: usize, program: &Program, succeeded: usize) {
        let Some(end) = self.end(program.passive) else { return };
        let steps = program.steps.iter().enumerate();
        let messages = steps.filter(|(_, step)| step.effect.consumes_receive());
        let mut completions = end.received.iter().filter(|one| one.status == Status::Success);
        for (index, step) in messages {
            let Some(completion) = completions.next() else {
                if index < succeeded {
                    self.say(
                        number,
                        format!("request {index} succeeded, and nothing was received"),
                    );
                }
                continue;
            };
            let (from, length, kind, sent) = match step.effect {
                Effect::Sent { from, length, immediate, invalidated } => {
                    (from, length, CompletionKind::Receive, (immediate, invalidated))
                }
                Effect::Written { from, length, immediate, .. } => {
                    (from, length, CompletionKind::ReceiveWriteImmediate, (immediate, None))
                }
                _ => continue,
            };
            let found = (completion.immediate, completion.invalidated);
            if completion.kind != kind || completion.length as usize != length || found != sent {
                self.say(number, format!("request {index}: its receive is {completion:?}"));
                return;
            }
            let message = &program.before[0][from..from + length];
            let is_send = kind == CompletionKind::Receive;
            if is_send && self.received(program, completion) != Some(message) {
                self.say(number, format!("request {index}: SEND came with other bytes"));
            }
        }
        if let Some(more) = completions.next() {
            self.say(number, format!("{more:?} of a message that was never sent"));
        }
    }

    /// What memory must be on both sides.
    fn memory(&mut self, number: usize, program: &Program, succeeded: usize, complete: bool) {
        let [ours, theirs] = &program.before;
        let here = self.region(program.active, program.regions[0]);
        let there = self.region(program.passive, program.regions[1]);
        let [mut near, mut far] = [Image::new(ours), Image::new(theirs)];
        // Executed for certain, and perhaps: fetch-and-adds, and compare-and-swaps.
        let (mut counted, mut possible) = ([0u64; 2], [0u64; 2]);
        for (index, step) in program.steps.iter().enumerate() {
            let done = index < succeeded && complete;
            match step.effect {
                Effect::Written { from, to, length, .. } if done => {
                    far.put(to, &ours[from..from + length]);
                }
                Effect::Written { to, length, .. } => {
                    there.into_iter().for_each(|there| far.leave(to, length, there));
                }
                Effect::Read { from, to, length } if done => {
                    near.put(to, &theirs[from..from + length]);
                }
                Effect::Read { to, length, .. } => {
                    here.into_iter().for_each(|here| near.leave(to, length, here));
                }
                Effect::Added { to } | Effect::Swapped { to } => {
                    let which = usize::from(matches!(step.effect, Effect::Swapped { .. }));
                    if done {
                        near.put(to, &counted[which].to_ne_bytes());
                    } else {
                        here.into_iter().for_each(|here| near.leave(to, 8, here));
                    }
                    counted[which] += u64::from(done);
                    possible[which] += 1;
                }
                Effect::Sent { .. } | Effect::Nothing => {}
            }
        }
        if let Some(here) = here {
            if let Some(what) = near.compare(here) {
                self.say(number, format!("our memory has {what}"));
            }
        }
        let Some(there) = there else { return };
        for (which, &at) in program.counters.iter().enumerate() {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&there[at..at + 8]);
            let value = u64::from_ne_bytes(bytes);
            if !(counted[which]..=possible[which]).contains(&value) {
                let (done, most) = (counted[which], possible[which]);
                self.say(
                    number,
                    format!("{done} of {most} atomics succeeded, the counter is {value}"),
                );
            }
            far.leave(at, 8, there);
        }
        // A receive request holds its message, or part of one that did not come to its end.
        let end = self.end(program.passive);
        let completed = |id: usize| {
            let end = end?;
            end.received.iter().find(|one| one.id.0 as usize == id && one.status == Status::Success)
        };
        for (id, &(at, length)) in program.buffers.iter().flatten().enumerate() {
            let written = completed(id).map_or(length, |one| match one.kind {
                CompletionKind::Receive => one.length as usize,
                // Immediate data takes a request, and nothing is put there.
                _ => 0,
            });
            far.leave(at, written.min(length), there);
        }
        if let Some(what) = far.compare(there) {
            self.say(number, format!("the peer's memory has {what}"));
        }
    }
}
