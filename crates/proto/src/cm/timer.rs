//! Timers in the order of their deadlines.

use alloc::collections::BTreeSet;

use crate::time::Instant;

/// The owner of a timer, by communication ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Connection(u32),
    Resolution(u32),
    Query(u32),
    /// All established connections.
    Keepalive,
    /// Requests that overtook an RTU.
    Overtaking,
}

/// All timers, earliest first. Each owner has at most one and keeps its deadline.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    /// Sets, moves or stops the owner's timer.
    pub(super) fn set(
        &mut self,
        timer: Timer,
        deadline: &mut Option<Instant>,
        to: Option<Instant>,
    ) {
        if let Some(old) = deadline.take() {
            self.0.remove(&(old, timer));
        }
        if let Some(new) = to {
            self.0.insert((new, timer));
        }
        *deadline = to;
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|&(deadline, _)| deadline)
    }

    /// Removes the next expired timer. Its owner keeps the deadline until it sets a new one or is removed.
    pub(super) fn due(&mut self, now: Instant) -> Option<Timer> {
        let &(deadline, timer) = self.0.first()?;
        if deadline > now {
            return None;
        }
        self.0.pop_first();
        Some(timer)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
