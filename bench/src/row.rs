//! What a benchmark is: sides that are measured, and lines of the table that compare them.

use std::collections::BTreeMap;

use crate::program::{Program, Ready};
use crate::sandbox::Network;
use crate::statistics::Summary;

/// The figures of one sample, by name.
pub(crate) type Sample = BTreeMap<String, f64>;

/// Extracts the figures from the outputs of server and client.
pub(crate) type Parse = fn(&Said) -> Result<Sample, String>;

/// What server and client printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    pub(crate) server: String,
    pub(crate) client: String,
}

/// A benchmark.
#[derive(Debug)]
pub(crate) struct Row {
    /// For `--only`.
    pub(crate) name: &'static str,
    /// One line.
    pub(crate) title: &'static str,
    /// What is measured, alternating in this order.
    pub(crate) sides: Vec<Side>,
    /// What is compared.
    pub(crate) lines: Vec<Line>,
    /// What a reader has to know.
    pub(crate) note: &'static str,
}

/// One side of a comparison: a pair of programs.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) network: Network,
    /// Set for the sample, if the machine permits it.
    pub(crate) rmem_max: Option<u64>,
    /// Started first; `None` if the client needs none.
    pub(crate) server: Option<(Program, Ready)>,
    pub(crate) client: Program,
    pub(crate) parse: Parse,
}

impl Side {
    /// Returns a side on the loopback.
    pub(crate) fn new(
        name: impl Into<String>,
        (server, ready): (Program, Ready),
        client: Program,
        parse: Parse,
    ) -> Self {
        let (server, network) = (Some((server, ready)), Network::Loopback);
        Self { name: name.into(), network, rmem_max: None, server, client, parse }
    }

    /// Returns a side with one program, on the loopback.
    pub(crate) fn alone(name: impl Into<String>, client: Program, parse: Parse) -> Self {
        let network = Network::Loopback;
        Self { name: name.into(), network, rmem_max: None, server: None, client, parse }
    }

    /// Sets the network.
    pub(crate) fn on(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Lets packets between processes on one host go through shared memory, as users get it.
    pub(crate) fn through_memory(mut self) -> Self {
        self.server.iter_mut().for_each(|(server, _)| server.memory = true);
        self.client.memory = true;
        self
    }

    /// All programs.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Program> {
        self.server.iter().map(|(server, _)| server).chain([&self.client])
    }
}

/// A line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// The figure of the samples that is compared.
    pub(crate) figure: &'static str,
    pub(crate) unit: &'static str,
    /// The name of our side.
    pub(crate) ours: String,
    /// What it is compared with.
    pub(crate) against: Option<Against>,
    pub(crate) bar: Bar,
}

/// The other figure of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Against {
    /// The name for readers.
    pub(crate) name: String,
    /// The name of the side.
    pub(crate) side: String,
    /// The figure of its samples.
    pub(crate) figure: &'static str,
}

impl Line {
    /// Returns a line for information.
    pub(crate) fn new(
        name: impl Into<String>,
        figure: &'static str,
        unit: &'static str,
        ours: impl Into<String>,
    ) -> Self {
        let (name, ours) = (name.into(), ours.into());
        Self { name, figure, unit, ours, against: None, bar: Bar::None }
    }

    /// Compares with the same figure of another side.
    pub(crate) fn against(mut self, side: impl Into<String>) -> Self {
        let (side, figure) = (side.into(), self.figure);
        self.against = Some(Against { name: side.clone(), side, figure });
        self
    }

    /// Compares with another figure of the same samples.
    pub(crate) fn against_figure(mut self, name: impl Into<String>, figure: &'static str) -> Self {
        self.against = Some(Against { name: name.into(), side: self.ours.clone(), figure });
        self
    }

    /// Sets the bar.
    pub(crate) fn bar(mut self, bar: Bar) -> Self {
        self.bar = bar;
        self
    }
}

/// The value to reach: a figure, or its ratio to the other side's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    /// For information only.
    None,
    /// The figure.
    AtLeast(f64),
    /// The figure.
    AtMost(f64),
    /// The figure of every sample.
    NeverAbove(f64),
    /// The ratio of the medians.
    RatioAtLeast(f64),
    /// The ratio of the medians.
    RatioAtMost(f64),
}

