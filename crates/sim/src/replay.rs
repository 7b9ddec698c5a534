//! A run as a line of text: what a failing test prints, and what brings the failure back.

use std::fmt;
use std::str::FromStr;

use crate::scenario::{Scenario, UnknownScenario};

/// The scenario and the seed of a run. Prints as the command that repeats it, and parses from it.
///
/// ```
/// use ferroce_sim::{Replay, Scenario};
///
/// let replay = Replay { scenario: Scenario::lossy(0.05), seed: 42 };
/// assert_eq!(replay.to_string(), "ferroce simulate --scenario lossy:0.05 --seed 42");
/// assert_eq!(replay.to_string().parse(), Ok(replay));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The network.
    pub scenario: Scenario,
    /// The seed of everything.
    pub seed: u64,
}

/// How the command starts.
const COMMAND: [&str; 2] = ["ferroce", "simulate"];

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [program, command] = COMMAND;
        write!(f, "{program} {command} --scenario {} --seed {}", self.scenario, self.seed)
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
            Self::Unexpected(text) => write!(f, "\"{text}\" does not belong there"),
        }
    }
}

impl std::error::Error for BadReplay {}

impl FromStr for Replay {
    type Err = BadReplay;

    /// Options may come in either order; seeds may be hexadecimal, with `0x`.
    fn from_str(text: &str) -> Result<Self, BadReplay> {
        let mut words = text.split_whitespace();
        if [words.next(), words.next()] != COMMAND.map(Some) {
            return Err(BadReplay::OtherCommand);
        }
        let (mut scenario, mut seed) = (None, None);
        while let Some(word) = words.next() {
            let (place, option) = match word {
                "--scenario" => (&mut scenario, "--scenario"),
                "--seed" => (&mut seed, "--seed"),
                _ => return Err(BadReplay::Unexpected(word.into())),
            };
            let value = words.next().ok_or(BadReplay::Missing(option))?;
            if place.replace(value).is_some() {
                return Err(BadReplay::Twice(option));
            }
        }
        let scenario = scenario.ok_or(BadReplay::Missing("--scenario"))?;
        let seed = seed.ok_or(BadReplay::Missing("--seed"))?;
        let number = match seed.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => seed.parse(),
        };
        Ok(Self {
            scenario: scenario.parse().map_err(BadReplay::Scenario)?,
            seed: number.map_err(|_| BadReplay::Seed(seed.into()))?,
        })
    }
}
