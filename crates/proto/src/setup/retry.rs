//! When a message is sent again, and when its sender gives up.

use core::time::Duration;

use crate::time::Instant;

/// The most attempts that a policy can have.
pub const MAX_ATTEMPTS: u8 = 16;

/// How the time between two attempts grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Not at all.
    Fixed,
    /// It doubles, up to [`RetryPolicy::longest`].
    Doubling,
}

/// How often and at which intervals a message is sent that is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often it is sent, the first time included: 1 to [`MAX_ATTEMPTS`]; others are taken as the nearest of
    /// these.
    pub attempts: u8,
    /// How long the first attempt waits for its answer.
    pub first: Duration,
    /// How the wait changes from attempt to attempt.
    pub growth: Growth,
    /// The longest wait.
    pub longest: Duration,
}

impl Default for RetryPolicy {
    /// Eight attempts, 100 ms doubling to 1.6 s: the sender gives up 7.9 s after the first.
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
    /// How often a message is sent.
    pub const fn attempts(&self) -> u8 {
        match self.attempts {
            0 => 1,
            attempts if attempts > MAX_ATTEMPTS => MAX_ATTEMPTS,
            attempts => attempts,
        }
    }

    /// How long the attempt with this number waits for an answer; the first has number 0.
    pub fn interval(&self, attempt: u8) -> Duration {
        let interval = match self.growth {
            Growth::Fixed => self.first,
            Growth::Doubling => self.first.saturating_mul(1 << attempt.min(MAX_ATTEMPTS)),
        };
        interval.min(self.longest)
    }

    /// From the first attempt to the moment at which the sender gives up.
    pub fn gives_up_after(&self) -> Duration {
        (0..self.attempts()).fold(Duration::ZERO, |sum, n| sum.saturating_add(self.interval(n)))
    }
}

/// A message under way: when its copies were sent, and when the next is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempts {
    policy: RetryPolicy,
    made: u8,
    /// When each was made, so that the one that was answered can be timed.
    at: [Instant; MAX_ATTEMPTS as usize],
    due: Instant,
}

/// What is to be done now about a message under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It is not time yet.
    Nothing,
    /// Send it again; the attempt's number.
    Repeat(u8),
    /// All attempts were in vain.
    GiveUp,
}

impl Attempts {
    /// The first attempt is made now.
    pub(super) fn begin(policy: RetryPolicy, now: Instant) -> Self {
        let at = [now; MAX_ATTEMPTS as usize];
        Self { policy, made: 1, at, due: now + policy.interval(0) }
    }

    pub(super) fn made(&self) -> u8 {
        self.made
    }

    /// When [`Attempts::due`] has something to say.
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
