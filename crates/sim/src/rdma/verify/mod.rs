//! What must hold after a run, whatever the network did:
//!
//! - completions come in the order of their requests, exactly one for each that is signaled or failed;
//! - the first that is not a success leaves the queue pair in error, and all behind it are flushed;
//! - a request that must not be executed is not, and ends as it should;
//! - a request that succeeded did exactly what it says, and an atomic did it exactly once;
//! - UC delivers whole messages in order, or nothing; UD whole datagrams, twice only if the network doubled them;
//! - nothing outside what requests name was touched;
//! - where the network has no fault, everything succeeds.

mod datagrams;
mod reliable;
mod unreliable;

use ferroce_proto::work::{Completion, CompletionKind, Status};

use super::host::{End, RdmaHost};
use super::memory::BASE;
use super::plan::{Connection, GUARDED, LOCAL_ONLY, OTHERS};
use super::program::{Place, Program, Step};
use super::workload::Service;

/// All hosts by number; one that crashed is missing, and so is one that took its place.
pub(super) type Hosts<'a> = [Option<&'a RdmaHost>];

/// What the network did, as far as judgement depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    /// Every frame between hosts that live arrives, once and in order.
    pub(super) faultless: bool,
    /// Some frames arrived twice.
    pub(super) duplicated: bool,
}

/// How far a program got.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Requests that succeeded.
    pub(super) succeeded: usize,
    /// How the one ended that failed.
    pub(super) failed: Option<Status>,
    /// Which one that is. Answers to READs and atomics before it may be lost: these are flushed.
    pub(super) cause: usize,
}

/// Collects what does not hold.
pub(super) struct Judge<'a> {
    pub(super) hosts: &'a Hosts<'a>,
    pub(super) network: Network,
    pub(super) violations: &'a mut Vec<String>,
}

