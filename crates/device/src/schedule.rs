//! The QPs to serve: those with packets to send, those that owe ACKs, and those whose timer expires. Idle QPs cost
//! nothing.

#[cfg(test)]
mod tests;

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use ferroce_proto::endpoint::Pending;
use ferroce_proto::time::Instant;
use ferroce_sync::PostedQueue;
use ferroce_wire::number::Qpn;

use crate::handle::{Handle, Membership, Schedulable};

/// The queues and timers of a device, by the handles of its QPs.
#[derive(Debug)]
pub struct Schedule<Q> {
    /// QPs that may have packets to send.
    ready: VecDeque<Q>,
    /// QPs that have only positive ACKs to send, which may be sent with the next packets.
    owed: Vec<Q>,
    /// Timers by QPN. An entry whose timer was postponed is detected when it expires.
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl<Q> Default for Schedule<Q> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), owed: Vec::new(), timers: BinaryHeap::new() }
    }
}

impl<Q: Handle> Schedule<Q> {
    /// Queues a QP for transmission.
    #[inline]
    pub fn push(&mut self, queue_pair: Q) {
        if queue_pair.marks().enqueue() {
            self.ready.push_back(queue_pair);
        }
    }

    /// Queues a QP before all others.
    pub fn push_front(&mut self, queue_pair: Q) {
        if queue_pair.marks().enqueue() {
            self.ready.push_front(queue_pair);
        }
    }

    /// Queues the QPs that other threads have queued.
    #[inline]
    pub fn take_posted(&mut self, posted: &PostedQueue<Q>) {
        posted.move_to(&mut self.ready);
    }

    /// Removes the next QP to serve. A later [`Schedule::push`] queues it again.
    #[inline]
    pub fn pop(&mut self) -> Option<Q> {
        let queue_pair = self.ready.pop_front()?;
        queue_pair.marks().dequeue();
        Some(queue_pair)
    }

    /// Whether a QP may have packets to send.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Queues a QP that received packets, if it has something to send.
    #[inline]
    pub fn received(&mut self, queue_pair: &Q, pending: Pending) {
        match pending {
            Pending::Nothing => {}
            Pending::Ack => {
                if !queue_pair.marks().set_owes(true) {
                    self.owed.push(queue_pair.clone());
                }
            }
            Pending::Urgent => self.push(queue_pair.clone()),
        }
    }

    /// Queues the QPs that owe ACKs, after everything that is queued already.
    #[inline]
    pub fn release_owed(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        for queue_pair in self.owed.drain(..) {
            queue_pair.marks().set_owes(false);
            if queue_pair.marks().enqueue() {
                self.ready.push_back(queue_pair);
            }
        }
    }

    /// Whether a QP owes ACKs that [`Schedule::release_owed`] has not queued.
    #[inline]
    pub fn owes_acks(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Sets the timer of a QP, unless it already expires earlier. A timer that moved to an earlier time gets a second
    /// entry in the heap; one that moved to a later time is set again when its entry expires.
    #[inline]
    pub fn set_timer(&mut self, queue_pair: &Q, member: &mut Membership, time: Option<Instant>) {
        let Some(time) = time else { return };
        if member.timer.is_none_or(|standing| time < standing) {
            member.timer = Some(time);
            self.timers.push(Reverse((time, queue_pair.number().0)));
        }
    }

    /// When the next timer expires.
    #[inline]
    pub fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((time, _))| *time)
    }

    /// Removes the next expired entry, and returns its time and QPN. It is that QP's timer if [`Membership::take_timer`]
    /// says so; then the caller sets its next one.
    pub fn pop_timer(&mut self, now: Instant) -> Option<(Instant, Qpn)> {
        let &Reverse((time, number)) = self.timers.peek().filter(|entry| entry.0.0 <= now)?;
        self.timers.pop();
        Some((time, Qpn(number)))
    }

    /// Panics if nothing will serve a QP that has something to send: it is not queued, waits for neither credit nor room, and no
    /// ACK that was requested and no timer will queue it. `pending` and `timeout` are those of its transport, and `awaits_ack`
    /// whether its peer owes it an ACK or a response, until which a doorbell may hold requests back.
    pub fn check_served(
        queue_pair: &Q,
        member: &Membership,
        pending: Pending,
        timeout: Option<Instant>,
        awaits_ack: bool,
    ) {
        let (number, marks) = (queue_pair.number().0, queue_pair.marks());
        if marks.is_queued() || member.window.is_some() || marks.waits() {
            return;
        }
        let timer = member.timer;
        assert!(
            timeout.is_none_or(|time| member.is_armed(time)),
            "QP {number:#x} has a timer for {timeout:?}, and an entry for {timer:?}"
        );
        let is_served = match pending {
            Pending::Nothing => true,
            Pending::Ack => marks.owes() || timer.is_some(),
            Pending::Urgent => awaits_ack || timer.is_some(),
        };
        assert!(is_served, "QP {number:#x} has something to send ({pending:?}), and is not queued");
    }

    /// Panics if a QP is in a list without its mark, in which case it would be queued twice, or if a timer has no entry in
    /// the heap. Of long lists only the ends are checked.
    pub fn check_invariants(&self) {
        let ends =
            |length: usize| (0..length.min(8)).chain(length.saturating_sub(8).max(8)..length);
        for queue_pair in ends(self.ready.len()).filter_map(|index| self.ready.get(index)) {
            let number = queue_pair.number().0;
            assert!(queue_pair.marks().is_queued(), "QP {number:#x} is queued without its mark");
        }
        for queue_pair in ends(self.owed.len()).filter_map(|index| self.owed.get(index)) {
            let number = queue_pair.number().0;
            assert!(queue_pair.marks().owes(), "QP {number:#x} owes ACKs without its mark");
        }
    }
}
