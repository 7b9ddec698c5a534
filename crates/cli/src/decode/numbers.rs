//! Selecting frames of a file.

use std::fmt;
use std::str::FromStr;

/// A range of frame numbers: `N`, `N-M`, or `N-` for N and all following. Frames count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    first: u64,
    last: u64,
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| match text.parse() {
            Ok(0) => Err("frames are numbered from 1".to_owned()),
            Ok(number) => Ok(number),
            Err(_) => {
                Err("expected a frame number N, a range N-M, or N- for all frames from N"
                    .to_owned())
            }
        };
        let (first, last) = match text.split_once('-') {
            None => (number(text)?, number(text)?),
            Some((first, "")) => (number(first)?, u64::MAX),
            Some((first, last)) => (number(first)?, number(last)?),
        };
        if last < first {
            return Err(format!("the range is empty; did you mean {last}-{first}?"));
        }
        Ok(Self { first, last })
    }
}

impl Numbers {
    fn is_open(self) -> bool {
        self.last == u64::MAX
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { first, last } if first == last => write!(f, "frame {first} does not"),
            Self { first, last: u64::MAX } => write!(f, "frame {first} does not"),
            Self { first, last } => write!(f, "frames {first} to {last} do not"),
        }
    }
}

/// The requested frames. A file is read once from its start, so they are shown in file order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection(Vec<Numbers>);

impl Selection {
    /// The union of the ranges.
    pub(crate) fn new(runs: &[Numbers]) -> Self {
        Self(runs.to_vec())
    }

    /// Whether a frame is requested.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.0.iter().any(|run| run.first <= number && number <= run.last)
    }

    /// Whether no later frame is requested.
    pub(crate) fn ends_with(&self, number: u64) -> bool {
        self.0.iter().all(|run| run.last <= number)
    }

    /// The requested frames that a file of `count` frames does not have.
    pub(crate) fn missing(&self, count: u64) -> impl Iterator<Item = Numbers> + '_ {
        self.0
            .iter()
            .filter(move |run| run.first > count || !run.is_open() && run.last > count)
            .map(move |run| Numbers { first: run.first.max(count + 1), last: run.last })
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, Selection};

    fn numbers(text: &str) -> Numbers {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_are_parsed() {
        assert_eq!(numbers("7"), Numbers { first: 7, last: 7 });
        assert_eq!(numbers("7-9"), Numbers { first: 7, last: 9 });
        assert_eq!(numbers("7-"), Numbers { first: 7, last: u64::MAX });
        for wrong in ["", "-", "0", "-3", "9-7", "1-2-3", "x", "1.5", "0-4", "+"] {
            assert!(wrong.parse::<Numbers>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_selection_contains_its_ranges_and_ends_with_the_last() {
        let selection = Selection::new(&[numbers("2"), numbers("4-5")]);
        let wanted: Vec<u64> = (1..8).filter(|&number| selection.contains(number)).collect();
        assert_eq!(wanted, [2, 4, 5]);
        assert!(!selection.ends_with(4));
        assert!(selection.ends_with(5));
        assert!(!Selection::new(&[numbers("2-")]).ends_with(1_000_000));
    }

    #[test]
    fn missing_frames_are_listed() {
        let selection =
            Selection::new(&[numbers("2"), numbers("4-9"), numbers("3-"), numbers("8-")]);
        let missing: Vec<String> = selection.missing(5).map(|run| run.to_string()).collect();
        assert_eq!(missing, ["frames 6 to 9 do not", "frame 8 does not"]);
        assert_eq!(selection.missing(9).count(), 0);
    }
}