impl<'a> Judge<'a> {
    fn end(&self, place: Place) -> Option<&'a End> {
        self.hosts[place.host].map(|host| &host.ends[place.end])
    }

    fn region(&self, place: Place, region: usize) -> Option<&'a [u8]> {
        self.hosts[place.host].map(|host| host.memory.regions[region].bytes.as_slice())
    }

    fn say(&mut self, connection: usize, what: String) {
        self.violations.push(format!("connection {connection}: {what}"));
    }

    /// Judges a connection, and says how far each of its programs got.
    pub(super) fn connection(&mut self, number: usize, connection: &Connection) -> Vec<Progress> {
        let mut all: Vec<_> = connection
            .programs
            .iter()
            .map(|program| match connection.service {
                Service::Unreliable => self.unreliable(number, program, connection),
                _ => self.reliable(number, program, connection),
            })
            .collect();
        all.extend(connection.datagrams.as_ref().map(|one| self.datagrams(number, one)));
        all
    }

    /// What belongs to no connection: memory that nobody may reach, and shared receive queues.
    pub(super) fn host(&mut self, number: usize) {
        let Some(host) = self.hosts[number] else { return };
        for region in [LOCAL_ONLY, OTHERS] {
            if host.memory.regions[region].bytes != GUARDED {
                self.violations.push(format!("host {number}: memory without permission changed"));
            }
        }
        for (index, shared) in host.queues.iter().enumerate() {
            let taken = shared.buffers.len() - shared.queue.len();
            let bytes = &host.memory.regions[shared.region].bytes;
            let start = shared.buffers.get(taken).map_or(bytes.len(), |&(at, _)| at);
            let behind = &bytes[start..];
            if behind.iter().any(|&byte| byte != super::program::FILL) {
                let what = "a receive request that nobody took was written to";
                self.violations.push(format!("host {number}, shared queue {index}: {what}"));
            }
            let reached = u32::from(shared.limit > 0 && shared.queue.len() < shared.limit);
            if shared.limit_events != reached {
                let (events, left) = (shared.limit_events, shared.queue.len());
                self.violations.push(format!(
                    "host {number}, shared queue {index}: {events} limit events, {left} left of {}",
                    shared.buffers.len()
                ));
            }
        }
    }

    /// Completions of the send queue: order, number, status; the peer may be out of reach. `None` when nothing else
    /// makes sense.
    fn completions(
        &mut self,
        connection: usize,
        end: &End,
        steps: &[Step],
        out_of_reach: bool,
    ) -> Option<Progress> {
        let failed = end.sent.iter().find(|one| one.status != Status::Success);
        let good = failed.map_or(steps.len(), |one| one.id.0 as usize);
        let signaled = (0..good.min(steps.len())).filter(|&index| steps[index].signaled);
        let expected = signaled.chain(good..steps.len());
        let found = end.sent.iter().map(|one| one.id.0 as usize);
        if !found.eq(expected) {
            let ids: Vec<_> = end.sent.iter().map(|one| one.id.0).collect();
            self.say(connection, format!("completions {ids:?} for {} requests", steps.len()));
            return None;
        }
        let violation = steps.iter().position(|step| step.fails.is_some());
        if violation.is_some_and(|index| index < good) {
            self.say(connection, format!("request {violation:?} must not succeed, and did"));
        }
        let Some(failed) = failed else {
            return Some(Progress { succeeded: good, ..Progress::default() });
        };
        if !end.send_stopped() {
            let what = "a request failed and the queue pair is not in error";
            self.say(connection, what.to_owned());
        }
        let errors = || end.sent.iter().filter(|one| one.status != Status::Success);
        let cause = errors().find(|one| one.status != Status::Flushed).unwrap_or(failed);
        if let Some(late) = errors().find(|one| one.id != cause.id && one.status != Status::Flushed)
        {
            self.say(connection, format!("{late:?} behind a request that failed"));
        }
        let mut index = cause.id.0 as usize;
        if index > good {
            self.say(connection, format!("{failed:?} before request {index} failed"));
        }
        // A refusal ends the responder: an answer that was lost before it never comes again, and its request ends with
        // the status of the refusal (IBA 9.9.2.4.1 leaves open how).
        let refused =
            violation.filter(|&later| later > index && steps[later].fails == Some(cause.status));
        if wants_response(failed.kind) {
            index = refused.unwrap_or(index);
        }
        if let (true, Some(fails)) = (violation == Some(index), steps[index].fails) {
            let by_network = cause.status == Status::RetryExceeded && out_of_reach;
            if cause.status != fails && cause.status != Status::Flushed && !by_network {
                let status = cause.status;
                self.say(
                    connection,
                    format!("request {index} ended with {status:?}, not {fails:?}"),
                );
            }
        }
        Some(Progress { succeeded: good, failed: Some(cause.status), cause: index })
    }

    /// Receive completions: no receive request ends twice, and in the error state all have ended.
    fn receives(&mut self, connection: usize, program: &Program) {
        let Some(end) = self.end(program.passive) else { return };
        let Some(buffers) = &program.buffers else { return };
        let mut seen = vec![false; buffers.len()];
        for one in &end.received {
            match seen.get_mut(one.id.0 as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => self.say(connection, format!("receive request {one:?} completed twice")),
            }
        }
        if end.in_error() && seen.contains(&false) {
            self.say(connection, "a receive request was not flushed".to_owned());
        }
    }

    /// The bytes that a receive completion says it has.
    fn received(&self, program: &Program, completion: &Completion) -> Option<&'a [u8]> {
        let host = self.hosts[program.passive.host]?;
        let id = completion.id.0 as usize;
        let (region, buffers) = match (&program.buffers, completion.receive_queue) {
            (Some(buffers), _) => (program.regions[1], buffers),
            (None, named) => {
                let queue =
                    named.map_or(0, |named| (named.0 - super::host::queue_number(0).0) as usize);
                let shared = host.queues.get(queue)?;
                (shared.region, &shared.buffers)
            }
        };
        let &(at, _) = buffers.get(id)?;
        host.memory.regions[region].bytes.get(at..at + completion.length as usize)
    }
}

/// Whether only a response of its own finishes it.
fn wants_response(kind: CompletionKind) -> bool {
    matches!(
        kind,
        CompletionKind::Read
            | CompletionKind::CompareSwap
            | CompletionKind::FetchAdd
            | CompletionKind::Flush
            | CompletionKind::AtomicWrite
    )
}

/// What memory must be: what it was, with what requests did; what they may have done is taken as found.
struct Image {
    expected: Vec<u8>,
}

impl Image {
    fn new(before: &[u8]) -> Self {
        Self { expected: before.to_vec() }
    }

    /// These bytes are there.
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.expected[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Anything may be there.
    fn leave(&mut self, at: usize, length: usize, found: &[u8]) {
        self.expected[at..at + length].copy_from_slice(&found[at..at + length]);
    }

    /// Where it is not so.
    fn compare(&self, found: &[u8]) -> Option<String> {
        let at = self.expected.iter().zip(found).position(|(one, other)| one != other)?;
        let count = self.expected.iter().zip(found).filter(|(one, other)| one != other).count();
        let (want, have) = (self.expected[at], found[at]);
        Some(format!("{count} bytes from {:#x} on: {have:#04x}, not {want:#04x}", BASE + at as u64))
    }
}
