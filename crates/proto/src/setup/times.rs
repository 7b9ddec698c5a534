//! Durations of the phases.

use core::time::Duration;

use ferroce_wire::setup::Phase;

use crate::time::Instant;

/// One phase of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseTime {
    /// Start: the end of the previous phase. What a side does between two messages (create a QP, register memory)
    /// counts for the phase of the second message.
    pub start: Instant,
    /// End.
    pub end: Instant,
    /// Time from the answered copy of the last request to its response: the network and the peer only. `None` on the
    /// server.
    pub round_trip: Option<Duration>,
    /// Requests that this side sent, including retransmissions.
    pub attempts: u32,
}

impl PhaseTime {
    /// Duration.
    pub const fn duration(&self) -> Duration {
        self.end.since(self.start)
    }
}

/// The phases of an exchange as seen by one side. They are contiguous: their durations add up to
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

    /// A finished phase. `None` when it was not reached, for memory when no MR was registered, and always for data,
    /// which has no end.
    pub fn phase(&self, phase: Phase) -> Option<PhaseTime> {
        self.phases.get(index(phase)).copied().flatten()
    }

    /// Duration of a phase; `None` as for [`PhaseTimes::phase`].
    pub fn duration(&self, phase: Phase) -> Option<Duration> {
        self.phase(phase).map(|time| time.duration())
    }

    /// Start of the exchange.
    pub const fn start(&self) -> Instant {
        self.start
    }

    /// End of the last finished phase: after the fourth, when data could flow.
    pub fn end(&self) -> Instant {
        self.phases.iter().flatten().last().map_or(self.start, |time| time.end)
    }

    /// Time from the start to [`PhaseTimes::end`].
    pub fn total(&self) -> Duration {
        self.end().since(self.start)
    }

    /// Ends a phase, or extends it when it had ended before: each further MR extends the memory phase.
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
