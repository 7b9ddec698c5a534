//! Flow control per destination: the bytes in flight to a receiver fit into its socket buffer, however many QPs send to
//! it (ADR 17).
//!
//! Go-back-N repeats everything behind a packet that was dropped. There is a pool of credit for each [`Receiver`], which
//! the QPs that send there share. READ responses arrive at this process's own socket and have a pool of their own.
//!
//! A QP that is served without credit waits in the pool's queue. Credit that comes back, with an ACK or when a QP goes
//! back or fails, resumes the QP at the head. The last packet of a quantum requests an ACK, so credit always comes back.

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ferroce_proto::budget::{Budget, InFlight};
use ferroce_proto::congestion::Window;

use super::ledger::Ledger;
use super::member::{Member, NOT_WAITING, PoolId, RESUMED, RESUMED_OWN, WAITING};
use crate::handle::{Handle, Schedulable};
use crate::receiver::Receiver;
use crate::schedule::Schedule;
use crate::tuning::pools::{GROWTH_STEPS, MIN_LIMIT, QUANTUM_PACKETS};

/// The cost of the largest packet.
pub(super) const PACKET: usize = Window::MIN_SIZE;

/// The pool of this process's own receive buffer.
const OWN: PoolId = PoolId(0);

/// The pools of all receivers.
#[derive(Debug)]
pub(super) struct Pools<Q> {
    /// The size of each pool.
    share: usize,
    ids: BTreeMap<Receiver, PoolId>,
    pools: Vec<Pool<Q>>,
}

#[derive(Debug)]
struct Pool<Q> {
    /// The limit without losses.
    full: usize,
    limit: usize,
    used: usize,
    /// Bytes of UC and UD in flight to the receiver: see [`super::windows`].
    unacknowledged: usize,
    /// QPs that wait for credit, in FIFO order, and how much each needs.
    waiting: VecDeque<(Q, usize)>,
    /// Credit set aside for QPs that were resumed and have not been served.
    reserved: usize,
    /// The state of a QP that this pool resumes.
    resumes_as: u8,
    /// Bytes acknowledged since the limit last grew.
    acknowledged: usize,
    /// Bytes that were in flight at the last cut and are not acknowledged: further losses among them do not cut again.
    cut: usize,
    ledger: Ledger<Q>,
}

impl<Q: Handle> Pools<Q> {
    /// `share`: how much may be in flight to one receiver.
    pub(super) fn new(share: usize) -> Self {
        Self { share, ids: BTreeMap::new(), pools: vec![Pool::new(share, RESUMED_OWN)] }
    }

    /// What a QP that is served may send. It has left the pool of any other receiver.
    #[inline]
    pub(super) fn budget(
        &mut self,
        queue_pair: &Q,
        member: &mut Member,
        receiver: Option<Receiver>,
    ) -> Budget {
        if let (None, Some(receiver)) = (member.receiver, receiver) {
            member.receiver = Some((receiver, self.pool_of(receiver)));
        }
        let reserved = queue_pair.marks().credit.take_reserved();
        let own = self.pools[OWN.0].take(queue_pair, reserved.own);
        let peer = member.receiver.map(|(_, id)| self.pools[id.0].take(queue_pair, reserved.peer));
        Budget { peer: peer.unwrap_or(usize::MAX), own }
    }

    fn pool_of(&mut self, receiver: Receiver) -> PoolId {
        let next = PoolId(self.pools.len());
        let id = *self.ids.entry(receiver).or_insert(next);
        if id == next {
            self.pools.push(Pool::new(self.share, RESUMED));
        }
        id
    }

    /// The bytes of RC in flight to a receiver.
    #[inline]
    pub(super) fn in_flight_to(&self, receiver: Receiver) -> usize {
        self.ids.get(&receiver).map_or(0, |id| self.pools[id.0].used)
    }

