//! The invariants of a run, whatever the network did:
//!
//! - completions are in the order of their requests, exactly one for each that is signaled or failed;
//! - the first error leaves the QP in the error state, and all later requests are flushed;
//! - an invalid request is not executed, and completes with the right status;
//! - a request that succeeded had exactly its effect, and an atomic was executed exactly once;
//! - UC delivers whole messages in order, or nothing; UD whole datagrams, twice only if the network duplicated them;
//! - no memory outside the ranges of requests was changed;
//! - on a network without faults, everything succeeds;
//! - no more bytes wait in a receive buffer than there is credit for, times the copies that the faults of the network cause, and once
//!   more if a QP fails;
//! - when nothing is in flight any more, no credit is in use, and nobody waits for it;
//! - after every event, requests are held back only while an ACK is due, an access to memory is unfinished or a timer is
//!   armed;
//! - at the end, no access to memory is unfinished.

mod datagrams;
mod held;
mod reliable;
mod unreliable;

pub(super) use held::Stranded;

use ferroce_proto::congestion::cost;
use ferroce_proto::work::{Completion, CompletionKind, Status};

use super::host::{Endpoint, RdmaHost};
use super::layout::{GUARD_BYTES, NO_REMOTE_REGION, OTHER_PD_REGION, srq_number};
use super::memory::BASE;
use super::plan::Connection;
use super::program::{EndpointId, Program, Step};
use super::workload::Service;

/// All hosts by number; `None` for one that crashed, even if it restarted.
pub(super) type Hosts<'a> = [Option<&'a RdmaHost>];

/// The faults of the network on which the checks depend.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkFaults {
    /// Every frame between hosts that did not crash arrives, once and in order.
    pub(super) faultless: bool,
    /// Some frames were duplicated.
    pub(super) duplicated: bool,
    /// How often one packet may be in a receive buffer.
    pub(super) copies: usize,
    /// The largest message.
    pub(super) largest: usize,
}

/// The result of a program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProgramResult {
    /// Requests that succeeded.
    pub(super) succeeded: usize,
    /// The status of the request that failed.
    pub(super) failed: Option<Status>,
    /// The request that caused the failure. Responses to earlier READs and atomics may be lost, and these are flushed.
    pub(super) cause: usize,
}

/// Checks the invariants and collects violations.
pub(super) struct Verifier<'a> {
    pub(super) hosts: &'a Hosts<'a>,
    pub(super) network: NetworkFaults,
    pub(super) violations: &'a mut Vec<String>,
}

