//! The round-trip time of a connection, for [`Probe`](super::probe::Probe).
//!
//! One packet at a time is measured, and none whose response may belong to an earlier transmission (Karn and
//! Partridge, SIGCOMM 1987): packets sent once, and those sent again after a NAK, since the responder drops all packets
//! behind a gap until the missing one arrives (IBA 9.7.5.1.2). Smoothing as in RFC 6298.

use core::time::Duration;

use crate::sequence::Sequence;
use crate::time::Instant;

#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    /// SRTT and RTTVAR in nanoseconds.
    smoothed: u64,
    variation: u64,
    samples: u8,
    /// The packet being measured: the position after it, and when it was sent.
    measured: Option<(Sequence, Instant)>,
    /// Packets before this position may have been answered already.
    ambiguous: Option<Sequence>,
}

impl RoundTrip {
    /// Samples after which the estimate is trusted: the first ones of a connection include cold caches and address
    /// resolution.
    const TRUSTED: u8 = 16;

    /// Lower limit: below this, the scheduling of threads dominates.
    const MIN: Duration = Duration::from_micros(200);

    /// In place of an estimate that is not trusted yet.
    const INITIAL: Duration = Duration::from_millis(10);

    /// A packet that requests a response is sent; `end` is the position after it.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, end: Sequence) {
        if self.measured.is_none() && self.ambiguous.is_none_or(|before| end > before) {
            self.measured = Some((end, now));
        }
    }

    /// Everything before `to` is acknowledged.
    #[inline]
    pub(super) fn on_ack(&mut self, now: Instant, to: Sequence) {
        if let Some((_, sent)) = self.measured.take_if(|(end, _)| *end <= to) {
            self.add(now.nanos_since(sent));
        }
    }

    /// The packet being measured is sent again.
    pub(super) fn cancel(&mut self) {
        self.measured = None;
    }

    /// Packets before `newest` are sent again, although the responder may have executed them.
    pub(super) fn on_ambiguous(&mut self, newest: Sequence) {
        self.ambiguous = Some(newest);
    }

    /// The position after the packet that is measured.
    #[cfg(debug_assertions)]
    pub(super) fn measured(&self) -> Option<Sequence> {
        self.measured.map(|(end, _)| end)
    }

    fn add(&mut self, sample: u64) {
        // A sample of minutes is not a round trip, and would overflow below.
        let sample = sample.min(1 << 40);
        if self.samples == 0 {
            (self.smoothed, self.variation) = (sample, sample / 2);
        } else {
            let error = self.smoothed.abs_diff(sample);
            self.variation = (3 * self.variation + error) / 4;
            self.smoothed = (7 * self.smoothed + sample) / 8;
        }
        self.samples = self.samples.saturating_add(1);
    }

    /// Time after which a response is probably lost.
    pub(super) fn timeout(&self) -> Duration {
        if self.samples < Self::TRUSTED {
            return Self::INITIAL;
        }
        Duration::from_nanos(self.smoothed + 4 * self.variation).max(Self::MIN)
    }
}

#[cfg(test)]
mod tests {
    use ferroce_wire::number::Psn;

    use super::*;

    #[test]
    fn follows_the_samples_once_it_is_trusted() {
        let mut rtt = RoundTrip::default();
        let (mut position, mut now) = (Sequence::starting(Psn(0)), Instant::ZERO);
        let mut sample = |rtt: &mut RoundTrip, micros| {
            position = position.plus(1);
            rtt.on_sent(now, position);
            now = now + Duration::from_micros(micros);
            rtt.on_ack(now, position);
        };
        (0..15).for_each(|_| sample(&mut rtt, 1000));
        assert_eq!(rtt.timeout(), RoundTrip::INITIAL);
        (0..100).for_each(|_| sample(&mut rtt, 1000));
        assert_eq!(rtt.timeout().as_micros(), 1000);
        (0..100).for_each(|_| sample(&mut rtt, 20));
        assert_eq!(rtt.timeout(), RoundTrip::MIN);
        sample(&mut rtt, 2000);
        assert!(rtt.timeout() > Duration::from_micros(2000), "the variation counts four times");
    }

    #[test]
    fn ignores_packets_that_may_have_been_answered() {
        let mut rtt = RoundTrip::default();
        let end = Sequence::starting(Psn(7));
        rtt.on_sent(Instant::ZERO, end);
        rtt.cancel();
        rtt.on_ambiguous(end);
        rtt.on_sent(Instant::ZERO, end);
        rtt.on_ack(Instant::from_nanos(5), end);
        assert_eq!(rtt.samples, 0);
        rtt.on_sent(Instant::ZERO, end.plus(1));
        rtt.on_ack(Instant::from_nanos(5), end.plus(1));
        assert_eq!(rtt.samples, 1);
    }
}
