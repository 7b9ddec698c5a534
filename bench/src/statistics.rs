//! Median, spread and fairness.

/// The median and range of some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Summarises samples; `None` if there are none.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        };
        Some(Self { median, min, max })
    }
}

/// The value that this part of the values does not exceed, from 0 to 1; 0 if there are none. Sorts them.
pub(crate) fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * part) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Jain's fairness index: 1 if all shares are equal, 1/n if one has everything.
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        let of = |samples: &[f64]| Summary::of(samples).map(|found| found.median);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn spread_is_minimum_and_maximum() {
        let found = Summary::of(&[3.0, 9.0, 1.0]).unwrap();
        assert_eq!((found.min, found.max), (1.0, 9.0));
    }

    #[test]
    fn quantiles_are_values() {
        let mut values: Vec<f64> = (0..100).rev().map(f64::from).collect();
        let of = [0.0, 0.02, 0.5, 1.0].map(|part| quantile(&mut values, part));
        assert_eq!(of, [0.0, 2.0, 50.0, 99.0]);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
    }

    #[test]
    fn jain_of_equal_and_unequal_shares() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        assert!((jain(&[1, 2, 3]) - 36.0 / 42.0).abs() < 1e-12);
        assert_eq!(jain(&[0, 0]), 0.0);
    }
}
