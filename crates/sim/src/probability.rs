//! Probability as an integer: it prints and parses without loss and compares for equality.

use std::fmt;
use std::str::FromStr;

/// A probability in parts per billion.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u32);

impl Probability {
    /// 0.
    pub const NEVER: Self = Self(0);
    /// 1.
    pub const ALWAYS: Self = Self(1_000_000_000);

    /// Converts a share, clamped to 0.0..=1.0; NaN becomes 0.
    pub fn new(share: f64) -> Self {
        // Float-to-integer conversion saturates, and maps NaN to 0.
        Self::from_parts_per_billion((share * 1e9).round() as u32)
    }

    /// Converts parts per billion, at most 1,000,000,000.
    pub const fn from_parts_per_billion(parts: u32) -> Self {
        if parts > Self::ALWAYS.0 { Self::ALWAYS } else { Self(parts) }
    }

    /// Converts a percentage, at most 100.
    pub const fn percent(percent: u32) -> Self {
        Self::from_parts_per_billion(percent.saturating_mul(10_000_000))
    }

    /// Returns the probability in parts per billion.
    pub const fn parts_per_billion(self) -> u32 {
        self.0
    }
}

/// Writes a decimal fraction without trailing zeros: `0.01`.
impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, parts) = (self.0 / Self::ALWAYS.0, self.0 % Self::ALWAYS.0);
        if parts == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{parts:09}").trim_end_matches('0'))
    }
}

impl fmt::Debug for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a number from 0 to 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAProbability(pub String);

impl fmt::Display for NotAProbability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not a probability from 0 to 1", self.0)
    }
}

impl std::error::Error for NotAProbability {}

impl FromStr for Probability {
    type Err = NotAProbability;

    fn from_str(text: &str) -> Result<Self, NotAProbability> {
        match text.parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Self::new(share)),
            _ => Err(NotAProbability(text.into())),
        }
    }
}
