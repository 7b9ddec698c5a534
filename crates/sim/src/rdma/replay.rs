//! The command line that repeats a run, which a failing test prints.

use std::fmt;
use std::str::FromStr;

use super::workload::{UnknownName, Workload};
use crate::scenario::{Scenario, UnknownScenario};

/// The scenario, seed and workload of a run. Displays as the command that repeats it, and parses from it.
///
/// ```
/// use ferroce_sim::{Replay, Scenario};
///
/// let replay = Replay { scenario: Scenario::lossy(0.05), seed: 42, workload: Default::default() };
/// assert_eq!(replay.to_string(), "ferroce simulate --scenario lossy:0.05 --seed 42");
/// assert_eq!(replay.to_string().parse(), Ok(replay));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The network.
    pub scenario: Scenario,
    /// The seed.
    pub seed: u64,
    /// The workload; options not given are those of [`Workload::default`].
    pub workload: Workload,
}

/// The program and its subcommand.
const COMMAND: [&str; 2] = ["ferroce", "simulate"];

/// Returns the options of the workload with their values.
fn options(workload: &Workload) -> [(&'static str, String); 8] {
    let Workload { hosts, connections, requests, largest, services, .. } = workload;
    let Workload { set_up, congestion, posting, .. } = workload;
    [
        ("--hosts", hosts.to_string()),
        ("--connections", connections.to_string()),
        ("--requests", requests.to_string()),
        ("--largest", largest.to_string()),
        ("--service", services.to_string()),
        ("--set-up", set_up.to_string()),
        ("--congestion", congestion.to_string()),
        ("--posting", posting.to_string()),
    ]
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [program, command] = COMMAND;
        write!(f, "{program} {command} --scenario {} --seed {}", self.scenario, self.seed)?;
        let defaults = options(&Workload::default());
        for ((option, value), (_, default)) in options(&self.workload).iter().zip(&defaults) {
            if value != default {
                write!(f, " {option} {value}")?;
            }
        }
        Ok(())
    }
}

/// Why a text does not parse as a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayParseError {
    /// It does not start with `ferroce simulate`.
    NotSimulate,
    /// An option or its value is missing.
    Missing(&'static str),
    /// An option was given twice.
    Twice(&'static str),
    /// The scenario is unknown.
    Scenario(UnknownScenario),
    /// The seed is not a 64-bit number.
    Seed(String),
    /// A value is not a 32-bit number.
    Number(String),
    /// The service, set-up method, congestion control or way to post is unknown.
    Name(UnknownName),
    /// An unknown argument.
    Unexpected(String),
}

impl fmt::Display for ReplayParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSimulate => write!(f, "the command is not \"{}\"", COMMAND.join(" ")),
            Self::Missing(option) => write!(f, "{option} or its value is missing"),
            Self::Twice(option) => write!(f, "{option} is given twice"),
            Self::Scenario(unknown) => fmt::Display::fmt(unknown, f),
            Self::Seed(text) => write!(f, "\"{text}\" is not a seed (a 64-bit number)"),
            Self::Number(text) => write!(f, "\"{text}\" is not a 32-bit number"),
            Self::Name(unknown) => fmt::Display::fmt(unknown, f),
            Self::Unexpected(text) => write!(f, "unexpected argument \"{text}\""),
        }
    }
}

impl std::error::Error for ReplayParseError {}

impl FromStr for Replay {
    type Err = ReplayParseError;

    /// Options may come in any order; seeds may be hexadecimal, with `0x`.
    fn from_str(text: &str) -> Result<Self, ReplayParseError> {
        let mut words = text.split_whitespace();
        if [words.next(), words.next()] != COMMAND.map(Some) {
            return Err(ReplayParseError::NotSimulate);
        }
        let mut workload = Workload::default();
        let names = options(&workload).map(|(name, _)| name);
        let mut values: Vec<(&'static str, &str)> = Vec::new();
        while let Some(word) = words.next() {
            let mut known = ["--scenario", "--seed"].into_iter().chain(names);
            let option = known.find(|name| *name == word);
            let option = option.ok_or_else(|| ReplayParseError::Unexpected(word.into()))?;
            let value = words.next().ok_or(ReplayParseError::Missing(option))?;
            if values.iter().any(|(name, _)| *name == option) {
                return Err(ReplayParseError::Twice(option));
            }
            values.push((option, value));
        }
        let find = |name: &'static str| {
            values.iter().find(|(option, _)| *option == name).map(|found| found.1)
        };
        let scenario = find("--scenario").ok_or(ReplayParseError::Missing("--scenario"))?;
        let seed = find("--seed").ok_or(ReplayParseError::Missing("--seed"))?;
        let number = match seed.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => seed.parse(),
        };
        for (name, value) in &values {
            let number = || value.parse().map_err(|_| ReplayParseError::Number((*value).into()));
            match *name {
                "--hosts" => workload.hosts = number()?,
                "--connections" => workload.connections = number()?,
                "--requests" => workload.requests = number()?,
                "--largest" => workload.largest = number()?,
                "--service" => workload.services = value.parse().map_err(ReplayParseError::Name)?,
                "--set-up" => workload.set_up = value.parse().map_err(ReplayParseError::Name)?,
                "--congestion" => {
                    workload.congestion = value.parse().map_err(ReplayParseError::Name)?
                }
                "--posting" => workload.posting = value.parse().map_err(ReplayParseError::Name)?,
                _ => {}
            }
        }
        Ok(Self {
            scenario: scenario.parse().map_err(ReplayParseError::Scenario)?,
            seed: number.map_err(|_| ReplayParseError::Seed(seed.into()))?,
            workload,
        })
    }
}
