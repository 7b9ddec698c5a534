//! Numbers, bars and verdicts as text.

use crate::row::{Bar, Verdict};
use crate::statistics::Summary;

/// Three significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size == 0.0 || size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Median and range.
pub(super) fn summary(summary: Option<Summary>, unit: &str) -> String {
    let Some(summary) = summary else { return "–".to_owned() };
    let [median, min, max] = [summary.median, summary.min, summary.max].map(number);
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    if min == max { format!("{median}{unit}") } else { format!("{median}{unit} ({min}–{max})") }
}

/// A ratio.
pub(super) fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{} ×", number(value)))
}

/// A bar, with the unit of its figure.
pub(super) fn bar(bar: Bar, unit: &str) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    match bar {
        Bar::None => "–".to_owned(),
        Bar::AtLeast(value) => format!("≥ {}{unit}", number(value)),
        Bar::AtMost(value) | Bar::NeverAbove(value) => format!("≤ {}{unit}", number(value)),
        Bar::RatioAtLeast(value) => format!("≥ {} ×", number(value)),
        Bar::RatioAtMost(value) => format!("≤ {} ×", number(value)),
    }
}

/// A verdict.
pub(super) fn verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Information => "–".to_owned(),
        Verdict::Met => "met".to_owned(),
        Verdict::NotMet { value, percent } if percent.is_infinite() => {
            format!("not met: {}", number(value))
        }
        Verdict::NotMet { percent, .. } => format!("not met, by {} %", number(percent)),
        Verdict::Unknown => "no figure".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let all = [0.0, 0.01234, 0.5, 3.456, 45.67, 1234.5].map(number);
        assert_eq!(all, ["0", "0.0123", "0.50", "3.46", "45.7", "1234"]);
    }

    #[test]
    fn spread_only_where_there_is_one() {
        let of = |samples: &[f64]| summary(Summary::of(samples), "µs");
        assert_eq!(of(&[3.0, 1.0, 2.0]), "2.00 µs (1.00–3.00)");
        assert_eq!(of(&[2.0]), "2.00 µs");
        assert_eq!(of(&[]), "–");
    }

    #[test]
    fn bars_and_verdicts() {
        assert_eq!(bar(Bar::RatioAtLeast(0.8), "GB/s"), "≥ 0.80 ×");
        assert_eq!(bar(Bar::AtMost(12.0), "µs"), "≤ 12.0 µs");
        assert_eq!(
            verdict(Bar::AtMost(10.0).judge(Summary::of(&[12.0]), None)),
            "not met, by 20.0 %"
        );
        assert_eq!(verdict(Bar::AtMost(0.0).judge(Summary::of(&[7.0]), None)), "not met: 7.00");
    }
}
