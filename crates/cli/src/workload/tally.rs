//! What a rank measured, and the sum of all ranks.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::latencies::{Latencies, Latency};

/// Figures of a workload by name, in the order in which they are shown. Names that end in `_us` are times in microseconds.
pub(super) type Details = Vec<(String, Value)>;

fn as_map<S: Serializer>(details: &Details, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(details.iter().map(|(name, value)| (name, value)))
}

/// What a workload measured on one rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Operations that this rank completed; a collective operation counts on rank 0 only.
    pub(super) operations: u64,
    /// Payload bytes that this rank moved.
    pub(super) bytes: u64,
    /// Values that this rank compared with what they must be.
    pub(super) verified: u64,
    pub(super) latencies: Latencies,
    /// Figures of the workload. Those of several ranks are added if they are whole numbers; otherwise that of the lowest
    /// rank counts.
    pub(super) details: Details,
}

impl Tally {
    /// Adds the median of some latencies.
    pub(super) fn median(&mut self, name: &str, latencies: &Latencies) {
        self.detail(name, latencies.summary().p50_ns as f64 / 1e3);
    }

    pub(super) fn detail(&mut self, name: &str, value: impl Into<Value>) {
        self.details.push((name.to_owned(), value.into()));
    }
}

/// The same, with time, as it is sent to the parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankResult {
    operations: u64,
    bytes: u64,
    verified: u64,
    nanoseconds: u64,
    cpu_ns: u64,
    latencies: Vec<(u64, u64)>,
    details: Details,
}

impl RankResult {
    pub(super) fn new(tally: Tally, nanoseconds: u64, cpu_ns: u64) -> Self {
        let latencies = tally.latencies.counts();
        let Tally { operations, bytes, verified, details, .. } = tally;
        Self { operations, bytes, verified, nanoseconds, cpu_ns, latencies, details }
    }
}

/// All ranks together.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Totals {
    pub(super) operations: u64,
    pub(super) bytes: u64,
    /// Values that were compared; a wrong one is an error, and there is no result.
    pub(super) verified: u64,
    /// From the start barrier to the end of the last rank.
    pub(super) seconds: f64,
    pub(super) operations_per_second: f64,
    pub(super) mb_per_second: f64,
    pub(super) latency: Latency,
    /// CPU time of all ranks together.
    pub(super) cpu_seconds: f64,
    pub(super) cpu_seconds_by_rank: Vec<f64>,
    #[serde(serialize_with = "as_map")]
    pub(super) details: Details,
}

impl Totals {
    pub(super) fn new(ranks: &[RankResult]) -> Self {
        let sum = |of: fn(&RankResult) -> u64| ranks.iter().map(of).sum::<u64>();
        let nanoseconds = ranks.iter().map(|rank| rank.nanoseconds).max().unwrap_or(0).max(1);
        let seconds = nanoseconds as f64 / 1e9;
        let (operations, bytes) = (sum(|rank| rank.operations), sum(|rank| rank.bytes));
        let mut latencies = Latencies::default();
        let mut details = Details::new();
        for rank in ranks {
            latencies.add_counts(&rank.latencies);
            for (name, value) in &rank.details {
                match details.iter_mut().find(|(known, _)| known == name) {
                    None => details.push((name.clone(), value.clone())),
                    Some((_, sum)) => {
                        if let (Some(known), Some(more)) = (sum.as_u64(), value.as_u64()) {
                            *sum = known.saturating_add(more).into();
                        }
                    }
                }
            }
        }
        let by_rank: Vec<_> = ranks.iter().map(|rank| rank.cpu_ns as f64 / 1e9).collect();
        Self {
            operations,
            bytes,
            verified: sum(|rank| rank.verified),
            seconds,
            operations_per_second: operations as f64 / seconds,
            mb_per_second: bytes as f64 / 1e6 / seconds,
            latency: latencies.summary(),
            cpu_seconds: by_rank.iter().sum(),
            cpu_seconds_by_rank: by_rank,
            details,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_ranks_are_added() {
        let of = |operations, nanoseconds, latency| {
            let mut tally = Tally { operations, bytes: 500_000, ..Tally::default() };
            tally.latencies.record(latency);
            tally.detail("retries", operations);
            tally.detail("loss", 0.5);
            RankResult::new(tally, nanoseconds, 1_000_000_000)
        };
        let ranks = [of(10, 500_000_000, 100), of(20, 1_000_000_000, 300)];
        let line = serde_json::to_string(&ranks[0]).unwrap();
        assert_eq!(serde_json::from_str::<RankResult>(&line).unwrap(), ranks[0]);
        let totals = Totals::new(&ranks);
        assert_eq!((totals.operations, totals.bytes), (30, 1_000_000));
        assert!((totals.operations_per_second - 30.0).abs() < 1e-9, "{totals:?}");
        assert!((totals.mb_per_second - 1.0).abs() < 1e-9, "{totals:?}");
        assert_eq!((totals.latency.samples, totals.latency.max_ns), (2, 300));
        let json = serde_json::to_value(&totals).unwrap();
        assert_eq!(json["details"]["retries"], 30);
        assert_eq!(json["details"]["loss"], 0.5);
        assert_eq!(totals.cpu_seconds_by_rank, [1.0, 1.0]);
    }
}