    /// Counts the bytes of UC and UD in flight to a receiver.
    #[inline]
    pub(super) fn set_unacknowledged(
        &mut self,
        receiver: Receiver,
        bytes: usize,
        schedule: &mut Schedule<Q>,
    ) {
        let id = self.pool_of(receiver);
        self.pools[id.0].unacknowledged = bytes;
        self.pools[id.0].resume(schedule);
    }

    #[inline]
    pub(super) fn update(
        &mut self,
        queue_pair: &Q,
        member: &mut Member,
        in_flight: InFlight,
        schedule: &mut Schedule<Q>,
    ) {
        // Nobody would return what is charged to a QP that has left: packets for it may still come while it is destroyed.
        let Some((_, id)) = member.receiver else { return };
        let before = core::mem::replace(&mut member.charged, in_flight);
        if before.peer != in_flight.peer {
            self.pools[id.0].charge(queue_pair, before.peer, in_flight.peer);
        }
        if before.own != in_flight.own {
            self.pools[OWN.0].charge(queue_pair, before.own, in_flight.own);
        }
        self.pools[id.0].resume(schedule);
        self.pools[OWN.0].resume(schedule);
    }

    pub(super) fn wait(
        &mut self,
        queue_pair: &Q,
        member: &Member,
        needs: InFlight,
        schedule: &mut Schedule<Q>,
    ) -> bool {
        let id = if needs.own > 0 { OWN } else { member.receiver.map_or(OWN, |(_, id)| id) };
        let pool = &mut self.pools[id.0];
        let bytes = needs.own.max(needs.peer);
        debug_assert!(member.has_joined(), "it could not leave the queue");
        let waiting = &queue_pair.marks().credit;
        if waiting.state() != NOT_WAITING {
            return true;
        }
        if pool.waiting.is_empty() && pool.free().min(pool.limit) >= bytes {
            return false;
        }
        waiting.state.store(WAITING, Ordering::Relaxed);
        pool.waiting.push_back((queue_pair.clone(), bytes));
        // With nothing in flight no ACK would resume it: a READ may be larger than the pool.
        pool.resume(schedule);
        true
    }

    pub(super) fn on_loss(&mut self, member: &Member, response: bool) {
        if let Some((_, id)) = member.receiver {
            self.pools[if response { OWN.0 } else { id.0 }].cut();
        }
    }

    pub(super) fn leave(
        &mut self,
        queue_pair: &Q,
        member: &mut Member,
        schedule: &mut Schedule<Q>,
    ) {
        let waiting = &queue_pair.marks().credit;
        let reserved = waiting.take_reserved();
        let charged = core::mem::take(&mut member.charged);
        let peer = member.receiver.take().map(|(_, id)| id);
        let own = (Some(OWN), reserved.own, charged.own);
        for (id, reserved, charged) in [own, (peer, reserved.peer, charged.peer)] {
            let Some(id) = id else { continue };
            let pool = &mut self.pools[id.0];
            pool.release(queue_pair, reserved);
            pool.charge(queue_pair, charged, 0);
            if waiting.state() == WAITING {
                pool.waiting.retain(|(one, _)| one.number() != queue_pair.number());
            }
            pool.resume(schedule);
        }
        waiting.state.store(NOT_WAITING, Ordering::Relaxed);
    }

    /// The bytes of UC and UD that are counted for a receiver.
    pub(super) fn unacknowledged(&self, receiver: Receiver) -> usize {
        self.ids.get(&receiver).map_or(0, |id| self.pools[id.0].unacknowledged)
    }

    pub(super) fn in_use(&self) -> usize {
        self.pools.iter().map(|pool| pool.used + pool.reserved).sum()
    }

    pub(super) fn waiting(&self) -> usize {
        self.pools.iter().map(|pool| pool.waiting.len()).sum()
    }

    pub(super) fn check_invariants(&self) {
        self.pools.iter().for_each(Pool::check_invariants);
    }
}

impl<Q: Handle> Pool<Q> {
    fn new(full: usize, resumes_as: u8) -> Self {
        Self {
            full,
            limit: full,
            used: 0,
            unacknowledged: 0,
            waiting: VecDeque::new(),
            reserved: 0,
            resumes_as,
            acknowledged: 0,
            cut: 0,
            ledger: Ledger::default(),
        }
    }

