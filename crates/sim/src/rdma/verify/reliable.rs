//! RC and XRC: all requests are executed exactly as posted, or the QP is in the error state.

use ferroce_proto::qp::Fault;
use ferroce_proto::work::{CompletionKind, Status};

use super::{ExpectedMemory, ProgramResult, Verifier};
use crate::rdma::plan::Connection;
use crate::rdma::program::{Effect, Program};

impl Verifier<'_> {
    pub(super) fn reliable(
        &mut self,
        number: usize,
        program: &Program,
        connection: &Connection,
    ) -> ProgramResult {
        let active = self.endpoint(program.active);
        // The other direction uses the same QP, and may have moved it to the error state.
        let ended = connection.programs.iter().any(|one| one.violation().is_some());
        let peer_lives = self.hosts[program.passive.host].is_some();
        let out_of_reach = !self.network.faultless || !peer_lives || ended;
        let mut result = ProgramResult::default();
        if let Some(endpoint) = active {
            if endpoint.pending.is_some() {
                // The connection was not established: nothing was posted, and nothing may have changed.
                if !endpoint.send_completions.is_empty() {
                    self.report(
                        number,
                        "completions on a connection that was not established".to_owned(),
                    );
                }
            } else if let Some(found) =
                self.completions(number, endpoint, &program.steps, out_of_reach)
            {
                result = found;
                self.cause(number, program, out_of_reach, result);
            } else {
                return result;
            }
            if endpoint.bind_completions.iter().any(|one| one.status != Status::Success) {
                self.report(
                    number,
                    format!("window binds failed: {:?}", endpoint.bind_completions),
                );
            }
        }
        self.receives(number, program);
        self.messages(number, program, result.succeeded);
        self.memory(number, program, result.succeeded, active.is_some());
        result
    }

    /// Verifies that the first failure has a legitimate cause.
    fn cause(
        &mut self,
        number: usize,
        program: &Program,
        out_of_reach: bool,
        result: ProgramResult,
    ) {
        let Some(status) = result.failed else { return };
        if program.violation() == Some(result.cause) {
            return;
        }
        let endpoint = self.endpoint(program.active);
        let fault = endpoint.and_then(super::Endpoint::fault);
        let legitimate = match status {
            Status::RetryExceeded => out_of_reach,
            Status::Flushed => fault != Some(Fault::Requester),
            _ => false,
        };
        if !legitimate {
            let index = result.cause;
            self.report(
                number,
                format!("request {index} completed with {status:?} without a cause"),
            );
        }
    }

    /// Verifies that the receive completions are those of the messages sent, in order.
    fn messages(&mut self, number: usize, program: &Program, succeeded: usize) {
        let Some(endpoint) = self.endpoint(program.passive) else { return };
        let steps = program.steps.iter().enumerate();
        let messages = steps.filter(|(_, step)| step.effect.consumes_receive());
        let mut completions =
            endpoint.receive_completions.iter().filter(|one| one.status == Status::Success);
        for (index, step) in messages {
            let Some(completion) = completions.next() else {
                if index < succeeded {
                    self.report(
                        number,
                        format!("request {index} succeeded, but nothing was received"),
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
                self.report(
                    number,
                    format!("request {index}: wrong receive completion {completion:?}"),
                );
                return;
            }
            let message = &program.before[0][from..from + length];
            let is_send = kind == CompletionKind::Receive;
            if is_send && self.received(program, completion) != Some(message) {
                self.report(
                    number,
                    format!("request {index}: the SEND was received with wrong bytes"),
                );
            }
        }
        if let Some(more) = completions.next() {
            self.report(number, format!("{more:?} of a message that was not sent"));
        }
    }

    /// Verifies the memory of both sides.
    fn memory(&mut self, number: usize, program: &Program, succeeded: usize, complete: bool) {
        let [ours, theirs] = &program.before;
        let local_found = self.region(program.active, program.regions[0]);
        let remote_found = self.region(program.passive, program.regions[1]);
        let [mut local, mut remote] = [ExpectedMemory::new(ours), ExpectedMemory::new(theirs)];
        // Atomics that were executed, and that may have been: fetch-and-adds, and compare-and-swaps.
        let (mut counted, mut possible) = ([0u64; 2], [0u64; 2]);
        for (index, step) in program.steps.iter().enumerate() {
            let done = index < succeeded && complete;
            match step.effect {
                Effect::Written { from, to, length, .. } if done => {
                    remote.write(to, &ours[from..from + length]);
                }
                Effect::Written { to, length, .. } => {
                    remote_found.into_iter().for_each(|found| remote.accept(to, length, found));
                }
                Effect::Read { from, to, length } if done => {
                    local.write(to, &theirs[from..from + length]);
                }
                Effect::Read { to, length, .. } => {
                    local_found.into_iter().for_each(|found| local.accept(to, length, found));
                }
                Effect::Added { to } | Effect::Swapped { to } => {
                    let which = usize::from(matches!(step.effect, Effect::Swapped { .. }));
                    if done {
                        local.write(to, &counted[which].to_ne_bytes());
                    } else {
                        local_found.into_iter().for_each(|found| local.accept(to, 8, found));
                    }
                    counted[which] += u64::from(done);
                    possible[which] += 1;
                }
                Effect::Sent { .. } | Effect::Nothing => {}
            }
        }
        if let Some(local_found) = local_found {
            if let Some(what) = local.compare(local_found) {
                self.report(number, format!("our memory has {what}"));
            }
        }
        let Some(remote_found) = remote_found else { return };
        for (which, &at) in program.counters.iter().enumerate() {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&remote_found[at..at + 8]);
            let value = u64::from_ne_bytes(bytes);
            if !(counted[which]..=possible[which]).contains(&value) {
                let (done, max) = (counted[which], possible[which]);
                self.report(
                    number,
                    format!("{done} of {max} atomics succeeded, but the counter is {value}"),
                );
            }
            remote.accept(at, 8, remote_found);
        }
        // A receive buffer holds its message, or part of one that was not completed.
        let endpoint = self.endpoint(program.passive);
        let completed = |id: usize| {
            let endpoint = endpoint?;
            endpoint
                .receive_completions
                .iter()
                .find(|one| one.id.0 as usize == id && one.status == Status::Success)
        };
        for (id, &(at, length)) in program.buffers.iter().flatten().enumerate() {
            let written = completed(id).map_or(length, |one| match one.kind {
                CompletionKind::Receive => one.length as usize,
                // Immediate data consumes a request, and writes nothing to its buffer.
                _ => 0,
            });
            remote.accept(at, written.min(length), remote_found);
        }
        if let Some(what) = remote.compare(remote_found) {
            self.report(number, format!("the peer's memory has {what}"));
        }
    }
}
