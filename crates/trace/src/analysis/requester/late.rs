//! Responses that were reported missing, and may be late.
//!
//! A requester asks again as soon as a later response arrives, so both the late response and the repeated one follow. A
//! response that arrives as often as it was requested was not lost.

use std::collections::VecDeque;

use crate::analysis::sink::AnomalyId;
use crate::analysis::window::TrackedRequest;

/// Requests with missing responses that are remembered, and the longest of them.
const MAX_REQUESTS: usize = 16;
const MAX_RESPONSES: u32 = 1024;

/// How often a response was requested, and how often it arrived.
#[derive(Clone, Copy, Debug)]
struct ResponseCount {
    requested: u32,
    arrived: u32,
}

/// A request with responses that were reported missing.
#[derive(Debug)]
struct DoubtedRequest {
    start: u64,
    counts: Vec<ResponseCount>,
    /// The reports, by index of the response.
    reports: Vec<(usize, AnomalyId)>,
}

impl DoubtedRequest {
    fn index(&self, sequence: u64) -> Option<usize> {
        let index = usize::try_from(sequence.checked_sub(self.start)?).ok()?;
        Some(index).filter(|index| *index < self.counts.len())
    }
}

/// The last requests with responses that were reported missing.
#[derive(Debug, Default)]
pub(super) struct MissingResponses(VecDeque<DoubtedRequest>);

impl MissingResponses {
    /// Adds the report that the next response of a request is missing.
    pub(super) fn add(&mut self, request: &TrackedRequest, report: AnomalyId) {
        let (start, next) = (request.sequence, request.next_response);
        if next >= request.psn_count || request.psn_count > MAX_RESPONSES {
            return;
        }
        let report = (next as usize, report);
        if let Some(known) = self.0.iter_mut().find(|doubted| doubted.start == start) {
            return known.reports.push(report);
        }
        if self.0.len() == MAX_REQUESTS {
            self.0.pop_front();
        }
        let requested = request.sends + request.probes;
        let count = |index| ResponseCount { requested, arrived: u32::from(index < next) };
        let counts = (0..request.psn_count).map(count).collect();
        self.0.push_back(DoubtedRequest { start, counts, reports: vec![report] });
    }

    /// Whether the next response of a request has arrived before, too early to be accepted.
    pub(super) fn has_arrived(&self, request: &TrackedRequest) -> bool {
        let next = request.sequence + u64::from(request.next_response);
        let mut counts =
            self.0.iter().filter_map(|doubted| Some(doubted.counts[doubted.index(next)?]));
        counts.any(|count| count.arrived > 0)
    }

    /// Records that responses were requested again, from `sequence` on.
    pub(super) fn request_again(&mut self, sequence: u64) {
        for doubted in &mut self.0 {
            if let Some(first) = doubted.index(sequence) {
                doubted.counts[first..].iter_mut().for_each(|count| count.requested += 1);
            }
        }
    }

    /// Records a response; `late` if it is known to have been overtaken. Returns the reports that it disproves.
    pub(super) fn arrive(&mut self, sequence: u64, late: bool) -> Vec<AnomalyId> {
        let found = self.0.iter_mut().find_map(|doubted| Some((doubted.index(sequence)?, doubted)));
        let Some((index, doubted)) = found else { return Vec::new() };
        let count = &mut doubted.counts[index];
        count.arrived += 1;
        if !late && count.arrived < count.requested {
            return Vec::new();
        }
        let (disproved, reports): (Vec<_>, Vec<_>) =
            doubted.reports.iter().partition(|(missing, _)| *missing == index);
        doubted.reports = reports;
        disproved.into_iter().map(|(_, report)| report).collect()
    }
}
