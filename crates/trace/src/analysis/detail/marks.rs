//! The anomalies that charts mark: a sample that is even over time, and of bounded size.

use std::collections::HashSet;

use crate::analysis::anomaly::{AnomalyKind, Severity};
use crate::analysis::flow::Flows;
use crate::analysis::stamp::{Side, Stamp};

/// The marks kept during the pass over a file, from which those of the charts are chosen.
const MAX_PENDING: usize = 1 << 16;

/// Marks in charts.
const MAX_MARKS: usize = 5_000;

/// An anomaly in a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its kind.
    pub kind: AnomalyKind,
    /// The frame.
    pub frame: u64,
    /// The packet within the frame, or 0.
    pub segment: u32,
    /// When.
    pub time_ns: i64,
    /// Its conversation.
    pub conversation: Option<u32>,
    /// The PSN concerned.
    pub psn: Option<u32>,
}

/// A mark that a later packet may disprove.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Counts anomalies.
    id: u64,
    kind: AnomalyKind,
    at: Stamp,
    side: Option<Side>,
    psn: Option<u32>,
}

/// Collects marks during the pass over a file.
#[derive(Debug, Default)]
pub(in crate::analysis) struct Marks {
    next: u64,
    /// By their IDs.
    pending: Vec<Pending>,
    /// The interval of the last sample.
    width: u64,
}

impl Marks {
    /// Adds an anomaly and returns its ID.
    pub(in crate::analysis) fn add(
        &mut self,
        kind: AnomalyKind,
        at: Stamp,
        side: Option<Side>,
        psn: Option<u32>,
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        self.pending.push(Pending { id, kind, at, side, psn });
        if self.pending.len() == MAX_PENDING {
            self.width = thin(&mut self.pending, MAX_PENDING / 2, self.width);
        }
        id
    }

    /// Removes an anomaly that a later packet has disproved.
    pub(in crate::analysis) fn withdraw(&mut self, id: u64) {
        if let Ok(index) = self.pending.binary_search_by_key(&id, |mark| mark.id) {
            self.pending.remove(index);
        }
    }

    /// The marks in packet order. `id` maps the index of a flow to the number of its conversation.
    pub(in crate::analysis) fn finish(
        mut self,
        flows: &Flows,
        id: &dyn Fn(usize) -> u32,
    ) -> Vec<Mark> {
        thin(&mut self.pending, MAX_MARKS, self.width);
        let mark = |mark: Pending| Mark {
            kind: mark.kind,
            frame: mark.at.frame,
            segment: mark.at.segment,
            time_ns: mark.at.time,
            conversation: mark.side.map(|side| id(flows.resolve(side).conversation)),
            psn: mark.psn,
        };
        let mut marks: Vec<_> = self.pending.into_iter().map(mark).collect();
        marks.sort_by_key(|mark| (mark.frame, mark.segment));
        marks
    }
}

/// Keeps at most `limit` marks: all errors unless they are too many, and of the others the first of each kind and
/// conversation in each interval of time, which is as short as possible, but not shorter than `width`. If there are more
/// kinds and conversations than that, the worst. Returns the interval.
fn thin(marks: &mut Vec<Pending>, limit: usize, width: u64) -> u64 {
    let mut width = width.max(1);
    if marks.len() <= limit {
        return width;
    }
    let is_error = |mark: &Pending| mark.kind.severity() == Severity::Error;
    let keep_errors = marks.iter().filter(|mark| is_error(mark)).count() <= limit / 2;
    let times = marks.iter().map(|mark| mark.at.time);
    let (Some(start), Some(end)) = (times.clone().min(), times.max()) else { return width };
    let span = end.abs_diff(start);
    loop {
        let mut seen = HashSet::new();
        let mut is_kept = |mark: &Pending| {
            let interval = mark.at.time.abs_diff(start) / width;
            let first = seen.insert((interval, mark.side.map(|side| side.conversation), mark.kind));
            first || keep_errors && is_error(mark)
        };
        let kept: Vec<_> = marks.iter().copied().filter(&mut is_kept).collect();
        if kept.len() <= limit {
            *marks = kept;
            return width;
        }
        if width > span {
            *marks = kept;
            break;
        }
        width = width.saturating_mul(2);
    }
    marks.sort_by_key(|mark| std::cmp::Reverse(mark.kind.severity()));
    marks.truncate(limit);
    marks.sort_by_key(|mark| mark.id);
    width
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(id: u64, kind: AnomalyKind, time: i64, conversation: usize) -> Pending {
        let at = Stamp { frame: id + 1, time, ..Stamp::default() };
        let side = Some(Side { conversation, from_a: true });
        Pending { id, kind, at, side, psn: None }
    }

    #[test]
    fn a_sample_covers_the_whole_time_and_has_every_error() {
        // A burst, a quiet time with one anomaly each millisecond, and errors at the end of the burst.
        let mut marks: Vec<_> =
            (0..20_000).map(|id| pending(id, AnomalyKind::Retransmission, id as i64, 0)).collect();
        marks.extend(
            (0..20).map(|id| pending(20_000 + id, AnomalyKind::NakRemoteAccess, 20_000, 1)),
        );
        marks.extend(
            (1..50).map(|at| pending(20_100 + at, AnomalyKind::Timeout, at as i64 * 1_000_000, 1)),
        );
        thin(&mut marks, 500, 0);
        assert!((250..=500).contains(&marks.len()), "{}", marks.len());
        let count = |kind| marks.iter().filter(|mark| mark.kind == kind).count();
        assert_eq!(count(AnomalyKind::NakRemoteAccess), 20);
        assert_eq!(count(AnomalyKind::Timeout), 49);
        assert!(marks.is_sorted_by_key(|mark| mark.id));
        // More conversations than marks.
        let mut marks: Vec<_> =
            (0..900).map(|id| pending(id, AnomalyKind::Probe, 0, id as usize)).collect();
        marks.extend((900..1000).map(|id| pending(id, AnomalyKind::Timeout, 0, id as usize)));
        thin(&mut marks, 200, 0);
        assert_eq!(marks.len(), 200);
        assert_eq!(marks.iter().filter(|mark| mark.kind == AnomalyKind::Timeout).count(), 100);
    }

    #[test]
    fn collected_marks_are_bounded_and_can_be_withdrawn() {
        let mut marks = Marks::default();
        let side = Some(Side { conversation: 0, from_a: true });
        for time in 0..300_000 {
            let at = Stamp { time, ..Stamp::default() };
            let id = marks.add(AnomalyKind::MissingRequest, at, side, None);
            if time % 3 == 0 {
                marks.withdraw(id);
            }
            assert!(marks.pending.len() < MAX_PENDING);
        }
        assert!(marks.pending.iter().all(|mark| mark.at.time % 3 != 0));
        assert!(marks.pending.last().is_some_and(|mark| mark.at.time > 299_990));
    }
}
