//! Figures from the output of programs: one file per program.

pub(crate) mod driver;
pub(crate) mod perftest;
pub(crate) mod snmp;
pub(crate) mod sockperf;

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
