//! What a worker measured.

use serde::{Deserialize, Serialize};

use crate::latencies::Latencies;

/// The counts, times and latencies of one worker, or of several together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Timed messages that were sent and completed.
    pub(super) messages: u64,
    /// All messages that were sent, including the warm-up.
    pub(super) sent: u64,
    /// All SENDs that were received.
    pub(super) received: u64,
    /// When timing started and ended, in nanoseconds of the local monotonic clock.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Bytes that were received and checked here.
    pub(super) verified: u64,
    /// Messages of unreliable services that did not arrive.
    pub(super) lost: u64,
    /// The latencies, if they were measured here.
    #[serde(skip)]
    pub(super) latency: Option<Latencies>,
}

impl Tally {
    /// Adds what another worker of the same side measured at the same time.
    pub(super) fn add(&mut self, other: &Self) {
        let timed = |tally: &Self| tally.end > tally.start;
        self.start = match timed(self) {
            true if timed(other) => self.start.min(other.start),
            true => self.start,
            false => other.start,
        };
        self.end = self.end.max(other.end);
        self.messages += other.messages;
        self.sent += other.sent;
        self.received += other.received;
        self.verified += other.verified;
        self.lost += other.lost;
        match (&mut self.latency, &other.latency) {
            (Some(all), Some(more)) => all.add(more),
            (None, Some(more)) => self.latency = Some(more.clone()),
            _ => {}
        }
    }

    /// The measured time.
    pub(super) fn nanoseconds(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_of_workers_span_all_of_them() {
        let one = Tally { messages: 5, start: 10, end: 20, ..Tally::default() };
        let other = Tally { messages: 7, start: 12, end: 30, ..Tally::default() };
        // A worker that only receives has no times.
        let passive = Tally { received: 3, ..Tally::default() };
        let mut sum = Tally::default();
        [passive.clone(), one, other, passive].iter().for_each(|tally| sum.add(tally));
        assert_eq!((sum.messages, sum.received, sum.start, sum.end), (12, 6, 10, 30));
        assert_eq!(sum.nanoseconds(), 20);
    }
}
