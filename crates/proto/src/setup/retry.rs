//! Retransmission schedule of a message.

use core::time::Duration;

use crate::time::Instant;

/// Maximum number of attempts of a policy.
pub const MAX_ATTEMPTS: u8 = 16;

/// How the interval between attempts grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Constant interval.
    Fixed,
    /// Doubles, up to [`RetryPolicy::longest`].
    Doubling,
}

/// Number and intervals of the attempts to send a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Number of attempts including the first, clamped to 1..=[`MAX_ATTEMPTS`].
    pub attempts: u8,
    /// Wait after the first attempt.
    pub first: Duration,
    /// Growth of the wait.
    pub growth: Growth,
    /// Maximum wait.
    pub longest: Duration,
}

impl Default for RetryPolicy {
    /// Eight attempts, 100 ms doubling to 1.6 s: the sender gives up after 7.9 s.
    fn default() -> Self {
        Self {
            attempts: 8,
            first: Duration::from_millis(100),
            growth: Growth::Doubling,
            longest: Duration::from_millis(1600),
        }
    }
}

impl RetryPolicy {
    /// Number of attempts.
    pub const fn attempts(&self) -> u8 {
        match self.attempts {
            0 => 1,
            attempts if attempts > MAX_ATTEMPTS => MAX_ATTEMPTS,
            attempts => attempts,
        }
    }

    /// Wait after an attempt; the first has number 0.
    pub fn interval(&self, attempt: u8) -> Duration {
        let interval = match self.growth {
            Growth::Fixed => self.first,
            Growth::Doubling => self.first.saturating_mul(1 << attempt.min(MAX_ATTEMPTS)),
        };
        interval.min(self.longest)
    }

    /// Time from the first attempt until the sender gives up.
    pub fn gives_up_after(&self) -> Duration {
        (0..self.attempts()).fold(Duration::ZERO, |sum, n| sum.saturating_add(self.interval(n)))
    }
}

/// A message in flight: when its copies were sent, and when the next one is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempts {
    policy: RetryPolicy,
    made: u8,
    /// Time of each attempt, to measure the round trip of the one that was answered.
    at: [Instant; MAX_ATTEMPTS as usize],
    due: Instant,
}

/// What to do now about a message in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing yet.
    Nothing,
    /// Retransmit it, with this attempt number.
    Repeat(u8),
    /// All attempts are used up.
    GiveUp,
}

impl Attempts {
    /// Starts with the first attempt.
    pub(super) fn begin(policy: RetryPolicy, now: Instant) -> Self {
        let at = [now; MAX_ATTEMPTS as usize];
        Self { policy, made: 1, at, due: now + policy.interval(0) }
    }

    pub(super) fn made(&self) -> u8 {
        self.made
    }

    /// When [`Attempts::due`] returns something else than [`Due::Nothing`].
    pub(super) fn deadline(&self) -> Instant {
        self.due
    }

    pub(super) fn due(&mut self, now: Instant) -> Due {
        if now < self.due {
            return Due::Nothing;
        }
        if self.made >= self.policy.attempts() {
            return Due::GiveUp;
        }
        let attempt = self.made;
        if let Some(at) = self.at.get_mut(usize::from(attempt)) {
            *at = now;
        }
        self.made += 1;
        self.due = now + self.policy.interval(attempt);
        Due::Repeat(attempt)
    }

    /// Time since the attempt with this number; `None` when it was never made.
    pub(super) fn since(&self, attempt: u8, now: Instant) -> Option<Duration> {
        let made = self.at.get(..usize::from(self.made))?;
        made.get(usize::from(attempt)).map(|&at| now.since(at))
    }
}
