//! The result of a check.

use serde::Serialize;

/// How serious a finding is, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Works.
    Ok,
    /// Works; worth knowing.
    Note,
    /// Works, but slower or differently than the user may expect.
    Warning,
    /// Does not work.
    Problem,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The stable name of the check, `group.check`.
    pub(super) id: &'static str,
    pub(super) result: Level,
    /// The device, program or variable it is about, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<String>,
    /// What was found.
    pub(super) finding: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

impl Finding {
    fn new(id: &'static str, result: Level, finding: impl Into<String>) -> Self {
        Self { id, result, subject: None, finding: finding.into(), fix: None }
    }

    pub(super) fn ok(id: &'static str, finding: impl Into<String>) -> Self {
        Self::new(id, Level::Ok, finding)
    }

    pub(super) fn note(id: &'static str, finding: impl Into<String>) -> Self {
        Self::new(id, Level::Note, finding)
    }

    pub(super) fn warning(id: &'static str, finding: impl Into<String>) -> Self {
        Self::new(id, Level::Warning, finding)
    }

    pub(super) fn problem(id: &'static str, finding: impl Into<String>) -> Self {
        Self::new(id, Level::Problem, finding)
    }

    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    pub(super) fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// The group of the check.
    pub(super) fn group(&self) -> &'static str {
        self.id.split_once('.').map_or(self.id, |(group, _)| group)
    }
}