/// Whether a bar is met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    Information,
    Met,
    /// The value, and its distance from the bar in percent of the bar.
    NotMet {
        value: f64,
        percent: f64,
    },
    /// A side has no figure.
    Unknown,
}

impl Bar {
    /// Compares with our side and the ratio of the medians.
    pub(crate) fn judge(self, ours: Option<Summary>, ratio: Option<f64>) -> Verdict {
        let (max, ours) = (ours.map(|ours| ours.max), ours.map(|ours| ours.median));
        let (value, bar, least) = match self {
            Self::None => return Verdict::Information,
            Self::AtLeast(bar) => (ours, bar, true),
            Self::AtMost(bar) => (ours, bar, false),
            Self::NeverAbove(bar) => (max, bar, false),
            Self::RatioAtLeast(bar) => (ratio, bar, true),
            Self::RatioAtMost(bar) => (ratio, bar, false),
        };
        let Some(value) = value else { return Verdict::Unknown };
        if (least && value >= bar) || (!least && value <= bar) {
            return Verdict::Met;
        }
        let percent = if bar == 0.0 { f64::INFINITY } else { (value - bar).abs() / bar * 100.0 };
        Verdict::NotMet { value, percent }
    }
}

/// The result of a row.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    pub(crate) row: &'a Row,
    /// The samples of each side, in the order of [`Row::sides`].
    pub(crate) samples: Vec<Vec<Sample>>,
    /// Why sides failed.
    pub(crate) failures: Vec<String>,
    /// Why the row was not run: something is missing on this machine.
    pub(crate) skipped: Option<String>,
}

impl Outcome<'_> {
    /// Whether it could not be run, although nothing is missing.
    pub(crate) fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Summarises a figure of a side.
    pub(crate) fn summary(&self, side: &str, figure: &str) -> Option<Summary> {
        let index = self.row.sides.iter().position(|one| one.name == side)?;
        let values: Vec<f64> = self
            .samples
            .get(index)?
            .iter()
            .filter_map(|sample| sample.get(figure))
            .copied()
            .collect();
        Summary::of(&values)
    }

    /// Returns the figures of a line: ours, theirs, the ratio of the medians.
    pub(crate) fn compare(&self, line: &Line) -> (Option<Summary>, Option<Summary>, Option<f64>) {
        let ours = self.summary(&line.ours, line.figure);
        let theirs =
            line.against.as_ref().and_then(|other| self.summary(&other.side, other.figure));
        let ratio = ours.zip(theirs).filter(|(_, theirs)| theirs.median != 0.0);
        (ours, theirs, ratio.map(|(ours, theirs)| ours.median / theirs.median))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: f64) -> Option<Summary> {
        Summary::of(&[value])
    }

    #[test]
    fn a_single_bad_sample_is_above() {
        let samples = Summary::of(&[0.0, 0.0, 3.0]);
        assert_eq!(Bar::AtMost(0.0).judge(samples, None), Verdict::Met);
        let verdict = Bar::NeverAbove(0.0).judge(samples, None);
        assert_eq!(verdict, Verdict::NotMet { value: 3.0, percent: f64::INFINITY });
    }

    #[test]
    fn bars_are_met_at_their_value() {
        assert_eq!(Bar::AtLeast(2.0).judge(one(2.0), None), Verdict::Met);
        assert_eq!(Bar::RatioAtMost(1.1).judge(one(9.0), Some(1.1)), Verdict::Met);
        assert_eq!(Bar::AtMost(0.0).judge(one(0.0), None), Verdict::Met);
    }

    #[test]
    fn a_missed_bar_says_by_how_much() {
        let verdict = Bar::RatioAtLeast(0.8).judge(one(1.0), Some(0.4));
        assert_eq!(verdict, Verdict::NotMet { value: 0.4, percent: 50.0 });
        let verdict = Bar::AtMost(10.0).judge(one(12.0), None);
        assert_eq!(verdict, Verdict::NotMet { value: 12.0, percent: 20.0 });
    }

    #[test]
    fn a_line_without_figures_is_unknown() {
        assert_eq!(Bar::AtLeast(1.0).judge(None, None), Verdict::Unknown);
        assert_eq!(Bar::None.judge(None, None), Verdict::Information);
    }
}
