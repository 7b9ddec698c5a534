//! Figures from the output of programs: one file per program.

pub(crate) mod client;
pub(crate) mod driver;
pub(crate) mod fabric;
pub(crate) mod iperf3;
pub(crate) mod perftest;
pub(crate) mod qperf;
pub(crate) mod rxe;
pub(crate) mod snmp;
pub(crate) mod sockperf;
pub(crate) mod ucx;

use crate::row::Sample;

/// Returns a sample from names and values.
pub(crate) fn sample<const N: usize>(figures: [(&str, f64); N]) -> Sample {
    figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The end of an output, for an error message.
pub(crate) fn unexpected(program: &str, said: &str) -> String {
    let lines: Vec<_> = said.lines().rev().take(5).collect();
    let end: Vec<_> = lines.into_iter().rev().map(str::trim).collect();
    format!("{program} printed no result: {}", end.join(" / "))
}

/// Messages of programs whose client may start before the server's next listener is there: perftest opens a second one,
/// and qperf's server announces a port on which it does not listen yet.
const RACES: [&str; 2] = ["Couldn't connect to", "failed to connect"];

/// Whether a sample failed for reasons of the program that measures: its clock, or a race between its processes.
pub(crate) fn is_transient(error: &str) -> bool {
    perftest::is_uncalibrated(error) || RACES.iter().any(|text| error.contains(text))
}
