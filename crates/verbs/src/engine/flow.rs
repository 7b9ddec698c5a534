//! Flow control per destination: the bytes in flight to a receiver fit into its socket buffer, however many QPs send to
//! it (ADR 0017).
//!
//! A socket drops what does not fit into its receive buffer, and go-back-N repeats everything behind it. All QPs of a
//! process receive from one socket, so the limit is per process: a pool of credit for each pair of address and slot,
//! which the QPs that send there share in turns. READ responses arrive at this process's own socket and have a pool of
//! their own.
//!
//! A QP whose turn ends without credit waits in the pool's queue. Credit that comes back, with an ACK or when a QP goes
//! back or fails, resumes the QP at the head. The last packet of a turn requests an ACK, so credit always comes back.

#[cfg(test)]
pub(super) mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use ferroce_proto::budget::{Budget, InFlight};
use ferroce_proto::congestion::Window;
use ferroce_wire::number::Qpn;

use super::queue_pair::Core;

/// The cost of the largest packet.
const PACKET: usize = Window::MIN_SIZE;

/// Packets in one turn of a QP. More would make the others wait, fewer would cost more ACKs and system calls.
const TURN_PACKETS: usize = 16;

/// A pool shrinks no further than this: less does not fill a fast link.
const MIN_LIMIT: usize = 256 << 10;

/// Steps in which a pool that shrank grows back to its full size, one for each limit's worth of acknowledged bytes.
const GROWTH_STEPS: usize = 32;

/// A socket that receives: an address, and the slot of the process there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Receiver {
    pub(super) host: IpAddr,
    pub(super) slot: u8,
}

impl Receiver {
    pub(super) fn new(host: IpAddr, number: Qpn) -> Self {
        Self { host, slot: (number.0 >> 16) as u8 }
    }
}

/// A pool by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PoolId(usize);

/// The pool of this process's own receive buffer.
const OWN: PoolId = PoolId(0);

/// The state of a QP in the flow control.
#[derive(Debug, Default)]
pub(crate) struct Member {
    receiver: Option<(Receiver, PoolId)>,
    /// The bytes that the pools count for it.
    charged: InFlight,
}

impl Member {
    /// Whether a pool counts the QP.
    #[inline]
    pub(super) fn has_joined(&self) -> bool {
        self.receiver.is_some()
    }
}

/// Whether a QP waits for credit. In [`Core`], because a QP is resumed while another one is locked.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    state: AtomicU8,
    /// The credit that is set aside for a resumed QP.
    reserved: AtomicUsize,
}

const NOT_WAITING: u8 = 0;
/// In the queue of a pool.
const WAITING: u8 = 1;
/// Credit of the peer's pool, or of this process's own, is set aside for its next turn.
const RESUMED: u8 = 2;
const RESUMED_OWN: u8 = 3;

impl Waiting {
    fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    /// Takes the credit that was set aside: for the peer's buffer, and for the own one.
    fn take_reserved(&self) -> InFlight {
        let bytes = self.reserved.swap(0, Ordering::Relaxed);
        match self.state() {
            RESUMED => {
                self.state.store(NOT_WAITING, Ordering::Relaxed);
                InFlight { peer: bytes, own: 0 }
            }
            RESUMED_OWN => {
                self.state.store(NOT_WAITING, Ordering::Relaxed);
                InFlight { peer: 0, own: bytes }
            }
            _ => InFlight::NONE,
        }
    }
}

#[derive(Debug)]
pub(super) struct Flow {
    /// The size of each pool.
    share: usize,
    ids: HashMap<Receiver, PoolId>,
    pools: Vec<Pool>,
}

#[derive(Debug)]
struct Pool {
    /// The limit without losses.
    full: usize,
    limit: usize,
    used: usize,
    /// Bytes of UC and UD in flight to the receiver: see [`super::local_flow`].
    unacknowledged: usize,
    /// QPs that wait for credit, in the order of their turns, and how much each needs.
    waiting: VecDeque<(Arc<Core>, usize)>,
    /// Credit set aside for QPs that were resumed and have not had their turn.
    reserved: usize,
    /// The state of a QP that this pool resumes.
    resumes_as: u8,
    /// Bytes acknowledged since the limit last grew.
    acknowledged: usize,
    /// Bytes that were in flight at the last cut and are not acknowledged: further losses among them are no news.
    cut: usize,
}

impl Flow {
    /// `share`: how much may be in flight to one receiver.
    pub(super) fn new(share: usize) -> Self {
        let share = share.max(2 * PACKET);
        Self { share, ids: HashMap::new(), pools: vec![Pool::new(share, RESUMED_OWN)] }
    }

    /// What a QP may send in its turn.
    pub(super) fn budget(
        &mut self,
        core: &Core,
        member: &mut Member,
        receiver: Option<Receiver>,
        resume: &mut impl FnMut(Arc<Core>),
    ) -> Budget {
        self.join(core, member, receiver, resume);
        let reserved = core.waiting.take_reserved();
        let own = self.pools[OWN.0].turn(reserved.own);
        let peer = member.receiver.map(|(_, id)| self.pools[id.0].turn(reserved.peer));
        Budget { peer: peer.unwrap_or(usize::MAX), own }
    }

