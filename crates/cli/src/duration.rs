//! Durations on the command line.

use std::str::FromStr;

/// A duration of at least one nanosecond, such as `10ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// The duration.
    pub(crate) nanoseconds: u64,
}

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor: u64 = match unit.trim() {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "min" => 60_000_000_000,
            _ => return Err("expected a whole number and a unit: ns, us, ms, s or min".to_owned()),
        };
        let number: u64 =
            number.parse().map_err(|_| "the number before the unit is missing or too large")?;
        match number.checked_mul(factor) {
            Some(0) => Err("must be greater than zero".to_owned()),
            Some(nanoseconds) => Ok(Self { nanoseconds }),
            None => Err("too long".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Interval;

    #[test]
    fn durations_are_parsed_with_their_units() {
        for (text, nanoseconds) in
            [("7ns", 7), ("10us", 10_000), ("10 ms", 10_000_000), ("1s", 1_000_000_000)]
        {
            assert_eq!(text.parse(), Ok(Interval { nanoseconds }), "{text}");
        }
        for wrong in ["", "10", "ms", "0s", "-1s", "1.5s", "99999999999999999999s", "1h"] {
            assert!(wrong.parse::<Interval>().is_err(), "{wrong}");
        }
    }
}
