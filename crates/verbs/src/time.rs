//! Timestamps and deadlines.

use std::time::{Duration, Instant};

use ferroce_proto::time;
use ferroce_sys::clock;

/// A point in time of the system's monotonic clock (`CLOCK_MONOTONIC`), which all processes of a host share.
///
/// Unlike [`Instant`], it can be converted to nanoseconds, as `ibv_wc_read_completion_ts` returns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The present.
    pub fn now() -> Self {
        Self(clock::now())
    }

    pub(crate) const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the nanoseconds since the epoch of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since an earlier timestamp, or zero if it is later.
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time that has passed since.
    pub fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
    }
}

/// The current time on the clock of the transports.
pub(crate) fn now() -> time::Instant {
    time::Instant::from_nanos(clock::now())
}

/// Converts a deadline to nanoseconds of the monotonic clock, as the poller takes it.
pub(crate) fn nanos(deadline: Option<Instant>) -> Option<u64> {
    let until = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    let later = |left: Duration| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
    deadline.map(|deadline| clock::now().saturating_add(later(until(deadline))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_keep_their_distance_from_now() {
        let second = Duration::from_secs(1);
        let before = clock::now();
        let deadline = nanos(Some(Instant::now() + second)).unwrap();
        assert!(deadline <= clock::now() + 1_000_000_000);
        assert!(deadline >= before + 500_000_000);
        assert_eq!(nanos(None), None);
    }

    #[test]
    fn durations_between_timestamps_do_not_wrap() {
        let (early, late) = (Timestamp::from_nanos(5), Timestamp::from_nanos(12));
        assert_eq!(late.duration_since(early), Duration::from_nanos(7));
        assert_eq!(early.duration_since(late), Duration::ZERO);
    }
}
