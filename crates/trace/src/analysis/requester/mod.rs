//! State of one requester of a reliable connection, reconstructed from the capture: which packets are new or
//! retransmitted and why (`requests`), and the responder's responses (`responses`).

mod late;
mod order;
mod requests;
mod responses;

use std::collections::VecDeque;
use std::ops::Range;

use ferroce_wire::number::Psn;
use ferroce_wire::syndrome::RnrTimer;

use super::anomaly::AnomalyKind;
use super::assembly::{Assembly, Ending};
use super::gaps::Gaps;
use super::identification::Identifications;
use super::sink::{AnomalyId, Reporter};
use super::stamp::Stamp;
use super::text::{count_of, duration};
use super::window::{ExtendedPsn, FIRST_SEQUENCE, TrackedRequest, Window};
use late::MissingResponses;
use order::ResponseOrder;

/// Packets before the first one seen that a response may refer to: they may be lost before the capture point, and the
/// responder then requests them.
const MAX_UNSEEN_BEFORE_FIRST: u64 = 64;

/// Probes of the last packet that a program may leave unanswered when it ends.
const MAX_UNANSWERED_PROBES: u32 = 2;

/// Lost packets remembered, which may still arrive.
const MAX_LOST: usize = 64;

/// Completed packets remembered, to distinguish a duplicate from a retransmission.
const MAX_FINISHED: usize = 32;

/// Why a requester retransmits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetransmitCause {
    SequenceNak,
    RnrNak(RnrTimer),
    MissingResponse,
    LostResponse,
    Timeout,
}

/// A response that makes the requester go back.
#[derive(Clone, Copy, Debug)]
struct GoBackTrigger {
    cause: RetransmitCause,
    /// Sequence number to go back to.
    from: u64,
    time: i64,
}

/// A completed request packet.
#[derive(Clone, Copy, Debug)]
struct FinishedPacket {
    sequence: u64,
    end: u64,
    identification: Option<u16>,
    asks: bool,
    last_time: i64,
    answered: Option<i64>,
}

/// A packet that was sent again without a visible reason, which the next packet may turn out to be the first of a run.
#[derive(Clone, Copy, Debug)]
struct ProbedPacket {
    sequence: u64,
    psn: Psn,
    time: i64,
    /// The time that the requester had waited.
    waited: i64,
    was_answered: bool,
}

#[derive(Debug, Default)]
pub(super) struct Requester {
    /// The next new packet.
    next: Option<ExtendedPsn>,
    window: Window,
    assembly: Assembly,
    /// The pending reason to go back.
    trigger: Option<GoBackTrigger>,
    /// The packets that the requester has sent again after the last such reason.
    sent_again: Range<u64>,
    /// Current run of retransmissions: its cause, if known, and the next sequence number.
    retransmit_run: Option<(Option<RetransmitCause>, u64)>,
    probed: Option<ProbedPacket>,
    /// The sequence number of the last request packet, new or not.
    last_sequence: Option<u64>,
    /// When the last response was seen.
    last_response: Option<i64>,
    finished: VecDeque<FinishedPacket>,
    /// Everything before it is completed, including packets no longer remembered.
    finished_before: u64,
    identifications: Identifications,
    /// Number of known capture gaps at the last request and at the last response.
    request_gaps: u64,
    response_gaps: u64,
    last_time: i64,
    /// Request packets that are missing so far.
    gaps: Gaps<AnomalyId>,
    /// Responses to requests that are not known yet.
    pub(super) unmatched: Vec<Psn>,
    /// The last requests whose first transmission seems to be lost.
    lost: VecDeque<u64>,
    /// Responses that are missing so far.
    missing: MissingResponses,
    /// The order of the responses.
    responses: ResponseOrder,
    /// RNR NAKs since the last accepted packet.
    rnr_naks: u32,
    /// A fatal NAK was received: no further responses follow.
    failed: bool,
    /// Bytes of the requests in the window.
    in_flight: u64,
}

/// How far a requester is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Bytes sent or requested and not acknowledged.
    pub(super) in_flight: u64,
    /// The first PSN in the capture.
    pub(super) first_psn: u32,
    /// PSNs used since the first.
    pub(super) sent: u64,
    /// PSNs acknowledged since the first.
    pub(super) acknowledged: u64,
}

impl Requester {
    /// Whether a response with this PSN can belong to this requester.
    pub(super) fn expects(&self, psn: Psn) -> bool {
        let Some(next) = self.next else { return false };
        let sequence = next.sequence_of(psn);
        let oldest = self
            .window
            .front()
            .map_or(next.sequence, |request| request.sequence - MAX_UNSEEN_BEFORE_FIRST);
        // A READ whose PSN count is not yet known may have responses beyond it.
        let reading = self.window.back().filter(|request| !request.psn_count_known);
        let end = reading.map_or(next.sequence, TrackedRequest::max_end);
        (oldest..end).contains(&sequence)
    }