    /// Assigns the QP to the pool of its receiver. When it was connected to another one, it leaves that pool.
    fn join(
        &mut self,
        core: &Core,
        member: &mut Member,
        receiver: Option<Receiver>,
        resume: &mut impl FnMut(Arc<Core>),
    ) {
        if member.receiver.map(|(receiver, _)| receiver) != receiver {
            self.leave(core, member, resume);
            member.receiver = receiver.map(|receiver| (receiver, self.pool_of(receiver)));
        }
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
    pub(super) fn in_flight_to(&self, receiver: Receiver) -> usize {
        self.ids.get(&receiver).map_or(0, |id| self.pools[id.0].used)
    }

    /// Counts the bytes of UC and UD in flight to a receiver.
    pub(super) fn set_unacknowledged(
        &mut self,
        receiver: Receiver,
        bytes: usize,
        resume: &mut impl FnMut(Arc<Core>),
    ) {
        let id = self.pool_of(receiver);
        self.pools[id.0].unacknowledged = bytes;
        self.pools[id.0].resume(resume);
    }

    /// Brings the pools up to date after anything happened to a QP, and resumes QPs that wait for the credit that came
    /// back.
    pub(super) fn update(
        &mut self,
        member: &mut Member,
        in_flight: InFlight,
        resume: &mut impl FnMut(Arc<Core>),
    ) {
        let before = std::mem::replace(&mut member.charged, in_flight);
        if before.peer != in_flight.peer {
            if let Some((_, id)) = member.receiver {
                self.pools[id.0].charge(before.peer, in_flight.peer);
            }
        }
        if before.own != in_flight.own {
            self.pools[OWN.0].charge(before.own, in_flight.own);
        }
        if let Some((_, id)) = member.receiver {
            self.pools[id.0].resume(resume);
        }
        self.pools[OWN.0].resume(resume);
    }

    /// Makes a QP wait whose next packet needs this much credit. Returns false if its next turn would have as much, so
    /// that it may try again.
    pub(super) fn wait(
        &mut self,
        core: &Arc<Core>,
        member: &Member,
        needs: InFlight,
        resume: &mut impl FnMut(Arc<Core>),
    ) -> bool {
        let id = if needs.own > 0 { OWN } else { member.receiver.map_or(OWN, |(_, id)| id) };
        let pool = &mut self.pools[id.0];
        let bytes = needs.own.max(needs.peer);
        debug_assert!(member.has_joined(), "it could not leave the queue");
        if core.waiting.state() != NOT_WAITING {
            return true;
        }
        if pool.waiting.is_empty() && pool.free().min(pool.limit) >= bytes {
            return false;
        }
        core.waiting.state.store(WAITING, Ordering::Relaxed);
        pool.waiting.push_back((Arc::clone(core), bytes));
        // With nothing in flight no ACK would resume it: a READ may be larger than the pool.
        pool.resume(resume);
        true
    }

    /// A packet of the QP, or a response to it, was lost.
    pub(super) fn on_loss(&mut self, member: &Member, response: bool) {
        let id = if response { Some(OWN) } else { member.receiver.map(|(_, id)| id) };
        if let Some(id) = id {
            self.pools[id.0].cut();
        }
    }

    /// Takes a QP out of its pools when it is reset, destroyed, connected elsewhere or sends through a ring, and resumes
    /// those that wait for its credit. What the pools count for it, in flight or set aside, must be returned to these pools,
    /// so this comes before it joins others.
    pub(super) fn leave(
        &mut self,
        core: &Core,
        member: &mut Member,
        resume: &mut impl FnMut(Arc<Core>),
    ) {
        let reserved = core.waiting.take_reserved();
        let charged = std::mem::take(&mut member.charged);
        let peer = member.receiver.take().map(|(_, id)| id);
        let own = (Some(OWN), reserved.own, charged.own);
        for (id, reserved, charged) in [own, (peer, reserved.peer, charged.peer)] {
            let Some(id) = id else { continue };
            let pool = &mut self.pools[id.0];
            pool.reserved = pool.reserved.saturating_sub(reserved);
            pool.charge(charged, 0);
            if core.waiting.state() == WAITING {
                pool.waiting.retain(|(one, _)| one.number != core.number);
            }
            pool.resume(resume);
        }
        core.waiting.state.store(NOT_WAITING, Ordering::Relaxed);
    }
}

impl Pool {
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
        }
    }

    /// Credit that is neither in flight nor set aside. With nothing in flight it has no bound, because no ACK would
    /// resume a QP whose READ is larger than the pool. UC and UD leave RC at least a half, and RC them.
    fn free(&self) -> usize {
        match (self.used + self.reserved, self.unacknowledged.min(self.limit / 2)) {
            (0, 0) => usize::MAX,
            (taken, others) => self.limit.saturating_sub(taken + others),
        }
    }

    /// The credit of one turn: a quarter of a small pool, so that several QPs have packets in flight.
    fn turn_size(&self) -> usize {
        (self.limit / 4).clamp(PACKET, TURN_PACKETS * PACKET)
    }

    /// The budget of a QP whose turn begins, for which this much was set aside.
    fn turn(&mut self, reserved: usize) -> usize {
        debug_assert!(reserved <= self.reserved, "{reserved} set aside: {self:?}");
        self.reserved = self.reserved.saturating_sub(reserved);
        if reserved > 0 {
            return reserved;
        }
        if !self.waiting.is_empty() {
            return 0; // Others came first.
        }
        // A QP on its own may fill the pool: its next turn would follow at once.
        self.free().min(self.limit)
    }

    fn charge(&mut self, before: usize, after: usize) {
        debug_assert!(before <= self.used, "{before} in flight: {self:?}");
        self.used = (self.used + after).saturating_sub(before);
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

    fn resume(&mut self, resume: &mut impl FnMut(Arc<Core>)) {
        while let Some(&(_, needs)) = self.waiting.front() {
            let bytes = needs.max(self.turn_size());
            if self.free() < bytes {
                return;
            }
            let Some((core, _)) = self.waiting.pop_front() else { return };
            core.waiting.reserved.store(bytes, Ordering::Relaxed);
            core.waiting.state.store(self.resumes_as, Ordering::Relaxed);
            self.reserved += bytes;
            resume(core);
        }
    }
}
