//! Percentiles over any number of values in bounded memory.

use std::collections::BTreeMap;

use super::report::Latency;

/// Counts values in buckets that grow with the value: each is at most 1/16 of it wide, which is the precision of
/// the percentiles. Extremes and the mean are exact.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    buckets: BTreeMap<u16, u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// Buckets between two powers of two.
const STEPS: u32 = 16;

impl Histogram {
    pub(super) fn record(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += u128::from(value);
        *self.buckets.entry(bucket(value)).or_default() += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum += other.sum;
        for (&bucket, &count) in &other.buckets {
            *self.buckets.entry(bucket).or_default() += count;
        }
    }

    /// `None` when nothing was recorded.
    pub(super) fn summary(&self) -> Option<Latency> {
        if self.count == 0 {
            return None;
        }
        Some(Latency {
            count: self.count,
            min_ns: self.min,
            p50_ns: self.percentile(50),
            p90_ns: self.percentile(90),
            p99_ns: self.percentile(99),
            max_ns: self.max,
            mean_ns: (self.sum / u128::from(self.count)) as u64,
        })
    }

    /// The upper end of the bucket that holds the value at `percent`, within what was really seen.
    fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (&bucket, &count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return upper(bucket).clamp(self.min, self.max);
            }
        }
        self.max
    }
}

fn bucket(value: u64) -> u16 {
    if value < u64::from(STEPS) {
        return value as u16;
    }
    let exponent = value.ilog2() - STEPS.ilog2();
    (exponent * STEPS + (value >> exponent) as u32) as u16
}

/// The largest value of a bucket.
fn upper(bucket: u16) -> u64 {
    let bucket = u32::from(bucket);
    if bucket < STEPS {
        return u64::from(bucket);
    }
    let exponent = bucket / STEPS - 1;
    let mantissa = u128::from(bucket - exponent * STEPS) + 1;
    ((mantissa << exponent) - 1).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        let values = (0..4096).chain((0..64).map(|bit| 1 << bit)).chain([u64::MAX]);
        for value in values {
            assert!(upper(bucket(value)) >= value, "{value}");
            assert!(bucket(value) == 0 || upper(bucket(value) - 1) < value, "{value}");
            assert!(upper(bucket(value)) - value <= value / 16, "{value}");
        }
    }

    #[test]
    fn percentiles_of_a_ramp() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.summary(), None);
        (1..=1000).for_each(|value| histogram.record(value * 100));
        let latency = histogram.summary().unwrap();
        assert_eq!((latency.min_ns, latency.max_ns, latency.mean_ns), (100, 100_000, 50_050));
        for (found, exact) in
            [(latency.p50_ns, 50_000), (latency.p90_ns, 90_000), (latency.p99_ns, 99_000)]
        {
            assert!((exact..=exact + exact / 16).contains(&found), "{found} for {exact}");
        }
    }

    #[test]
    fn merging_is_recording_all() {
        let (mut left, mut right, mut both) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        for value in [3, 70_000, 12] {
            left.record(value);
            both.record(value);
        }
        for value in [1, 9_999_999] {
            right.record(value);
            both.record(value);
        }
        left.merge(&right);
        left.merge(&Histogram::default());
        assert_eq!(left.summary(), both.summary());
    }
}
