//! perftest: `ib_write_bw`, `ib_send_lat` and others.

use super::{sample, unexpected};
use crate::row::{Said, Sample};

/// Printed by a program that failed to calibrate its clock: it fits a straight line through a few readings of two
/// clocks, which fails on a busy machine, and then prints 0.00 for every rate (`get_clock.c`).
const CALIBRATION: &str = "Correlation coefficient r^2:";

/// Whether a text says that a program could not calibrate its clock.
pub(crate) fn is_uncalibrated(said: &str) -> bool {
    said.contains(CALIBRATION)
}

/// Bytes per second of perftest's "MB/sec", which are MiB.
const MEBIBYTE: f64 = 1_048_576.0;

/// The last line of its table, whose columns are numbers.
fn table(said: &Said) -> Result<Vec<f64>, String> {
    for one in [&said.client, &said.server] {
        if is_uncalibrated(one) {
            return Err(CALIBRATION.to_owned());
        }
    }
    // A large deviation is printed as `-nan`.
    let number = |word: &str| word.parse::<f64>().ok();
    let numbers = |line: &str| line.split_whitespace().map(number).collect::<Option<Vec<f64>>>();
    let row = said.client.lines().filter_map(numbers).rfind(|row| row.len() >= 5);
    row.ok_or_else(|| unexpected("perftest", &said.client))
}

/// Bandwidth: `rate` in GB/s, `messages` in millions per second.
pub(crate) fn bandwidth(said: &Said) -> Result<Sample, String> {
    let row = table(said)?;
    if row[3] <= 0.0 {
        return Err(unexpected("perftest", &said.client));
    }
    Ok(sample([("rate", row[3] * MEBIBYTE / 1e9), ("messages", row[4])]))
}

/// Latency in µs: `typical`, `p99` and `p999`.
pub(crate) fn latency(said: &Said) -> Result<Sample, String> {
    let row = table(said)?;
    if row.len() < 9 {
        return Err(unexpected("perftest", &said.client));
    }
    Ok(sample([("typical", row[4]), ("p99", row[7]), ("p999", row[8])]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANDWIDTH: &str = "\
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:127:00:00:01
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      5000             0.00               835.52 \t\t   0.013368
---------------------------------------------------------------------------------------
";

    const LATENCY: &str = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 64      5000          10.76          9188.34      12.80    \t       125.43      \t452.88 \t\t2445.22 \t\t6004.65
";

    fn said(client: &str) -> Said {
        Said { client: client.to_owned(), ..Said::default() }
    }

    #[test]
    fn bandwidth_in_decimal_units() {
        let sample = bandwidth(&said(BANDWIDTH)).unwrap();
        assert!((sample["rate"] - 0.8761).abs() < 1e-4, "{sample:?}");
        assert_eq!(sample["messages"], 0.013368);
    }

    #[test]
    fn latency_columns() {
        let sample = latency(&said(LATENCY)).unwrap();
        assert_eq!((sample["typical"], sample["p99"], sample["p999"]), (12.8, 2445.22, 6004.65));
    }

    #[test]
    fn a_failed_calibration_is_recognised() {
        let text = "Correlation coefficient r^2: 0.43 < 0.9\n".to_owned() + BANDWIDTH;
        assert!(is_uncalibrated(&bandwidth(&said(&text)).unwrap_err()));
    }

    #[test]
    fn no_table_is_an_error() {
        let error = bandwidth(&said("Couldn't connect\n")).unwrap_err();
        assert_eq!(error, "perftest printed no result: Couldn't connect");
        assert!(latency(&said(BANDWIDTH)).is_err());
    }
}