    /// Returns how far it is; `None` before its first request.
    pub(super) fn progress(&self) -> Option<Progress> {
        let next = self.next?;
        let sent = next.sequence.saturating_sub(FIRST_SEQUENCE);
        Some(Progress {
            in_flight: self.in_flight,
            first_psn: next.psn.sub(sent as u32).0,
            sent,
            acknowledged: self.finished_before.saturating_sub(FIRST_SEQUENCE).min(sent),
        })
    }

    /// Keeps a request until it is completed. If the budget is exhausted, evicts the oldest, whose acknowledgement is
    /// assumed to be missing from the capture.
    fn insert(&mut self, request: TrackedRequest, reporter: &mut Reporter<'_>) {
        if reporter.sink.window_budget.is_exhausted(self.window.len()) {
            if let Some(oldest) = self.pop(reporter) {
                self.assembly.add(&oldest, Ending::Acknowledged, reporter);
            }
        }
        self.in_flight += request.bytes();
        match self.window.insert(request) {
            Some(replaced) => self.in_flight -= replaced.bytes(),
            None => reporter.sink.window_budget.acquire(),
        }
    }

    fn pop(&mut self, reporter: &mut Reporter<'_>) -> Option<TrackedRequest> {
        let request = self.window.pop()?;
        self.in_flight -= request.bytes();
        reporter.sink.window_budget.release();
        Some(request)
    }

    /// Passes completed packets to the assembly, oldest first.
    fn drain(&mut self, reporter: &mut Reporter<'_>) {
        while self.window.front().is_some_and(|request| request.finished.is_some()) {
            let Some(request) = self.pop(reporter) else { break };
            reporter.sink.steps += 1;
            self.assembly.add(&request, Ending::Acknowledged, reporter);
            if self.finished.len() == MAX_FINISHED {
                self.finished.pop_front();
            }
            let end = request.end();
            self.finished_before = self.finished_before.max(end);
            let TrackedRequest { sequence, identification, asks, last, finished, .. } = request;
            self.finished.push_back(FinishedPacket {
                sequence,
                end,
                identification,
                asks,
                last_time: last.time,
                answered: request.answered.or(finished.map(|stamp| stamp.time)),
            });
        }
    }

    /// Reports unfinished requests at the end of the capture or connection.
    pub(super) fn finish(&mut self, reporter: &mut Reporter<'_>) {
        let tried_in_vain = |request: &&TrackedRequest| {
            // A response after the last attempt shows that the peer is there.
            let silent = self.last_response.is_none_or(|time| time < request.last.time);
            let repeated = request.sends > 1 || request.probes > MAX_UNANSWERED_PROBES;
            !self.failed && repeated && (silent || self.rnr_naks > 0)
        };
        if let Some(request) = self.window.front().filter(tried_in_vain) {
            reporter.at = request.last;
            let repeated = request.sends - 1 + request.probes;
            let attempts = count_of(u64::from(repeated) + 1, "attempt");
            if self.rnr_naks > 0 {
                let text = format!(
                    "PSN {} was never accepted: {attempts}, each answered with an RNR NAK; the receiver never posted a receive request",
                    request.psn
                );
                reporter.anomaly(AnomalyKind::RnrRetryExceeded, request.psn, text);
            } else {
                let step = (request.last.time - request.first.time) / i64::from(repeated.max(1));
                let text = format!(
                    "PSN {} got no response: {attempts}, {} apart; the peer's queue pair does not exist, or the path is broken",
                    request.psn,
                    duration(step)
                );
                if request.probes > 0 {
                    let waited = duration(request.last.time - request.first.time);
                    let text = format!("no response to PSN {} for {waited}", request.psn);
                    reporter.anomaly(AnomalyKind::Timeout, request.psn, text);
                }
                reporter.anomaly(AnomalyKind::RetryExceeded, request.psn, text);
            }
        }
        while let Some(request) = self.pop(reporter) {
            reporter.sink.steps += 1;
            self.assembly.add(&request, Ending::Acknowledged, reporter);
        }
        self.assembly.flush(reporter);
    }
}

impl RetransmitCause {
    fn text(self) -> String {
        match self {
            Self::SequenceNak => "after NAK, PSN sequence error".to_owned(),
            Self::RnrNak(timer) => {
                format!("after RNR NAK, wait {}", duration(timer.duration().as_nanos() as i64))
            }
            Self::MissingResponse => "after a missing response (implied NAK)".to_owned(),
            Self::LostResponse => "after a response that did not arrive".to_owned(),
            Self::Timeout => "after timeout".to_owned(),
        }
    }
}

impl ProbedPacket {
    /// Whether the next wait is that of a probe: it doubles with each, and an ACK timer waits as long as before.
    fn is_doubled_by(self, waited: i64) -> bool {
        waited > self.waited + self.waited / 2
    }
}

impl GoBackTrigger {
    fn new(cause: RetransmitCause, from: u64, at: Stamp) -> Self {
        Self { cause, from, time: at.time }
    }
}
