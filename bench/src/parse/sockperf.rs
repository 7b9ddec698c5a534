//! `sockperf ping-pong`, which reports half of a round trip in µs.

use super::{sample, unexpected};
use crate::row::{Said, Sample};

/// Latency in µs: `typical` is the median.
pub(crate) fn latency(said: &Said) -> Result<Sample, String> {
    let percentile = |wanted: &str| {
        let mut lines = said.client.lines().filter_map(|line| line.split_once("---> percentile "));
        let (_, rest) = lines.find(|(_, rest)| rest.starts_with(wanted))?;
        rest.split_once('=')?.1.trim().parse::<f64>().ok()
    };
    let found = percentile("50.000").zip(percentile("99.000")).zip(percentile("99.900"));
    let ((typical, p99), p999) = found.ok_or_else(|| unexpected("sockperf", &said.client))?;
    Ok(sample([("typical", typical), ("p99", p99), ("p999", p999)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
sockperf: \u{1b}[2;35m====> avg-latency=136.022 (std-dev=1461.868)\u{1b}[0m
sockperf: ---> <MAX> observation = 52002.189
sockperf: ---> percentile 99.999 = 52002.189
sockperf: ---> percentile 99.990 = 52002.189
sockperf: ---> percentile 99.900 = 12017.445
sockperf: ---> percentile 99.000 = 5998.493
sockperf: ---> percentile 50.000 =    4.805
sockperf: ---> percentile 25.000 =    4.650
";

    #[test]
    fn percentiles() {
        let sample = latency(&Said { client: SAID.to_owned(), ..Said::default() }).unwrap();
        assert_eq!(
            (sample["typical"], sample["p99"], sample["p999"]),
            (4.805, 5998.493, 12017.445)
        );
        assert!(latency(&Said::default()).is_err());
    }
}
