//! How a run ends, and the limits that stop a run that would not end.

use std::fmt;

use ferroce_proto::time::Instant;

use crate::host::HostId;
use crate::statistics::{DropCause, Totals};

/// The limits at which a run is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events since the fabric was created: frames sent, forwarded and delivered, timeouts, failures.
    pub events: u64,
    /// Events at the same virtual time: exceeded by a host that makes no progress.
    pub events_per_instant: u64,
    /// The last virtual time.
    pub time: Instant,
}

impl Default for Limits {
    /// Ten million events, a million events at the same time, one hour.
    fn default() -> Self {
        let hour = Instant::from_nanos(3_600_000_000_000);
        Self { events: 10_000_000, events_per_instant: 1_000_000, time: hour }
    }
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::events`].
    Events,
    /// [`Limits::events_per_instant`].
    EventsPerInstant,
    /// [`Limits::time`].
    Time,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Events => "too many events",
            Self::EventsPerInstant => "too many events at the same time",
            Self::Time => "the time limit",
        })
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a run that reached a limit is not done"]
pub enum Outcome {
    /// The condition holds.
    Done,
    /// The requested time was reached.
    TimeReached,
    /// No event is left: no frame in flight, no deadline.
    Idle,
    /// A limit stopped the run: a livelock, or limits that are too low.
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

/// The state of the run when a limit was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// The limit.
    pub limit: Limit,
    /// The time.
    pub now: Instant,
    /// Events so far.
    pub events: u64,
    /// Frames so far.
    pub totals: Totals,
    /// The last events, oldest first.
    pub recent: Vec<RecentEvent>,
    /// The busiest hosts, with their frames sent and received plus timeouts.
    pub busiest: Vec<(HostId, u64)>,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "limit reached at {}: {}, {} events", self.now, self.limit, self.events)?;
        writeln!(f, "  frames: {}", self.totals)?;
        for (host, count) in &self.busiest {
            writeln!(f, "  busy: {host}, {count} frames and timeouts")?;
        }
        for event in &self.recent {
            writeln!(f, "  {event}")?;
        }
        Ok(())
    }
}

/// One of the last events before a limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentEvent {
    /// The time.
    pub at: Instant,
    /// The host: for a frame at the switch, its sender; for a partition, the first host of side A.
    pub host: HostId,
    /// The kind of event.
    pub kind: EventKind,
}

impl fmt::Display for RecentEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.at, self.host, self.kind)
    }
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The host sent a frame.
    Sent,
    /// A frame of the host reached the switch.
    Forwarded,
    /// A frame of the host was dropped.
    Dropped(DropCause),
    /// A frame was delivered to the host.
    Delivered,
    /// The host's timer expired.
    TimedOut,
    /// The host was polled for frames: after it was added, or when its uplink had space again.
    Polled,
    /// The host was notified by another one.
    Notified,
    /// The host or the network failed or recovered.
    Failed,
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent => f.write_str("sent"),
            Self::Forwarded => f.write_str("forwarded"),
            Self::Dropped(cause) => write!(f, "dropped, {cause}"),
            Self::Delivered => f.write_str("delivered"),
            Self::TimedOut => f.write_str("timeout"),
            Self::Polled => f.write_str("polled"),
            Self::Notified => f.write_str("notified"),
            Self::Failed => f.write_str("failure or repair"),
        }
    }
}

/// Counts events against the limits and keeps the last few.
#[derive(Debug, Default)]
pub(crate) struct EventCounter {
    pub(crate) events: u64,
    in_instant: u64,
    instant: Instant,
    /// A ring buffer: the next event goes to `events` modulo its length.
    recent: [Option<RecentEvent>; Self::RECENT_EVENTS],
}

impl EventCounter {
    const RECENT_EVENTS: usize = 16;

    #[inline]
    pub(crate) fn note(&mut self, at: Instant, host: HostId, kind: EventKind) {
        if self.instant != at {
            (self.instant, self.in_instant) = (at, 0);
        }
        self.in_instant += 1;
        self.recent[(self.events % Self::RECENT_EVENTS as u64) as usize] =
            Some(RecentEvent { at, host, kind });
        self.events += 1;
    }

    /// Returns the limit that the next event, at `at`, would exceed.
    #[inline]
    pub(crate) fn exceeded(&self, limits: &Limits, at: Instant) -> Option<Limit> {
        if at > limits.time {
            Some(Limit::Time)
        } else if self.events >= limits.events {
            Some(Limit::Events)
        } else if at == self.instant && self.in_instant >= limits.events_per_instant {
            Some(Limit::EventsPerInstant)
        } else {
            None
        }
    }

    pub(crate) fn recent(&self) -> Vec<RecentEvent> {
        let next = (self.events % Self::RECENT_EVENTS as u64) as usize;
        let (newer, older) = self.recent.split_at(next);
        older.iter().chain(newer).flatten().copied().collect()
    }
}
