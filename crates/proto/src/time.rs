//! Time as an argument.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// A point in time: nanoseconds since an origin that the owner of the state machines chooses. State machines compare
/// and add times, and never read a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The owner's origin.
    pub const ZERO: Self = Self(0);

    /// The time this many nanoseconds after [`Instant::ZERO`].
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since [`Instant::ZERO`].
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// The same in nanoseconds.
    #[inline]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates: a timer set beyond the latest representable time never fires.
    #[inline]
    fn add(self, duration: Duration) -> Self {
        let seconds = duration.as_secs().saturating_mul(1_000_000_000);
        let nanoseconds = seconds.saturating_add(u64::from(duration.subsec_nanos()));
        Self(self.0.saturating_add(nanoseconds))
    }
}

/// The earlier of two times that may not be set.
#[inline]
pub fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
