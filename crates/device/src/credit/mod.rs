//! Credit: whether a queue pair may send to a receiver now.
//!
//! A socket drops what does not fit into its receive buffer, and the sender is not told. All QPs of a process receive
//! from the same buffer, so what may be in flight is counted for each receiving process, whoever sends to it (ADR 17):
//!
//! - pools: packets that are acknowledged (RC, XRC). A QP gets a budget when it is served, and what it has in flight is
//!   charged to the pool of its receiver.
//! - windows: packets that are not (UC, UD), between processes of one host (ADR 10). Probes follow them, and the
//!   receiver acknowledges these.
//! - room: packets that leave through a transmit queue of a limited size, which the peer reads.
//!
//! A QP that may not send waits in a queue, and what comes back pushes it to the [`Schedule`]. Of one buffer,
//! acknowledged and other packets leave each other at least a half.

mod ledger;
pub(crate) mod member;
mod pools;
pub mod probe;
mod room;
#[cfg(test)]
mod tests;
mod windows;

use ferroce_proto::budget::{Budget, InFlight};
use ferroce_proto::time::Instant;

use crate::handle::{Handle, Membership};
pub use crate::receiver::Receiver;
use crate::schedule::Schedule;
use pools::{PACKET, Pools};
use probe::ProbePacket;
use room::Room;
use windows::Windows;

/// The credit of a device towards all receivers, for QPs with handles `Q` and probes with routes `R`.
#[derive(Debug)]
pub struct Credit<Q, R> {
    pools: Pools<Q>,
    windows: Windows<Q, R>,
    room: Room<Q>,
}

impl<Q: Handle, R: Copy> Credit<Q, R> {
    /// `share`: how many bytes may be in flight to one receiver, as [`cost`](ferroce_proto::congestion::cost) counts
    /// them. `slot`: this process's own.
    pub fn new(share: usize, slot: u8) -> Self {
        let share = share.max(2 * PACKET);
        Self {
            pools: Pools::new(share),
            windows: Windows::new(share as u64, slot),
            room: Room::default(),
        }
    }

    /// What a QP that is served may send to its receiver. Call [`Credit::update`] after it has sent.
    #[inline]
    pub fn budget(
        &mut self,
        queue_pair: &Q,
        member: &mut Membership,
        receiver: Option<Receiver>,
        schedule: &mut Schedule<Q>,
    ) -> Budget {
        if !member.credit.is_of(receiver) {
            self.leave(queue_pair, member, schedule);
        }
        self.pools.budget(queue_pair, &mut member.credit, receiver)
    }

    /// Updates the pools after anything happened to a QP, and resumes QPs that wait for the credit that came back. A QP that
    /// has left is not charged until it gets a budget again.
    #[inline]
    pub fn update(
        &mut self,
        queue_pair: &Q,
        member: &mut Membership,
        in_flight: InFlight,
        schedule: &mut Schedule<Q>,
    ) {
        self.pools.update(queue_pair, &mut member.credit, in_flight, schedule);
    }

    /// Makes a QP wait whose next packet needs this much credit. Returns false if its next budget would be enough, so that
    /// it may try again.
    pub fn wait(
        &mut self,
        queue_pair: &Q,
        member: &Membership,
        needs: InFlight,
        schedule: &mut Schedule<Q>,
    ) -> bool {
        self.pools.wait(queue_pair, &member.credit, needs, schedule)
    }

    /// A packet of the QP, or a response to it, was lost.
    pub fn on_loss(&mut self, member: &Membership, response: bool) {
        self.pools.on_loss(&member.credit, response);
    }

    /// Removes a QP when it is reset, destroyed, connected elsewhere or sends by another way, and resumes those that wait
    /// for its credit. What the pools count for it, in flight or set aside, must be returned to these pools, so this comes
    /// before it joins others.
    pub fn leave(&mut self, queue_pair: &Q, member: &mut Membership, schedule: &mut Schedule<Q>) {
        self.pools.leave(queue_pair, &mut member.credit, schedule);
        self.windows.leave(queue_pair, &mut member.window);
        self.room.leave(queue_pair);
    }