impl<'a> Verifier<'a> {
    fn endpoint(&self, endpoint: EndpointId) -> Option<&'a Endpoint> {
        self.hosts[endpoint.host].map(|host| &host.endpoints[endpoint.index])
    }

    fn region(&self, endpoint: EndpointId, region: usize) -> Option<&'a [u8]> {
        self.hosts[endpoint.host].map(|host| host.memory.regions[region].bytes.as_slice())
    }

    fn report(&mut self, connection: usize, what: String) {
        self.violations.push(format!("connection {connection}: {what}"));
    }

    /// Verifies a connection, and returns the results of its programs.
    pub(super) fn connection(
        &mut self,
        number: usize,
        connection: &Connection,
    ) -> Vec<ProgramResult> {
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

    /// Verifies what belongs to no connection: memory without remote access, and SRQs.
    pub(super) fn host(&mut self, number: usize) {
        let Some(host) = self.hosts[number] else { return };
        for region in [NO_REMOTE_REGION, OTHER_PD_REGION] {
            if host.memory.regions[region].bytes != GUARD_BYTES {
                self.violations
                    .push(format!("host {number}: memory without remote access changed"));
            }
        }
        // A READ that is larger than the credit goes on its own, as one packet for each 256 bytes or less, 128 KiB at most.
        let read = self.network.largest.min(128 << 10);
        let responses = host.share.max(cost(read, read.div_ceil(256)));
        // Credit counts a packet once, however often it is sent; and a QP that fails returns it while its packets are on the
        // way.
        let mut endpoints = self.hosts.iter().flatten().flat_map(|host| &host.endpoints);
        let copies = self.network.copies + usize::from(endpoints.any(Endpoint::send_stopped));
        let credit = host.share * (self.hosts.len() - 1) + responses;
        let peak = host.received.peak;
        let bound = copies * credit;
        if peak > bound {
            self.violations.push(format!(
                "host {number}: {peak} bytes waited in the receive buffer, and {copies} times the credit is {bound}"
            ));
        }
        if let (in_use, waiting @ 1..) | (in_use @ 1.., waiting) = host.credit() {
            self.violations.push(format!(
                "host {number}: {in_use} bytes of credit in use and {waiting} QPs waiting for it at the end"
            ));
        }
        let unfinished: usize = host.endpoints.iter().map(Endpoint::unfinished).sum();
        if unfinished > 0 {
            let what = "accesses to memory have not finished";
            self.violations.push(format!("host {number}: {unfinished} {what}"));
        }
        for (index, shared) in host.srqs.iter().enumerate() {
            let left = shared.queue().len();
            let taken = shared.buffers.len() - left;
            let bytes = &host.memory.regions[shared.region].bytes;
            let start = shared.buffers.get(taken).map_or(bytes.len(), |&(at, _)| at);
            let behind = &bytes[start..];
            if behind.iter().any(|&byte| byte != super::program::FILL) {
                let what = "the buffer of an unconsumed receive request was written to";
                self.violations.push(format!("host {number}, SRQ {index}: {what}"));
            }
            let reached = u32::from(shared.limit > 0 && left < shared.limit);
            let events = shared.limit_events();
            if events != reached {
                self.violations.push(format!(
                    "host {number}, SRQ {index}: {events} limit events, {left} left of {}",
                    shared.buffers.len()
                ));
            }
        }
    }

    /// Verifies the completions of the SQ: order, number, status. With `out_of_reach`, the peer may be unreachable.
    /// Returns `None` if further checks make no sense.
    fn completions(
        &mut self,
        connection: usize,
        endpoint: &Endpoint,
        steps: &[Step],
        out_of_reach: bool,
    ) -> Option<ProgramResult> {
        let failed = endpoint.send_completions.iter().find(|one| one.status != Status::Success);
        let good = failed.map_or(steps.len(), |one| one.id.0 as usize);
        let signaled = (0..good.min(steps.len())).filter(|&index| steps[index].signaled);
        let expected = signaled.chain(good..steps.len());
        let found = endpoint.send_completions.iter().map(|one| one.id.0 as usize);
        if !found.eq(expected) {
            let ids: Vec<_> = endpoint.send_completions.iter().map(|one| one.id.0).collect();
            self.report(connection, format!("completions {ids:?} for {} requests", steps.len()));
            return None;
        }
        let violation = steps.iter().position(|step| step.fails.is_some());
        if violation.is_some_and(|index| index < good) {
            self.report(connection, format!("request {violation:?} is invalid, but succeeded"));
        }
        let Some(failed) = failed else {
            return Some(ProgramResult { succeeded: good, ..ProgramResult::default() });
        };
        if !endpoint.send_stopped() {
            let what = "a request failed, but the QP is not in the error state";
            self.report(connection, what.to_owned());
        }
        let errors =
            || endpoint.send_completions.iter().filter(|one| one.status != Status::Success);
        let cause = errors().find(|one| one.status != Status::Flushed).unwrap_or(failed);
        if let Some(late) = errors().find(|one| one.id != cause.id && one.status != Status::Flushed)
        {
            self.report(connection, format!("{late:?} after a request that failed"));
        }
        let mut index = cause.id.0 as usize;
        if index > good {
            self.report(connection, format!("{failed:?} before request {index} failed"));
        }
        // A NAK stops the responder: a response that was lost before it is not retransmitted, and its request completes
        // with the status of the NAK (IBA 9.9.2.4.1 leaves this open).
        let refused =
            violation.filter(|&later| later > index && steps[later].fails == Some(cause.status));
        if needs_response(failed.kind) {
            index = refused.unwrap_or(index);
        }
        if let (true, Some(fails)) = (violation == Some(index), steps[index].fails) {
            let by_network = cause.status == Status::RetryExceeded && out_of_reach;
            if cause.status != fails && cause.status != Status::Flushed && !by_network {
                let status = cause.status;
                self.report(
                    connection,
                    format!("request {index} completed with {status:?} instead of {fails:?}"),
                );
            }
        }
        Some(ProgramResult { succeeded: good, failed: Some(cause.status), cause: index })
    }

    /// Verifies receive completions: no receive request completes twice, and in the error state all have completed.
    fn receives(&mut self, connection: usize, program: &Program) {
        let Some(endpoint) = self.endpoint(program.passive) else { return };
        let Some(buffers) = &program.buffers else { return };
        let mut seen = vec![false; buffers.len()];
        for one in &endpoint.receive_completions {
            match seen.get_mut(one.id.0 as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => self.report(connection, format!("receive request {one:?} completed twice")),
            }
        }
        if endpoint.in_error() && seen.contains(&false) {
            self.report(connection, "a receive request was not flushed".to_owned());
        }
    }

    /// Returns the bytes of a receive completion.
    fn received(&self, program: &Program, completion: &Completion) -> Option<&'a [u8]> {
        let host = self.hosts[program.passive.host]?;
        let id = completion.id.0 as usize;
        let (region, buffers) = match (&program.buffers, completion.receive_queue) {
            (Some(buffers), _) => (program.regions[1], buffers),
            (None, named) => {
                let queue = named.map_or(0, |named| (named.0 - srq_number(0).0) as usize);
                let shared = host.srqs.get(queue)?;
                (shared.region, &shared.buffers)
            }
        };
        let &(at, _) = buffers.get(id)?;
        host.memory.regions[region].bytes.get(at..at + completion.length as usize)
    }
}

/// Whether only its own response completes it.
fn needs_response(kind: CompletionKind) -> bool {
    matches!(
        kind,
        CompletionKind::Read
            | CompletionKind::CompareSwap
            | CompletionKind::FetchAdd
            | CompletionKind::Flush
            | CompletionKind::AtomicWrite
    )
}

/// The expected contents of memory: the contents before the run, plus the effects of requests. Ranges that may have any
/// contents are taken as found.
struct ExpectedMemory {
    expected: Vec<u8>,
}

impl ExpectedMemory {
    fn new(before: &[u8]) -> Self {
        Self { expected: before.to_vec() }
    }

    /// Expects these bytes.
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.expected[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Accepts any bytes.
    fn accept(&mut self, at: usize, length: usize, found: &[u8]) {
        self.expected[at..at + length].copy_from_slice(&found[at..at + length]);
    }

    /// Describes the first difference.
    fn compare(&self, found: &[u8]) -> Option<String> {
        if self.expected == found {
            return None;
        }
        let at = self.expected.iter().zip(found).position(|(one, other)| one != other)?;
        let count = self.expected.iter().zip(found).filter(|(one, other)| one != other).count();
        let (want, have) = (self.expected[at], found[at]);
        Some(format!(
            "{count} wrong bytes from {:#x} on: {have:#04x} instead of {want:#04x}",
            BASE + at as u64
        ))
    }
}
