//! `--fail-on`: the anomalies that set the exit status, for scripts and continuous integration.

use std::fmt;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ferroce_trace::analysis::anomaly::{AnomalyKind, Severity};
use ferroce_trace::analysis::report::FileReport;

/// Anomalies of one kind, or of at least a severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailOn {
    Severity(Severity),
    Kind(AnomalyKind),
}

const SEVERITIES: [(&str, Severity, &str); 3] = [
    ("error", Severity::Error, "anything that failed for good"),
    ("warning", Severity::Warning, "errors, and anything that the protocol had to repair"),
    ("info", Severity::Info, "any anomaly"),
];

/// Parses a name. Completions offer all names.
pub(crate) fn parser() -> impl TypedValueParser<Value = FailOn> {
    let severities =
        SEVERITIES.iter().map(|(name, _, meaning)| PossibleValue::new(*name).help(*meaning));
    let kinds = AnomalyKind::ALL.iter();
    let kinds = kinds.map(|kind| PossibleValue::new(kind.name()).help(kind.meaning()));
    PossibleValuesParser::new(severities.chain(kinds)).try_map(|name| named(&name).ok_or(Unknown))
}

fn named(name: &str) -> Option<FailOn> {
    let severity = SEVERITIES.iter().find(|(one, ..)| *one == name);
    let kind = || AnomalyKind::ALL.iter().find(|kind| kind.name() == name);
    match severity {
        Some((_, severity, _)) => Some(FailOn::Severity(*severity)),
        None => kind().copied().map(FailOn::Kind),
    }
}

/// No such severity or kind.
#[derive(Clone, Copy, Debug)]
struct Unknown;

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a severity or kind of anomaly")
    }
}

impl std::error::Error for Unknown {}

impl FailOn {
    fn covers(self, kind: AnomalyKind) -> bool {
        match self {
            Self::Severity(least) => kind.severity() >= least,
            Self::Kind(wanted) => kind == wanted,
        }
    }
}

/// Whether an anomaly of this kind matches.
pub(super) fn covers(wanted: &[FailOn], kind: AnomalyKind) -> bool {
    wanted.iter().any(|one| one.covers(kind))
}

/// Counts the matching anomalies of a report: `3 rnr_nak, 9 retransmission`. `None` if there are none.
pub(super) fn found(wanted: &[FailOn], report: &FileReport) -> Option<String> {
    let covered = |kind: &&AnomalyKind| covers(wanted, **kind);
    let counted = AnomalyKind::ALL.iter().filter(covered).filter_map(|kind| {
        let count = report.anomaly_counts.get(kind.name())?;
        Some(format!("{count} {}", kind.name()))
    });
    let counted: Vec<_> = counted.collect();
    (!counted.is_empty()).then(|| counted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> FileReport {
        let counts = [("rnr_nak", 3), ("cnp", 2), ("cm_reject", 1)];
        FileReport { anomaly_counts: counts.into(), ..FileReport::default() }
    }

    fn matched(names: &[&str]) -> Option<String> {
        let wanted: Vec<_> = names.iter().map(|name| named(name).expect("a name")).collect();
        found(&wanted, &report())
    }

    #[test]
    fn a_severity_includes_the_more_severe() {
        assert_eq!(matched(&["error"]).as_deref(), Some("1 cm_reject"));
        assert_eq!(matched(&["warning"]).as_deref(), Some("3 rnr_nak, 1 cm_reject"));
        assert_eq!(matched(&["info"]).as_deref(), Some("3 rnr_nak, 2 cnp, 1 cm_reject"));
    }

    #[test]
    fn a_kind_matches_only_itself() {
        assert_eq!(matched(&["cnp", "timeout"]).as_deref(), Some("2 cnp"));
        assert_eq!(matched(&["timeout"]), None);
        assert_eq!(matched(&[]), None);
        assert_eq!(named("nonsense"), None);
    }
}
