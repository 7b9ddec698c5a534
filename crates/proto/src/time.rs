//! Time as an argument.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// A moment: nanoseconds since whatever the owner counts from. Machines compare moments and add to them, and never
/// ask what time it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The moment that the owner counts from.
    pub const ZERO: Self = Self(0);

    /// The moment so many nanoseconds after [`Instant::ZERO`].
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since [`Instant::ZERO`].
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to now; none when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// The end of time is the latest moment there is: a timer set for longer never fires.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
