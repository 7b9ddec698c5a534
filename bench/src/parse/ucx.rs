//! `ucx_perftest -f`.

use super::{sample, unexpected};
use crate::row::{Said, Sample};

/// The last line: iterations; median, average and overall latency in µs; average and overall MiB/s; average and overall
/// messages per second.
fn result(said: &Said) -> Result<Vec<f64>, String> {
    let numbers = |line: &str| {
        line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>()
    };
    let row = said.client.lines().filter_map(numbers).rfind(|row| row.len() == 8);
    row.ok_or_else(|| unexpected("ucx_perftest", &said.client))
}

/// `rate` in GB/s.
pub(crate) fn bandwidth(said: &Said) -> Result<Sample, String> {
    Ok(sample([("rate", result(said)?[5] * 1_048_576.0 / 1e9)]))
}

/// `typical` in µs: the median.
pub(crate) fn latency(said: &Said) -> Result<Sample, String> {
    Ok(sample([("typical", result(said)?[1])]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
+--------------+--------------+------------------------------+---------------------+-----------------------+
|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
|     Test     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
                         500      0.585  1951.656  1951.656      512.39     512.40         512         512
";

    #[test]
    fn columns() {
        let said = Said { client: SAID.to_owned(), ..Said::default() };
        assert!((bandwidth(&said).unwrap()["rate"] - 0.53729).abs() < 1e-4);
        assert_eq!(latency(&said).unwrap()["typical"], 0.585);
        assert!(latency(&Said::default()).is_err());
    }
}
