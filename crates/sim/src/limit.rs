//! How a run ends, and the limits that end one that would not.

use std::fmt;

use ferroce_proto::time::Instant;

use crate::host::HostId;
use crate::statistics::{DropCause, Totals};

/// When a run is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events since the fabric was made: frames sent, forwarded and delivered, timeouts, failures.
    pub events: u64,
    /// Events at one and the same moment: a host that never gets further.
    pub events_at_once: u64,
    /// The end of time.
    pub time: Instant,
}

impl Default for Limits {
    /// Ten million events, a million of them at once, one hour.
    fn default() -> Self {
        let hour = Instant::from_nanos(3_600_000_000_000);
        Self { events: 10_000_000, events_at_once: 1_000_000, time: hour }
    }
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::events`].
    Events,
    /// [`Limits::events_at_once`].
    EventsAtOnce,
    /// [`Limits::time`].
    Time,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Events => "too many events",
            Self::EventsAtOnce => "too many events at one moment",
            Self::Time => "the end of time",
        })
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a run that reached a limit is not done"]
pub enum Outcome {
    /// The condition came true.
    Done,
    /// The time came.
    TimeReached,
    /// Nothing is left to happen: no frame on its way, no deadline.
    Idle,
    /// It did not end by itself: a livelock, or limits too narrow.
    LimitReached(Box<Activity>),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::TimeReached => f.write_str("time reached"),
            Self::Idle => f.write_str("idle"),
            Self::LimitReached(activity) => fmt::Display::fmt(activity, f),
        }
    }
}

/// What was going on when a limit was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Which limit.
    pub limit: Limit,
    /// When.
    pub now: Instant,
    /// Events so far.
    pub events: u64,
    /// Frames so far.
    pub totals: Totals,
    /// What happened last, oldest first.
    pub recent: Vec<Happening>,
    /// The hosts that sent, got or timed out most, with how often they did.
    pub busiest: Vec<(HostId, u64)>,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "limit reached at {}: {}, {} events", self.now, self.limit, self.events)?;
        writeln!(f, "  frames: {}", self.totals)?;
        for (host, count) in &self.busiest {
            writeln!(f, "  busy: {host}, {count} frames and timeouts")?;
        }
        for happening in &self.recent {
            writeln!(f, "  {happening}")?;
        }
        Ok(())
    }
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// When.
    pub at: Instant,
    /// To whom: for a frame at the switch, its sender; for a partition, the first of its one side.
    pub host: HostId,
    /// What.
    pub what: What,
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.at, self.host, self.what)
    }
}

/// Kinds of things that happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It sent a frame.
    Sent,
    /// Its frame came to the switch.
    Forwarded,
    /// A frame of it was dropped.
    Dropped(DropCause),
    /// It was given a frame.
    Delivered,
    /// It was told of a timeout.
    TimedOut,
    /// It was asked for frames: after it was added, or when its uplink had room again.
    Polled,
    /// It, or the network around it, failed or healed.
    Failed,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent => f.write_str("sent"),
            Self::Forwarded => f.write_str("forwarded"),
            Self::Dropped(cause) => write!(f, "dropped, {cause}"),
            Self::Delivered => f.write_str("delivered"),
            Self::TimedOut => f.write_str("timeout"),
            Self::Polled => f.write_str("polled"),
            Self::Failed => f.write_str("failure or repair"),
        }
    }
}

/// Counts events against the limits and remembers the last few.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) events: u64,
    at_once: u64,
    moment: Instant,
    /// A ring: the slot of the next is `events` modulo its length.
    recent: [Option<Happening>; Self::REMEMBERED],
}

impl Progress {
    const REMEMBERED: usize = 16;

    #[inline]
    pub(crate) fn note(&mut self, at: Instant, host: HostId, what: What) {
        if self.moment != at {
            (self.moment, self.at_once) = (at, 0);
        }
        self.at_once += 1;
        self.recent[(self.events % Self::REMEMBERED as u64) as usize] =
            Some(Happening { at, host, what });
        self.events += 1;
    }

    /// The limit that the next event at `at` would exceed.
    #[inline]
    pub(crate) fn exceeded(&self, limits: &Limits, at: Instant) -> Option<Limit> {
        if at > limits.time {
            Some(Limit::Time)
        } else if self.events >= limits.events {
            Some(Limit::Events)
        } else if at == self.moment && self.at_once >= limits.events_at_once {
            Some(Limit::EventsAtOnce)
        } else {
            None
        }
    }

    pub(crate) fn recent(&self) -> Vec<Happening> {
        let next = (self.events % Self::REMEMBERED as u64) as usize;
        let (newer, older) = self.recent.split_at(next);
        older.iter().chain(newer).flatten().copied().collect()
    }
}
