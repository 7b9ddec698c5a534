//! Probes: a lost packet at the end of a burst, a lost NAK, a lost ACK or a lost retransmission causes no NAK, so
//! without a probe only the ACK timer detects it, after many round trips.
//!
//! When no response has arrived for the time that [`RoundTrip`](super::rtt::RoundTrip) gives, the requester sends two
//! packets in flight again, with AckReq: the oldest and the newest. The responder's answer decides what happens next:
//!
//! - The oldest was executed: its duplicate is acknowledged with the newest executed PSN (IBA C9-105).
//! - The oldest is missing, and the NAK or the retransmission was lost: the probe fills the gap. The responder sends
//!   only one NAK per gap, so the newest packet alone would get no answer.
//! - The newest is behind a gap: it gets a NAK.
//!
//! A READ is probed by requesting the missing part of its oldest chunk again, and an atomic by its duplicate, whose
//! response is replayed (IBA C9-110). A READ as the newest packet is not sent again: if the responder has executed it,
//! all its responses would be repeated.
//!
//! A probe is not a retry: it does not go back, and it costs no retry. It repeats packets that are in flight, so it
//! adds nothing to them. Without an ACK timeout there are no probes: the owner has disabled retransmission by time
//! (IBA 9.7.6.1.3).

use core::time::Duration;

use super::queue_pair::Config;
use super::requester::Requester;
use super::segment::packet;
use crate::memory::Memory;
use crate::sequence::Sequence;
use crate::time::Instant;
use crate::transmit::Transmit;
use crate::work::Operation;

#[derive(Debug, Default)]
pub(super) struct Probe {
    /// Last progress, first packet in flight, or last probe.
    since: Instant,
    /// Probes since the last progress or expiry of the ACK timer.
    sent: u8,
    /// Packets to send again.
    packets: [Option<Sequence>; 2],
}

impl Probe {
    /// Probes between two expiries of the ACK timer: with the doubled waits, these cover 64 round trips.
    const MAX: u8 = 6;

    /// The responder answers, or the first packet is sent.
    #[inline]
    pub(super) fn reset(&mut self, now: Instant) {
        self.since = now;
        self.sent = 0;
    }

    /// When to probe, if a response takes `timeout`: the wait doubles with each probe.
    pub(super) fn due(&self, timeout: Duration) -> Option<Instant> {
        (self.sent < Self::MAX).then(|| self.since + timeout * (1 << self.sent))
    }

    pub(super) fn start(&mut self, now: Instant, packets: [Option<Sequence>; 2]) {
        self.since = now;
        self.sent += 1;
        self.packets = packets;
    }

    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        let [first, second] = &self.packets;
        first.is_some() || second.is_some()
    }

    /// The next packet to send again.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Sequence> {
        let [first, second] = &mut self.packets;
        first.take().or_else(|| second.take())
    }

    /// The requester goes back: everything is sent again.
    pub(super) fn cancel(&mut self) {
        self.packets = [None; 2];
    }
}

impl Requester {
    /// When to probe, unless the ACK timer expires earlier.
    pub(super) fn probe_due(&self) -> Option<Instant> {
        let timer = self.timer?;
        // During an RNR wait, the responder is known to be there.
        if self.lossless || self.rnr_wait_until.is_some() || self.unacknowledged >= self.next {
            return None;
        }
        self.probe.due(self.rtt.timeout()).filter(|due| *due < timer)
    }

    pub(super) fn start_probe(&mut self, now: Instant) {
        let newest = self.next.before();
        let index = self.queue.partition_point(|queued| queued.end() <= newest);
        let is_read = self
            .queue
            .get(index)
            .is_some_and(|queued| matches!(queued.request.operation, Operation::Read { .. }));
        let newest = Some(newest).filter(|newest| *newest > self.unacknowledged && !is_read);
        self.probe.start(now, [Some(self.unacknowledged), newest]);
        self.rtt.cancel();
    }

    /// Position of the next packet of a probe that is still in flight.
    #[inline]
    pub(super) fn next_probe(&mut self) -> Option<Sequence> {
        while let Some(sequence) = self.probe.take() {
            if self.rnr_wait_until.is_none() && self.is_in_flight(sequence) {
                return Some(sequence);
            }
        }
        None
    }

    fn is_in_flight(&self, sequence: Sequence) -> bool {
        self.unacknowledged <= sequence && sequence < self.next
    }

    /// A packet in flight once more, with AckReq; of a READ, the request for the rest of its chunk.
    pub(super) fn packet_in_flight<M: Memory>(
        &self,
        sequence: Sequence,
        config: &Config,
    ) -> Option<Transmit<'_>> {
        if !self.is_in_flight(sequence) {
            return None;
        }
        let index = self.queue.partition_point(|queued| queued.end() <= sequence);
        let queued = self.queue.get(index)?;
        let from = sequence.since(queued.start);
        let wants_response = queued.request.operation.wants_response();
        let to = if wants_response { self.chunk_end(queued, from) } else { from + 1 };
        let transmit = packet(queued, from..to, sequence.psn(), true, config);
        Some(self.staging.with_payload::<M>(transmit, sequence, config.mtu))
    }
}
