//! The distribution of measured times.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies in nanoseconds, with three significant digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        // Three digits are always allowed; the histogram grows as needed.
        Self(Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are valid")))
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, nanoseconds: u64) {
        // A histogram that grows as needed takes any value.
        let _ = self.0.record(nanoseconds);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // It grows as needed, so all values fit.
        let _ = self.0.add(&other.0);
    }

    /// The recorded values with their counts, to send to another process.
    pub(crate) fn counts(&self) -> Vec<(u64, u64)> {
        let recorded = self.0.iter_recorded();
        recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    /// Adds what another process has recorded.
    pub(crate) fn add_counts(&mut self, counts: &[(u64, u64)]) {
        for (value, count) in counts {
            let _ = self.0.record_n(*value, *count);
        }
    }

    pub(crate) fn summary(&self) -> Latency {
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
pub(crate) struct Latency {
    pub(crate) samples: u64,
    pub(crate) min_ns: u64,
    pub(crate) mean_ns: f64,
    pub(crate) stdev_ns: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p99_9_ns: u64,
    pub(crate) max_ns: u64,
}

impl Latency {
    /// The values that are shown, in ascending order, with their names.
    pub(crate) fn quantiles(&self) -> [(&'static str, u64); 6] {
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
}
