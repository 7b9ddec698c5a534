//! How long each phase took.

use core::time::Duration;

use ferroce_wire::setup::Phase;

use crate::time::Instant;

/// One phase of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTime {
    /// When it began: at the end of the phase before it, so that what a side does between two messages (create a
    /// queue pair, register memory) counts for the phase that the second message belongs to.
    pub start: Instant,
    /// When it ended.
    pub end: Instant,
    /// From the copy of the last request that was answered to its answer: the network and the other side alone.
    /// `None` at the server.
    pub round_trip: Option<Duration>,
    /// How many messages this side sent that wait for an answer, repetitions included.
    pub attempts: u32,
}

impl PhaseTime {
    /// How long it took.
    pub const fn duration(&self) -> Duration {
        self.end.since(self.start)
    }
}

/// The phases of an exchange as one side saw them. They follow each other without gaps: their durations add up to
/// [`PhaseTimes::total`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTimes {
    start: Instant,
    phases: [Option<PhaseTime>; 4],
}

impl PhaseTimes {
    pub(super) const fn begin(start: Instant) -> Self {
        Self { start, phases: [None; 4] }
    }

    /// A phase that is over. `None` when it was not reached, for memory when no region was registered, and always for
    /// data, which has no end.
    pub fn phase(&self, phase: Phase) -> Option<PhaseTime> {
        self.phases.get(index(phase)).copied().flatten()
    }

    /// How long a phase took; `None` as for [`PhaseTimes::phase`].
    pub fn duration(&self, phase: Phase) -> Option<Duration> {
        self.phase(phase).map(|time| time.duration())
    }

    /// When the exchange began.
    pub const fn start(&self) -> Instant {
        self.start
    }

    /// When the last phase that is over ended: after the fourth, when data could flow.
    pub fn end(&self) -> Instant {
        self.phases.iter().flatten().last().map_or(self.start, |time| time.end)
    }

    /// From the beginning to [`PhaseTimes::end`].
    pub fn total(&self) -> Duration {
        self.end().since(self.start)
    }

    /// A phase ends now, or goes on until now when it had ended before: each further memory region prolongs its
    /// phase.
    pub(super) fn finish(
        &mut self,
        phase: Phase,
        now: Instant,
        round_trip: Option<Duration>,
        attempts: u32,
    ) {
        let (start, now) = (self.end(), now.max(self.end()));
        let Some(slot) = self.phases.get_mut(index(phase)) else { return };
        *slot = Some(match *slot {
            Some(before) => {
                PhaseTime { end: now, round_trip, attempts: before.attempts + attempts, ..before }
            }
            None => PhaseTime { start, end: now, round_trip, attempts },
        });
    }
}

fn index(phase: Phase) -> usize {
    phase as usize - 1
}
