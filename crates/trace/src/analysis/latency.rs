//! Latency percentiles in bounded memory: exact up to a number of samples, approximate beyond it.

use std::collections::BTreeMap;

use super::detail::LatencyBin;
use super::report::Latency;

/// Limit of samples that one histogram keeps individually: up to it, percentiles are exact.
const MAX_EXACT: usize = 4096;

/// Limit of samples that all histograms of a file keep individually, 8 bytes each.
const MAX_EXACT_TOTAL: usize = 1 << 20;

/// Buckets between two powers of two: a percentile computed from buckets is at most 1/64 too high.
const BUCKETS_PER_OCTAVE: u32 = 64;

/// Number of samples that the histograms of a file may still keep individually.
#[derive(Debug)]
pub(super) struct SampleBudget(usize);

impl Default for SampleBudget {
    fn default() -> Self {
        Self(MAX_EXACT_TOTAL)
    }
}

/// Keeps up to [`MAX_EXACT`] samples. Beyond that, or when the file's budget is exhausted, it counts samples in
/// logarithmic buckets. Minimum, maximum and mean are always exact.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// All samples; empty once they were moved to `buckets`.
    values: Vec<u64>,
    buckets: BTreeMap<u16, u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    pub(super) fn record(&mut self, value: u64, budget: &mut SampleBudget) {
        let exact = self.is_exact();
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += u128::from(value);
        if exact && self.values.len() < MAX_EXACT && budget.0 > 0 {
            budget.0 -= 1;
            self.values.push(value);
            return;
        }
        budget.0 += self.values.len();
        self.spill();
        *self.buckets.entry(bucket(value)).or_default() += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let exact = self.is_exact()
            && other.is_exact()
            && self.values.len() + other.values.len() <= MAX_EXACT;
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum += other.sum;
        if exact {
            self.values.extend(&other.values);
            return;
        }
        self.spill();
        for &value in &other.values {
            *self.buckets.entry(bucket(value)).or_default() += 1;
        }
        for (&bucket, &count) in &other.buckets {
            *self.buckets.entry(bucket).or_default() += count;
        }
    }

    /// Returns `None` if nothing was recorded.
    pub(super) fn summary(&self) -> Option<Latency> {
        if self.count == 0 {
            return None;
        }
        let mut sorted = self.values.clone();
        sorted.sort_unstable();
        Some(Latency {
            count: self.count,
            min_ns: self.min,
            p50_ns: self.percentile(&sorted, 50),
            p90_ns: self.percentile(&sorted, 90),
            p99_ns: self.percentile(&sorted, 99),
            max_ns: self.max,
            mean_ns: (self.sum / u128::from(self.count)) as u64,
            exact: self.is_exact(),
        })
    }

    /// The distribution in bins of an eighth of a power of two. Bins without messages are left out.
    pub(super) fn bins(&self) -> Vec<LatencyBin> {
        let mut bins: BTreeMap<u16, u64> = BTreeMap::new();
        let exact = self.values.iter().map(|&value| (bucket(value), 1));
        for (bucket, count) in exact.chain(self.buckets.iter().map(|(&at, &count)| (at, count))) {
            *bins.entry(bucket | (BUCKETS_PER_OCTAVE / 8 - 1) as u16).or_default() += count;
        }
        let bins = bins.into_iter();
        bins.map(|(bucket, count)| LatencyBin { up_to_ns: upper_bound(bucket), count }).collect()
    }

    fn is_exact(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Moves the samples to buckets.
    fn spill(&mut self) {
        for value in std::mem::take(&mut self.values) {
            *self.buckets.entry(bucket(value)).or_default() += 1;
        }
    }

    /// The nearest-rank percentile: the sample itself, or the upper bound of its bucket clamped to minimum and maximum.
    fn percentile(&self, sorted: &[u64], percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100).max(1);
        if self.is_exact() {
            return sorted.get(rank as usize - 1).copied().unwrap_or(self.max);
        }
        let mut cumulative = 0;
        for (&bucket, &count) in &self.buckets {
            cumulative += count;
            if cumulative >= rank {
                return upper_bound(bucket).clamp(self.min, self.max);
            }
        }
        self.max
    }
}

fn bucket(value: u64) -> u16 {
    if value < u64::from(BUCKETS_PER_OCTAVE) {
        return value as u16;
    }
    let exponent = value.ilog2() - BUCKETS_PER_OCTAVE.ilog2();
    (exponent * BUCKETS_PER_OCTAVE + (value >> exponent) as u32) as u16
}

