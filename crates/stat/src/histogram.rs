//! The latency histogram: four buckets for each power of two nanoseconds, from 256 ns to 17 s.

/// The number of buckets. The first holds everything below 256 ns, the last everything from 15 s on.
pub const BUCKETS: usize = 105;

/// The power of two where the second bucket begins.
const FIRST: u32 = 8;

/// The bucket of a latency.
pub const fn bucket(nanos: u64) -> usize {
    if nanos < 1 << FIRST {
        return 0;
    }
    let power = nanos.ilog2();
    let quarter = (nanos >> (power - 2)) & 3;
    let index = 1 + (power - FIRST) as usize * 4 + quarter as usize;
    if index < BUCKETS { index } else { BUCKETS - 1 }
}

/// The lowest latency of a bucket, in nanoseconds.
pub const fn lower_bound(bucket: usize) -> u64 {
    let Some(index) = bucket.checked_sub(1) else { return 0 };
    let (power, quarter) = (FIRST as usize + index / 4, index % 4);
    (4 + quarter as u64) << (power - 2)
}

/// The lowest latency of the bucket behind this one.
pub const fn upper_bound(bucket: usize) -> u64 {
    lower_bound(bucket + 1)
}

/// The latency that a share of the values, from 0.0 to 1.0, does not exceed, in nanoseconds: interpolated in its bucket,
/// which is off by at most an eighth. `None` without values.
pub fn quantile(counts: &[u64], share: f64) -> Option<u64> {
    let total: u64 = counts.iter().fold(0, |sum, count| sum.saturating_add(*count));
    if total == 0 {
        return None;
    }
    let rank = (share.clamp(0.0, 1.0) * total as f64).ceil().max(1.0);
    let mut before = 0.0;
    for (bucket, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        if before + count as f64 >= rank {
            let (low, high) = (lower_bound(bucket) as f64, upper_bound(bucket) as f64);
            return Some((low + (high - low) * (rank - before) / count as f64) as u64);
        }
        before += count as f64;
    }
    counts.iter().rposition(|count| *count > 0).map(upper_bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_is_within_the_bounds_of_its_bucket() {
        for shift in 0..34 {
            for nanos in [1u64 << shift, (1 << shift) + 1, (1 << shift) * 3 / 2, (2 << shift) - 1] {
                let found = bucket(nanos);
                assert!(lower_bound(found) <= nanos && nanos < upper_bound(found), "{nanos}");
            }
        }
        assert_eq!((bucket(0), bucket(255), bucket(256), bucket(320)), (0, 0, 1, 2));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(lower_bound(BUCKETS - 1), 7 << 31);
        assert!((0..BUCKETS).all(|one| bucket(lower_bound(one)) == one));
    }

    #[test]
    fn quantiles_are_interpolated() {
        let mut counts = [0; BUCKETS];
        assert_eq!(quantile(&counts, 0.5), None);
        counts[bucket(1024)] = 100;
        counts[bucket(1 << 20)] = 1;
        assert_eq!(quantile(&counts, 0.5), Some(1024 + 256 * 51 / 100));
        assert_eq!(quantile(&counts, 1.0), Some((1 << 20) + (1 << 18)));
        assert!(quantile(&counts, 0.99).unwrap() <= 1280);
        assert!(quantile(&counts, f64::NAN).is_some());
    }
}
