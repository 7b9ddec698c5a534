//! Text helpers of the analysis.

use ferroce_wire::number::Psn;

/// A count with its noun.
pub(super) fn count_of(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The PSNs from `first` up to, excluding, `end`.
pub(super) fn psns(first: Psn, end: Psn) -> String {
    let last = end.sub(1);
    if first == last { format!("PSN {first}") } else { format!("PSN {first} to {last}") }
}

/// A duration in a fitting unit.
pub(super) fn duration(nanoseconds: i64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds.unsigned_abs() {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}