/// The largest value of a bucket.
fn upper_bound(bucket: u16) -> u64 {
    let bucket = u32::from(bucket);
    if bucket < BUCKETS_PER_OCTAVE {
        return u64::from(bucket);
    }
    let exponent = bucket / BUCKETS_PER_OCTAVE - 1;
    let mantissa = u128::from(bucket - exponent * BUCKETS_PER_OCTAVE) + 1;
    ((mantissa << exponent) - 1).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram {
        let (mut histogram, mut budget) = (Histogram::default(), SampleBudget::default());
        values.into_iter().for_each(|value| histogram.record(value, &mut budget));
        histogram
    }

    fn percentiles(histogram: &Histogram) -> [u64; 3] {
        let latency = histogram.summary().unwrap();
        [latency.p50_ns, latency.p90_ns, latency.p99_ns]
    }

    #[test]
    fn every_value_is_within_its_bucket() {
        let values = (0..4096).chain((0..64).map(|bit| 1 << bit)).chain([u64::MAX]);
        for value in values {
            assert!(upper_bound(bucket(value)) >= value, "{value}");
            assert!(bucket(value) == 0 || upper_bound(bucket(value) - 1) < value, "{value}");
            assert!(upper_bound(bucket(value)) - value <= value / 64, "{value}");
        }
    }

    #[test]
    fn percentiles_of_few_samples_are_exact() {
        assert_eq!(Histogram::default().summary(), None);
        let three = histogram([1_677_000, 466_000, 535_000]);
        assert_eq!(percentiles(&three), [535_000, 1_677_000, 1_677_000]);
        let ramp = histogram((1..=MAX_EXACT as u64).rev().map(|value| value * 1_001));
        assert_eq!(percentiles(&ramp), [2048, 3687, 4056].map(|rank| rank * 1_001));
        assert!(ramp.summary().unwrap().exact);
    }

    #[test]
    fn percentiles_of_many_samples_are_within_one_64th() {
        let latency = histogram((1..=100_000).map(|value| value * 77)).summary().unwrap();
        assert!(!latency.exact);
        assert_eq!((latency.min_ns, latency.max_ns, latency.mean_ns), (77, 7_700_000, 3_850_038));
        for (found, exact) in
            [(latency.p50_ns, 3_850_000), (latency.p90_ns, 6_930_000), (latency.p99_ns, 7_623_000)]
        {
            assert!((exact..=exact + exact / 64).contains(&found), "{found} for {exact}");
        }
    }

    #[test]
    fn the_distribution_counts_every_sample() {
        for count in [10, 100_000_u64] {
            let bins = histogram((1..=count).map(|value| value * 77)).bins();
            assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), count);
            assert!(bins.is_sorted_by_key(|bin| bin.up_to_ns));
            assert!(bins.last().unwrap().up_to_ns >= count * 77);
            // Eight bins for each power of two.
            assert!(bins.len() <= 8 * (count * 77).ilog2() as usize + 64, "{}", bins.len());
        }
    }

    #[test]
    fn an_exhausted_budget_costs_precision_and_is_returned() {
        let (mut first, mut second, mut budget) =
            (Histogram::default(), Histogram::default(), SampleBudget(3));
        first.record(1_000, &mut budget);
        first.record(2_000, &mut budget);
        second.record(3_000, &mut budget);
        assert!(first.is_exact() && second.is_exact() && budget.0 == 0);
        first.record(4_000, &mut budget);
        assert!(!first.is_exact() && budget.0 == 2);
        assert_eq!(first.summary().unwrap().count, 3);
        second.record(5_000, &mut budget);
        assert_eq!(percentiles(&second), [3_000, 5_000, 5_000]);
    }

    #[test]
    fn merging_equals_recording_all_samples() {
        for (left, right) in
            [(3, 2), (MAX_EXACT, 1), (1, MAX_EXACT), (MAX_EXACT + 1, 1), (1, MAX_EXACT + 1)]
        {
            let value = |at: usize| (at as u64 * 7_919) % 100_003;
            let mut merged = histogram((0..left).map(value));
            merged.merge(&histogram((left..left + right).map(value)));
            merged.merge(&Histogram::default());
            let all = histogram((0..left + right).map(value));
            assert_eq!(merged.summary(), all.summary(), "{left} and {right}");
        }
    }
}
