//! Link speeds and ECN thresholds on the command line.

use std::str::FromStr;

use ferroce_sim::{Bandwidth, Marking, Probability};

use crate::session::bytes::Size;

/// A link speed: `100G`, `2500M`, `100Gbit/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Speed(pub(super) Bandwidth);

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor: u64 = match unit.trim().trim_end_matches("bit/s") {
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            _ => {
                return Err("expected a speed in bits per second, such as 100G or 2500M".to_owned());
            }
        };
        let number: u64 =
            number.parse().map_err(|_| "the number before the unit is missing or too large")?;
        // The serialisation time of a byte is computed in picoseconds.
        let speed = number.checked_mul(factor).filter(|speed| *speed <= 1_600_000_000_000);
        match speed {
            Some(0) => Err("must be greater than zero".to_owned()),
            Some(speed) => Ok(Self(Bandwidth(speed))),
            None => Err("must be at most 1600G".to_owned()),
        }
    }
}

/// ECN marking: `off`, a threshold in bytes, or KMIN:KMAX:PMAX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ecn(pub(super) Option<Marking>);

impl FromStr for Ecn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |text: &str| {
            let size: Size = text.parse()?;
            usize::try_from(size.0).map_err(|_| "too large".to_owned())
        };
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            ["off"] => Ok(Self(None)),
            [threshold] => Ok(Self(Some(Marking::threshold(size(threshold)?)))),
            [start, full, probability] => {
                let max_probability: Probability =
                    probability.parse().map_err(|error| format!("PMAX: {error}"))?;
                Ok(Self(Some(Marking { start: size(start)?, full: size(full)?, max_probability })))
            }
            _ => Err("expected off, a number of bytes, or KMIN:KMAX:PMAX".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_parsed_with_their_units() {
        for (text, speed) in [("40G", 40_000_000_000), ("2500M", 2_500_000_000)] {
            assert_eq!(text.parse(), Ok(Speed(Bandwidth(speed))), "{text}");
        }
        assert_eq!("100Gbit/s".parse(), Ok(Speed(Bandwidth::gigabits(100))));
        for wrong in ["", "40", "G", "0G", "-1G", "9999999999G", "40X"] {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn marking_is_off_a_threshold_or_a_ramp() {
        assert_eq!("off".parse(), Ok(Ecn(None)));
        assert_eq!("64K".parse(), Ok(Ecn(Some(Marking::threshold(65_536)))));
        let ramp =
            Marking { start: 5_000, full: 204_800, max_probability: Probability::percent(1) };
        assert_eq!("5000:200K:0.01".parse(), Ok(Ecn(Some(ramp))));
        for wrong in ["", "on", "1:2", "1:2:3:4", "1:2:1.5", "x:2:0.1"] {
            assert!(wrong.parse::<Ecn>().is_err(), "{wrong}");
        }
    }
}
