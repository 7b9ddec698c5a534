//! QPs that wait for room in a transmit queue: it bounds what may be in flight to its receiver by its own size, so that
//! packets in it need no credit.

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};

use ferroce_proto::time::Instant;

use crate::handle::{Handle, Schedulable};
use crate::schedule::Schedule;
use crate::tuning::transmit_queues::PATIENCE;

/// The full transmit queues, by number.
#[derive(Debug)]
pub(super) struct Room<Q> {
    full: BTreeMap<u64, Full<Q>>,
}

#[derive(Debug)]
struct Full<Q> {
    /// QPs with more to send, in FIFO order.
    waiting: VecDeque<Q>,
    /// Since when datagrams have found it full; `None` if the last one found room.
    full_since: Option<Instant>,
}

impl<Q> Default for Room<Q> {
    fn default() -> Self {
        Self { full: BTreeMap::new() }
    }
}

impl<Q> Default for Full<Q> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), full_since: None }
    }
}

impl<Q: Handle> Room<Q> {
    pub(super) fn wait(&mut self, queue_pair: &Q, queue: u64) {
        debug_assert!(queue != 0, "0 is no queue");
        if queue_pair.marks().room.get() != queue {
            self.leave(queue_pair);
            queue_pair.marks().room.set(queue);
            self.full.entry(queue).or_default().waiting.push_back(queue_pair.clone());
        }
        debug_assert!({
            self.check_invariants();
            true
        });
    }

    pub(super) fn resume(&mut self, queue: u64, most: usize, schedule: &mut Schedule<Q>) -> bool {
        let Some(full) = self.full.get_mut(&queue) else { return false };
        full.full_since = None;
        for queue_pair in full.waiting.drain(..most.min(full.waiting.len())) {
            queue_pair.marks().room.set(0);
            schedule.push(queue_pair);
        }
        let waits = !full.waiting.is_empty();
        if !waits {
            self.full.remove(&queue);
        }
        debug_assert!({
            self.check_invariants();
            true
        });
        waits
    }

    /// Removes a QP from the queue in which it waits.
    #[inline]
    pub(super) fn leave(&mut self, queue_pair: &Q) {
        let queue = queue_pair.marks().room.get();
        if queue == 0 {
            return;
        }
        queue_pair.marks().room.set(0);
        if let Some(full) = self.full.get_mut(&queue) {
            full.waiting.retain(|waiting| waiting.number() != queue_pair.number());
        }
    }

    pub(super) fn is_stalled(&mut self, queue: u64, now: Instant) -> bool {
        let since = *self.full.entry(queue).or_default().full_since.get_or_insert(now);
        now.since(since) >= PATIENCE
    }

    #[inline]
    pub(super) fn found(&mut self, queue: u64) {
        if let Some(full) = self.full.get_mut(&queue) {
            full.full_since = None;
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.full.values().map(|full| full.waiting.len()).sum()
    }

    /// Panics if the QP at an end of a queue does not know that it is there: it would be queued again.
    pub(super) fn check_invariants(&self) {
        for (queue, full) in &self.full {
            for queue_pair in [full.waiting.front(), full.waiting.back()].into_iter().flatten() {
                let (number, awaited) = (queue_pair.number().0, queue_pair.marks().room.get());
                assert_eq!(
                    awaited, *queue,
                    "the transmit queue that QP {number:#x} waits for, and its own"
                );
            }
        }
    }
}
