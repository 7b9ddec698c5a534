//! A program that posts its requests over time, in lists of a few. Requests may be held back, as by the engine of the
//! verbs: nothing polls the QP until a packet for it arrives, its timer expires, or a later post rings the doorbell.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

use ferroce_device::QueuePair;
use ferroce_device::memory_queue::MemoryQueue;
use ferroce_proto::doorbell::Ring;
use ferroce_proto::time::Instant;
use ferroce_proto::work::SendRequest;

use crate::random::Random;

#[derive(Debug)]
pub(in crate::rdma) struct Poster {
    /// The lists that were not posted yet, in order.
    lists: VecDeque<(Instant, Vec<SendRequest>)>,
    /// Requests that were held back so far.
    pub(in crate::rdma) held: u64,
}

impl Poster {
    /// Draws the lists and their times; the first is due now.
    pub(super) fn new(work: Vec<SendRequest>, now: Instant, random: &mut Random) -> Self {
        let mut lists = VecDeque::new();
        let mut due = now;
        let mut work = work.into_iter().peekable();
        while work.peek().is_some() {
            let length = random.between(1..=3) as usize;
            lists.push_back((due, work.by_ref().take(length).collect()));
            // Mostly less than a round trip, so that packets are in flight; sometimes more than the ACK timeout.
            let longest = if random.below(8) == 0 { 2_000_000 } else { 3_000 };
            due = due + Duration::from_nanos(random.between(1..=longest));
        }
        Self { lists, held: 0 }
    }

    /// Returns when the next list is posted.
    pub(super) fn due(&self) -> Option<Instant> {
        self.lists.front().map(|(due, _)| *due)
    }

    /// Posts the lists that are due. Returns whether the QP is to be polled for packets.
    pub(super) fn post_due(
        &mut self,
        now: Instant,
        qp: &mut QueuePair<Ipv4Addr, MemoryQueue>,
    ) -> bool {
        let mut rings = false;
        while self.due().is_some_and(|due| due <= now) {
            let Some((_, list)) = self.lists.pop_front() else { break };
            rings |= self.post(list, qp) == Ring::Now;
        }
        rings
    }

    fn post(&mut self, list: Vec<SendRequest>, qp: &mut QueuePair<Ipv4Addr, MemoryQueue>) -> Ring {
        let count = list.len();
        let bytes = list.iter().map(|request| request.data.len()).sum();
        for request in list {
            // The SQ has capacity for all of the program, and all lengths are valid.
            let _ = qp.endpoint.post_send(request);
        }
        let ring = qp.doorbell.post(count, bytes, qp.endpoint.has_unacknowledged());
        if ring == Ring::Later {
            self.held += count as u64;
        }
        ring
    }
}
