//! What a worker measured.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The counts, times and latencies of one worker, or of several together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Timed messages that were sent and completed.
    pub(super) messages: u64,
    /// All messages that were sent, including the warm-up.
    pub(super) sent: u64,
    /// All SENDs that were received.
    pub(super) received: u64,
    /// When timing started and ended, in nanoseconds of the local monotonic clock.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Bytes that were received and checked here.
    pub(super) verified: u64,
    /// Messages of unreliable services that did not arrive.
    pub(super) lost: u64,
    /// The latencies, if they were measured here.
    #[serde(skip)]
    pub(super) latency: Option<Latencies>,
}

impl Tally {
    /// Adds what another worker of the same side measured at the same time.
    pub(super) fn add(&mut self, other: &Self) {
        let timed = |tally: &Self| tally.end > tally.start;
        self.start = match timed(self) {
            true if timed(other) => self.start.min(other.start),
            true => self.start,
            false => other.start,
        };
        self.end = self.end.max(other.end);
        self.messages += other.messages;
        self.sent += other.sent;
        self.received += other.received;
        self.verified += other.verified;
        self.lost += other.lost;
        match (&mut self.latency, &other.latency) {
            (Some(all), Some(more)) => all.add(more),
            (None, Some(more)) => self.latency = Some(more.clone()),
            _ => {}
        }
    }

    /// The measured time.
    pub(super) fn nanoseconds(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// Latencies in nanoseconds, with three significant digits.
#[derive(Clone, Debug)]
pub(super) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        // Three digits are always allowed; the histogram grows as needed.
        Self(Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are valid")))
    }
}

impl Latencies {
    pub(super) fn record(&mut self, nanoseconds: u64) {
        // A histogram that grows as needed takes any value.
        let _ = self.0.record(nanoseconds);
    }

    fn add(&mut self, other: &Self) {
        // It grows as needed, so all values fit.
        let _ = self.0.add(&other.0);
    }

    pub(super) fn summary(&self) -> Latency {
        let of = |percentile| self.0.value_at_percentile(percentile);
        Latency {
            samples: self.0.len(),
            min_ns: self.0.min(),
            mean_ns: self.0.mean(),
            stdev_ns: self.0.stdev(),
            p50_ns: of(50.0),
            p90_ns: of(90.0),
            p99_ns: of(99.0),
            p99_9_ns: of(99.9),
            max_ns: self.0.max(),
        }
    }
}

/// The distribution of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Latency {
    pub(super) samples: u64,
    pub(super) min_ns: u64,
    pub(super) mean_ns: f64,
    pub(super) stdev_ns: f64,
    pub(super) p50_ns: u64,
    pub(super) p90_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) p99_9_ns: u64,
    pub(super) max_ns: u64,
}

impl Latency {
    /// The values that are shown, in ascending order, with their names.
    pub(super) fn quantiles(&self) -> [(&'static str, u64); 6] {
        [
            ("min", self.min_ns),
            ("p50", self.p50_ns),
            ("p90", self.p90_ns),
            ("p99", self.p99_ns),
            ("p99.9", self.p99_9_ns),
            ("max", self.max_ns),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let mut all = Latencies::default();
        (1..=1000).for_each(|value| all.record(value));
        let found = all.summary();
        assert_eq!((found.samples, found.min_ns, found.max_ns), (1000, 1, 1000));
        assert_eq!((found.p50_ns, found.p90_ns), (500, 900));
        assert_eq!(found.p99_ns, 990);
        assert!((999..=1000).contains(&found.p99_9_ns));
        let values = found.quantiles().map(|(_, value)| value);
        assert!(values.is_sorted(), "{values:?}");
    }

    #[test]
    fn tallies_of_workers_span_all_of_them() {
        let one = Tally { messages: 5, start: 10, end: 20, ..Tally::default() };
        let other = Tally { messages: 7, start: 12, end: 30, ..Tally::default() };
        // A worker that only receives has no times.
        let passive = Tally { received: 3, ..Tally::default() };
        let mut sum = Tally::default();
        [passive.clone(), one, other, passive].iter().for_each(|tally| sum.add(tally));
        assert_eq!((sum.messages, sum.received, sum.start, sum.end), (12, 6, 10, 30));
        assert_eq!(sum.nanoseconds(), 20);
    }
}