    /// Credit that is neither in flight nor set aside. With nothing in flight it has no bound, because no ACK would
    /// resume a QP whose READ is larger than the pool. UC and UD leave RC at least a half, and RC them.
    #[inline]
    fn free(&self) -> usize {
        match (self.used + self.reserved, self.unacknowledged.min(self.limit / 2)) {
            (0, 0) => usize::MAX,
            (taken, others) => self.limit.saturating_sub(taken + others),
        }
    }

    /// The credit of a resumed QP: a quarter of a small pool, so that several QPs have packets in flight.
    fn quantum(&self) -> usize {
        (self.limit / 4).clamp(PACKET, QUANTUM_PACKETS * PACKET)
    }

    /// The budget of a QP that is served, for which this much was set aside.
    #[inline]
    fn take(&mut self, queue_pair: &Q, reserved: usize) -> usize {
        if reserved > 0 {
            self.release(queue_pair, reserved);
            return reserved;
        }
        if !self.waiting.is_empty() {
            return 0; // Others came first.
        }
        // A QP on its own may fill the pool: it would be served again at once.
        self.free().min(self.limit)
    }

    /// Credit that was set aside for a QP is no longer.
    fn release(&mut self, queue_pair: &Q, reserved: usize) {
        debug_assert!(reserved <= self.reserved, "{reserved} set aside of {}", self.reserved);
        self.reserved = self.reserved.saturating_sub(reserved);
        self.ledger.release(queue_pair, reserved);
    }

    #[inline]
    fn charge(&mut self, queue_pair: &Q, before: usize, after: usize) {
        debug_assert!(before <= self.used, "{before} in flight of {}", self.used);
        self.used = (self.used + after).saturating_sub(before);
        self.ledger.charge(queue_pair, before, after);
        let returned = before.saturating_sub(after);
        if returned == 0 || self.limit == self.full {
            return;
        }
        self.cut = self.cut.saturating_sub(returned);
        self.acknowledged += returned;
        if self.acknowledged >= self.limit {
            self.acknowledged = 0;
            self.limit = (self.limit + self.full / GROWTH_STEPS).min(self.full);
        }
    }

    fn cut(&mut self) {
        if self.cut == 0 {
            self.limit = (self.limit / 2).max(MIN_LIMIT.min(self.full));
            (self.cut, self.acknowledged) = (self.used, 0);
        }
    }

    #[inline]
    fn resume(&mut self, schedule: &mut Schedule<Q>) {
        if !self.waiting.is_empty() {
            self.resume_waiting(schedule);
        }
        debug_assert!({
            self.check_invariants();
            true
        });
    }

    fn resume_waiting(&mut self, schedule: &mut Schedule<Q>) {
        while let Some(&(_, needs)) = self.waiting.front() {
            let bytes = needs.max(self.quantum());
            if self.free() < bytes {
                return;
            }
            let Some((queue_pair, _)) = self.waiting.pop_front() else { return };
            let waiting = &queue_pair.marks().credit;
            waiting.reserved.store(bytes, Ordering::Relaxed);
            waiting.state.store(self.resumes_as, Ordering::Relaxed);
            self.reserved += bytes;
            self.ledger.reserve(&queue_pair, bytes);
            schedule.push(queue_pair);
        }
    }

    /// Panics if the pool counts credit that no member holds, if a QP waits without its mark, or if the QP at the head waits
    /// although there is credit for it.
    fn check_invariants(&self) {
        self.ledger.check(self.used, self.reserved);
        let Some((first, needs)) = self.waiting.front() else { return };
        let (number, state) = (first.number().0, first.marks().credit.state());
        assert_eq!(state, WAITING, "QP {number:#x} is in the queue of a pool and does not wait");
        let (free, bytes) = (self.free(), (*needs).max(self.quantum()));
        assert!(
            free < bytes,
            "QP {number:#x} waits for {bytes} bytes of credit, and {free} are free"
        );
    }
}