    /// Whether a QP must wait before it sends a packet that is not acknowledged. If so, it is resumed when the window of
    /// the receiver opens; QPs that have not `sent` anything in the current window are resumed first.
    #[inline]
    pub fn must_wait(
        &mut self,
        queue_pair: &Q,
        member: &mut Membership,
        receiver: Receiver,
        sent: bool,
    ) -> bool {
        let others = self.pools.in_flight_to(receiver);
        self.windows.must_wait(receiver, others, queue_pair, &mut member.window, sent)
    }

    /// Counts a packet that is not acknowledged. Returns a probe to send behind it if one is due.
    #[inline]
    pub fn sent(
        &mut self,
        receiver: Receiver,
        route: R,
        length: usize,
        now: Instant,
        schedule: &mut Schedule<Q>,
    ) -> Option<ProbePacket<R>> {
        let probe = self.windows.sent(receiver, route, length, now);
        self.count_unacknowledged(receiver, schedule);
        probe
    }

    /// Handles the acknowledgement of a probe: resumes waiting QPs, and returns the next probe if one is due.
    pub fn handle_probe_ack(
        &mut self,
        receiver: Receiver,
        number: u32,
        now: Instant,
        schedule: &mut Schedule<Q>,
    ) -> Option<ProbePacket<R>> {
        let next = self.windows.handle_probe_ack(receiver, number, now, schedule);
        self.count_unacknowledged(receiver, schedule);
        next
    }

    /// When [`Credit::expire`] is due.
    #[inline]
    pub fn next_timer(&self) -> Option<Instant> {
        self.windows.next_timer()
    }

    /// Repeats unacknowledged probes or gives them up, which counts the packets before them as received.
    pub fn expire(
        &mut self,
        now: Instant,
        schedule: &mut Schedule<Q>,
        send: impl FnMut(ProbePacket<R>),
    ) {
        let opened = self.windows.expire(now, schedule, send);
        opened.into_iter().for_each(|receiver| self.count_unacknowledged(receiver, schedule));
    }

    /// Lets the pool of a receiver count what is in flight to it without acknowledgements.
    #[inline]
    fn count_unacknowledged(&mut self, receiver: Receiver, schedule: &mut Schedule<Q>) {
        let bytes = self.windows.in_flight(receiver) as usize;
        self.pools.set_unacknowledged(receiver, bytes, schedule);
    }

    /// Makes a QP wait until [`Credit::resume`] for a transmit queue, which has any number but 0.
    pub fn wait_for_room(&mut self, queue_pair: &Q, queue: u64) {
        self.room.wait(queue_pair, queue);
    }

    /// Resumes QPs that wait for a transmit queue, in FIFO order and no more than `most`, for which there is room. With
    /// 1,000 QPs, most would find it full again. Returns whether others still wait.
    pub fn resume(&mut self, queue: u64, most: usize, schedule: &mut Schedule<Q>) -> bool {
        self.room.resume(queue, most, schedule)
    }

    /// A datagram has found a transmit queue full. Returns whether it has been full for as long as
    /// [`PATIENCE`](crate::tuning::transmit_queues::PATIENCE), so that datagrams are dropped.
    pub fn is_stalled(&mut self, queue: u64, now: Instant) -> bool {
        self.room.is_stalled(queue, now)
    }

    /// A datagram has found room in a transmit queue.
    #[inline]
    pub fn found_room(&mut self, queue: u64) {
        self.room.found(queue);
    }

    /// The bytes that the pools count: in flight or set aside. None when every QP has left.
    pub fn in_use(&self) -> usize {
        self.pools.in_use()
    }

    /// The number of QPs that wait for credit or room.
    pub fn waiting(&self) -> usize {
        self.pools.waiting() + self.windows.waiting() + self.room.waiting()
    }

    /// Panics if credit is in use that no member is charged with, if a QP waits without its mark, if it waits although there
    /// is credit, or if pools and windows differ in what is in flight to a receiver. To be called between the events of QPs, not between [`Credit::budget`] and [`Credit::update`].
    pub fn check_invariants(&self) {
        self.pools.check_invariants();
        self.windows.check_invariants();
        self.room.check_invariants();
        for (receiver, in_flight) in self.windows.receivers() {
            let counted = self.pools.unacknowledged(receiver);
            assert_eq!(
                counted as u64, in_flight,
                "bytes without ACKs to {receiver:?}, and counted"
            );
        }
    }
}
