//! A run as a line of text: what a failing test prints, and what brings the failure back.

use std::fmt;
use std::str::FromStr;

use crate::rdma::{UnknownName, Workload};
use crate::scenario::{Scenario, UnknownScenario};

/// The scenario, the seed and the workload of a run. Prints as the command that repeats it, and parses from it.
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
    /// The seed of everything.
    pub seed: u64,
    /// What is done; what is not said is as [`Workload::default`] has it.
    pub workload: Workload,
}

/// How the command starts.
const COMMAND: [&str; 2] = ["ferroce", "simulate"];

/// Options of the workload, each with its value as text.
fn options(workload: &Workload) -> [(&'static str, String); 7] {
    let Workload { hosts, connections, requests, largest, services, set_up, congestion } = workload;
    [
        ("--hosts", hosts.to_string()),
        ("--connections", connections.to_string()),
        ("--requests", requests.to_string()),
        ("--largest", largest.to_string()),
        ("--service", services.to_string()),
        ("--set-up", set_up.to_string()),
        ("--congestion", congestion.to_string()),
    ]
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [program, command] = COMMAND;
        write!(f, "{program} {command} --scenario {} --seed {}", self.scenario, self.seed)?;
        let usual = options(&Workload::default());
        for ((option, value), (_, usual)) in options(&self.workload).iter().zip(&usual) {
            if value != usual {
                write!(f, " {option} {value}")?;
            }
        }
        Ok(())
    }
}

/// Why a text is no replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadReplay {
    /// It does not start with `ferroce simulate`.
    OtherCommand,
    /// An option is missing, or its value.
    Missing(&'static str),
    /// An option came twice.
    Twice(&'static str),
    /// No such scenario.
    Scenario(UnknownScenario),
    /// The seed is no number of 64 bits.
    Seed(String),
    /// An option wants a number of 32 bits, and this is none.
    Number(String),
    /// No such service, set-up or congestion control.
    Name(UnknownName),
    /// Something that does not belong there.
    Unexpected(String),
}

impl fmt::Display for BadReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherCommand => write!(f, "the command is not \"{}\"", COMMAND.join(" ")),
            Self::Missing(option) => write!(f, "{option} or its value is missing"),
            Self::Twice(option) => write!(f, "{option} is there twice"),
            Self::Scenario(unknown) => fmt::Display::fmt(unknown, f),
            Self::Seed(text) => write!(f, "\"{text}\" is not a seed: a number of 64 bits"),
            Self::Number(text) => write!(f, "\"{text}\" is not a number of 32 bits"),
            Self::Name(unknown) => fmt::Display::fmt(unknown, f),
            Self::Unexpected(text) => write!(f, "\"{text}\" does not belong there"),
        }
    }
}

impl std::error::Error for BadReplay {}

impl FromStr for Replay {
    type Err = BadReplay;

    /// Options may come in any order; seeds may be hexadecimal, with `0x`.
    fn from_str(text: &str) -> Result<Self, BadReplay> {
        let mut words = text.split_whitespace();
        if [words.next(), words.next()] != COMMAND.map(Some) {
            return Err(BadReplay::OtherCommand);
        }
        let mut workload = Workload::default();
        let names = options(&workload).map(|(name, _)| name);
        let mut values: Vec<(&'static str, &str)> = Vec::new();
        while let Some(word) = words.next() {
            let mut known = ["--scenario", "--seed"].into_iter().chain(names);
            let option = known.find(|name| *name == word);
            let option = option.ok_or_else(|| BadReplay::Unexpected(word.into()))?;
            let value = words.next().ok_or(BadReplay::Missing(option))?;
            if values.iter().any(|(name, _)| *name == option) {
                return Err(BadReplay::Twice(option));
            }
            values.push((option, value));
        }
        let find = |name: &'static str| values.iter().find(|(one, _)| *one == name).map(|it| it.1);
        let scenario = find("--scenario").ok_or(BadReplay::Missing("--scenario"))?;
        let seed = find("--seed").ok_or(BadReplay::Missing("--seed"))?;
        let number = match seed.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => seed.parse(),
        };
        for (name, value) in &values {
            let number = || value.parse().map_err(|_| BadReplay::Number((*value).into()));
            match *name {
                "--hosts" => workload.hosts = number()?,
                "--connections" => workload.connections = number()?,
                "--requests" => workload.requests = number()?,
                "--largest" => workload.largest = number()?,
                "--service" => workload.services = value.parse().map_err(BadReplay::Name)?,
                "--set-up" => workload.set_up = value.parse().map_err(BadReplay::Name)?,
                "--congestion" => workload.congestion = value.parse().map_err(BadReplay::Name)?,
                _ => {}
            }
        }
        Ok(Self {
            scenario: scenario.parse().map_err(BadReplay::Scenario)?,
            seed: number.map_err(|_| BadReplay::Seed(seed.into()))?,
            workload,
        })
    }
}
