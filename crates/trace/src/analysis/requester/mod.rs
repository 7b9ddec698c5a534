//! One requester of a reliable connection, as observed from outside: which of its packets are new, which come again and
//! why (`requests`), and what the responder answered (`responses`).

mod requests;
mod responses;

use std::collections::VecDeque;

use ferroce_wire::number::Psn;
use ferroce_wire::syndrome::RnrTimer;

use super::anomaly::AnomalyKind;
use super::assembly::{Assembly, Ending};
use super::identification::Identifications;
use super::sink::{Reporter, Stamp};
use super::text::{count_of, duration};
use super::window::{ExtendedPsn, TrackedRequest, Window};

/// The first packets of a requester may be lost before the capture, and the responder then asks for them.
const MAX_UNSEEN_BEFORE_FIRST: u64 = 64;

/// FinishedPacket packets remembered, to tell a doubled one from one sent again.
const MAX_FINISHED: usize = 32;

/// Why a requester goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetransmitCause {
    SequenceNak,
    RnrNak(RnrTimer),
    MissingResponse,
    Timeout,
}

/// An answer that makes the requester go back.
#[derive(Clone, Copy, Debug)]
struct GoBackTrigger {
    cause: RetransmitCause,
    /// Where to.
    from: u64,
    time: i64,
}

/// A finished packet.
#[derive(Clone, Copy, Debug)]
struct FinishedPacket {
    sequence: u64,
    identification: Option<u16>,
    last_time: i64,
}

#[derive(Debug, Default)]
pub(super) struct Requester {
    /// The next packet that would be new.
    next: Option<ExtendedPsn>,
    window: Window,
    assembly: Assembly,
    /// What will make the requester go back.
    trigger: Option<GoBackTrigger>,
    /// Packets being sent again: why, and which would be next.
    retransmit_run: Option<(RetransmitCause, u64)>,
    finished: VecDeque<FinishedPacket>,
    /// Everything before it was finished, also what is not remembered one by one.
    finished_before: u64,
    identifications: Identifications,
    /// Known gaps of the capture when the last request came, and the last response.
    request_gaps: u64,
    response_gaps: u64,
    last_time: i64,
    /// RNR NAKs since the last packet that was accepted.
    rnr_naks: u32,
    /// Refused for good: nothing more is answered.
    failed: bool,
}

impl Requester {
    /// Whether a response with this PSN can be an answer to this requester.
    pub(super) fn expects(&self, psn: Psn) -> bool {
        let Some(next) = self.next else { return false };
        let sequence = next.sequence_of(psn);
        let oldest = self
            .window
            .front()
            .map_or(next.sequence, |request| request.sequence - MAX_UNSEEN_BEFORE_FIRST);
        // A READ whose span is not yet known may be answered beyond it.
        let reading = self
            .window
            .back()
            .is_some_and(|request| !request.psn_count_known && sequence >= request.sequence);
        (oldest..next.sequence).contains(&sequence) || reading
    }

    /// Keeps a request until it is finished. Where too many are kept, the oldest is given up: its acknowledgement is
    /// not in the capture.
    fn insert(&mut self, request: TrackedRequest, reporter: &mut Reporter<'_>) {
        if reporter.sink.window_budget.is_exhausted(self.window.len()) {
            if let Some(oldest) = self.pop(reporter) {
                self.assembly.add(&oldest, Ending::Acknowledged, reporter);
            }
        }
        if self.window.insert(request).is_none() {
            reporter.sink.window_budget.acquire();
        }
    }

    fn pop(&mut self, reporter: &mut Reporter<'_>) -> Option<TrackedRequest> {
        let request = self.window.pop()?;
        reporter.sink.window_budget.release();
        Some(request)
    }

    /// Hands finished packets on, oldest first.
    fn drain(&mut self, reporter: &mut Reporter<'_>) {
        while self.window.front().is_some_and(|request| request.finished.is_some()) {
            let Some(request) = self.pop(reporter) else { break };
            reporter.sink.steps += 1;
            self.assembly.add(&request, Ending::Acknowledged, reporter);
            if self.finished.len() == MAX_FINISHED {
                self.finished.pop_front();
            }
            self.finished_before = self.finished_before.max(request.end());
            let TrackedRequest { sequence, identification, last, .. } = request;
            self.finished.push_back(FinishedPacket {
                sequence,
                identification,
                last_time: last.time,
            });
        }
    }

    /// The capture, or the connection, ends here.
    pub(super) fn finish(&mut self, reporter: &mut Reporter<'_>) {
        if let Some(request) =
            self.window.front().filter(|request| !self.failed && request.sends > 1)
        {
            reporter.at = request.last;
            let attempts = count_of(u64::from(request.sends), "attempt");
            if self.rnr_naks > 0 {
                let text = format!(
                    "PSN {} was never accepted: {attempts}, each answered by RNR NAK; the receiver never posted a receive request",
                    request.psn
                );
                reporter.anomaly(AnomalyKind::RnrRetryExceeded, request.psn, text);
            } else {
                let step = (request.last.time - request.first.time) / i64::from(request.sends - 1);
                let text = format!(
                    "PSN {} was never answered: {attempts}, {} apart; the peer's queue pair is gone or was never there, or the path is cut",
                    request.psn,
                    duration(step)
                );
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
            Self::Timeout => "after timeout".to_owned(),
        }
    }
}

impl GoBackTrigger {
    fn new(cause: RetransmitCause, from: u64, at: Stamp) -> Self {
        Self { cause, from, time: at.time }
    }
}
