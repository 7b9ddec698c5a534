//! The device core: its QPs' turns, timers and credit. A packet's way out begins at [`Device::transmit_all`].

#[cfg(test)]
mod tests;

use ferroce_proto::endpoint::{Budget, Pending};
use ferroce_proto::time::{Instant, earliest};
use ferroce_proto::transmit::EncodeError;

use crate::completions::publish;
use crate::credit::{Credit, Receiver};
use crate::handle::Schedulable;
use crate::host::{Host, Loss};
use crate::link::{Committed, Link, Outgoing, QueueTurn, Room, TransmitQueue, Tx};
use crate::queue_pair::{Object, QueuePair};
use crate::schedule::Schedule;
use crate::tuning::transmit_queues::PATIENCE;
use crate::tuning::turns::TURN;

/// What a device remembers about its QPs: which one is served next, and which may send. One thread at a time uses it.
#[derive(Debug)]
pub struct Device<H: Host> {
    /// The QPs to serve.
    pub schedule: Schedule<H::Handle>,
    /// The credit towards all receivers.
    pub credit: Credit<H::Handle, H::Route>,
    /// The QP of the last packet, and the version of the tables in which it was found: the next packet is often for the same
    /// QP.
    pub(crate) last: Option<(u32, H::Handle)>,
}

/// A QP of the embedder.
type State<H> = QueuePair<<H as Host>::Route, <H as Host>::Queue>;

/// How a QP's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// It has nothing more to send now.
    Done,
    /// It may have more to send.
    Over,
    /// The link takes no more packets.
    Blocked,
}

/// What became of the attempt to send a packet.
enum Sent {
    /// It was sent, as so many packets. Also a packet that turned out to be impossible, with length 0.
    Packets { count: usize, length: usize, has_room: bool },
    /// There is nothing to send.
    Nothing,
    /// Nothing now, but it has more to send.
    Later,
    /// There is no room.
    Full,
}

/// A turn over a link.
struct Turn {
    budget: Budget,
    packets: usize,
}

impl Sent {
    /// The transport was asked, and nothing had to be sent.
    const NOWHERE: Self = Self::Packets { count: 1, length: 0, has_room: true };
}

impl<H: Host<Queue: TransmitQueue<H>>> Device<H> {
    /// `share` and `slot`: see [`Credit::new`].
    pub fn new(share: usize, slot: u8) -> Self {
        let (schedule, credit) = (Schedule::default(), Credit::new(share, slot));
        Self { schedule, credit, last: None }
    }

    /// When the next timer expires: see [`Device::run_timers`].
    #[inline]
    pub fn next_timer(&self) -> Option<Instant> {
        earliest(self.schedule.next_timer(), self.credit.next_timer())
    }

    /// Transmits queued packets, about `most` of them, and returns whether there were any. The rest stays queued.
    pub fn transmit_all<L: Link<H>>(
        &mut self,
        link: &mut L,
        host: &H,
        now: Instant,
        most: usize,
    ) -> bool {
        if !link.unblock(host) {
            return false;
        }
        let mut sent = false;
        while let Some((route, packet)) = host.next_own(*link.own_taken()) {
            let _guard = link.guard();
            sent = true;
            *link.own_taken() += 1;
            if !link.push(host, route, &packet) {
                return true;
            }
        }
        let mut packets = 0;
        self.schedule.take_posted(&host.tables().posted);
        while packets < most && !host.is_awaited() {
            let Some(handle) = self.schedule.pop() else { break };
            let (count, end) = self.turn(link, host, &handle, &mut handle.state().lock(), now);
            packets += count;
            match end {
                TurnEnd::Done => {}
                TurnEnd::Over => self.schedule.push(handle),
                TurnEnd::Blocked => {
                    self.schedule.push_front(handle);
                    return true;
                }
            }
            if !self.schedule.has_ready() {
                self.schedule.take_posted(&host.tables().posted);
                self.resume(host);
            }
        }
        if link.flush(host) {
            host.own_sent(*link.own_taken());
        }
        sent || packets > 0
    }

    /// Resumes QPs whose transmit queues have room again, no more than there is room for.
    #[inline]
    pub fn resume(&mut self, host: &H) {
        let Self { schedule, credit, .. } = self;
        host.resume_queues(|queue, most| credit.resume(queue, most, schedule));
    }

    /// Transmits packets of one QP, up to its turn. Returns how many.
    pub fn turn<L: Link<H>>(
        &mut self,
        link: &mut L,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        now: Instant,
    ) -> (usize, TurnEnd) {
        let QueuePair { queue, membership, destroyed, .. } = &mut **state;
        // Through the link before it was connected again, or destroyed within a pass.
        if *destroyed || queue.is_some() && membership.holds_credit() {
            self.credit.leave(handle, membership, &mut self.schedule);
        }
        if *destroyed {
            return (0, TurnEnd::Done);
        }
        state.doorbell.release();
        host.begin_turn(state, now);
        if state.queue.is_some() {
            let turn = self.turn_in_queue(host, handle, state, now);
            let lost = publish(host, handle, state, now).lost;
            self.update(handle, state, lost);
            // Without room its transport is not asked, so a wait that is over remains its timeout. It goes on with the room.
            let timeout = state.endpoint.poll_timeout();
            if !handle.marks().waits_for_room() || timeout.is_some_and(|due| due > now) {
                self.set_timer(handle, state);
            }
            return turn;
        }
        let _guard = link.guard();
        let QueuePair { membership, receiver, .. } = &mut **state;
        let budget = self.credit.budget(handle, membership, *receiver, &mut self.schedule);
        let mut turn = Turn { budget, packets: 0 };
        let mut end = TurnEnd::Over;
        while turn.packets < TURN {
            match self.transmit_one(link, host, handle, state, &mut turn, now) {
                Sent::Packets { count, has_room, .. } => {
                    turn.packets += count;
                    if !has_room {
                        end = TurnEnd::Blocked;
                        break;
                    }
                }
                Sent::Later => break,
                Sent::Nothing => {
                    end = TurnEnd::Done;
                    break;
                }
                Sent::Full => {
                    end = TurnEnd::Blocked;
                    break;
                }
            }
        }
        let lost = publish(host, handle, state, now).lost;
        let queue_pair = &mut **state;
        self.update(handle, queue_pair, lost);
        if let (TurnEnd::Done, Some(needs)) = (end, queue_pair.endpoint.over_budget()) {
            if !self.credit.wait(handle, &queue_pair.membership, needs, &mut self.schedule) {
                end = TurnEnd::Over;
            }
        }
        self.set_timer(handle, queue_pair);
        (turn.packets, end)
    }

    /// Transmits packets of a QP through its transmit queue, if it has one, until its turn is over. Returns how many.
    pub fn turn_in_queue(
        &mut self,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        now: Instant,
    ) -> (usize, TurnEnd) {
        // Taken out while the rest of the state changes.
        let Some(mut queue) = state.queue.take() else { return (0, TurnEnd::Done) };
        let number = queue.number();
        let mut turn = queue.begin(host, state);
        let mut packets = 0;
        let mut end = TurnEnd::Over;
        while packets < TURN {
            let sent = match turn.message(host, state, now) {
                Some(count) => Sent::Packets { count, length: 0, has_room: true },
                None => transmit_packet(
                    host,
                    &mut turn,
                    handle,
                    state,
                    &mut { Budget::UNLIMITED },
                    None,
                    now,
                ),
            };
            match sent {
                Sent::Packets { count, .. } => {
                    packets += count;
                    if state.endpoint.pending() == Pending::Nothing {
                        end = TurnEnd::Done;
                        break;
                    }
                }
                Sent::Nothing | Sent::Later => {
                    end = TurnEnd::Done;
                    break;
                }
                Sent::Full => {
                    if turn.wait(host) {
                        self.credit.wait_for_room(handle, number);
                        end = TurnEnd::Done;
                    }
                    break;
                }
            }
        }
        turn.end(host, state, packets);
        state.queue = Some(queue);
        (packets, end)
    }

    /// Transmits one packet of a QP over the link, or through the transmit queue to the receiver of a datagram.
    fn transmit_one<L: Link<H>>(
        &mut self,
        link: &mut L,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        turn: &mut Turn,
        now: Instant,
    ) -> Sent {
        let local = host.local_receiver(state);
        if let Some(to) = local {
            if let Some(sent) = self.transmit_datagram(host, handle, state, to, now) {
                return sent;
            }
            let member = &mut state.membership;
            if self.credit.must_wait(handle, member, to.0, turn.packets > 0) {
                return Sent::Nothing;
            }
        }
        let route = local.map(|(_, route)| route);
        let sent = transmit_packet(host, link, handle, state, &mut turn.budget, route, now);
        let (Some((process, route)), &Sent::Packets { count, length: length @ 1.., has_room }) =
            (local, &sent)
        else {
            return sent;
        };
        // A probe behind it, when one is due.
        let probe = self.credit.sent(process, route, length, now, &mut self.schedule);
        let Some((route, packet)) = probe else { return sent };
        let has_room = if has_room {
            link.push(host, route, &packet)
        } else {
            // The place behind those that were committed holds the packet before it.
            host.push_probe((route, packet));
            false
        };
        Sent::Packets { count, length, has_room }
    }

    /// Transmits the next datagram of a QP through the transmit queue to a process. Returns `None` if there is none to that
    /// process. Datagrams may be lost, so they do not wait for a process that has stopped: if a queue stays full for
    /// [`PATIENCE`], they are dropped until there is room again.
    fn transmit_datagram(
        &mut self,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        to: (Receiver, H::Route),
        now: Instant,
    ) -> Option<Sent> {
        let last = state.datagrams.take().filter(|(receiver, _)| *receiver == to.0);
        let mut queue = host.datagram_queue(state, to, last.map(|(_, queue)| queue))?;
        let number = queue.number();
        let mut turn = queue.begin(host, state);
        let mut budget = Budget::UNLIMITED;
        let sent =
            match transmit_packet(host, &mut turn, handle, state, &mut budget, Some(to.1), now) {
                Sent::Packets { count, has_room, .. } => {
                    self.credit.found_room(number);
                    Sent::Packets { count, length: 0, has_room }
                }
                Sent::Full if self.credit.is_stalled(number, now) => {
                    // Polled and dropped, as if the network had lost it.
                    let mut memory = host.memory(now);
                    let endpoint = &mut state.endpoint;
                    match endpoint.poll_transmit(now, &mut budget, &mut memory) {
                        Some(_) => Sent::NOWHERE,
                        None => Sent::Nothing,
                    }
                }
                Sent::Full if turn.wait(host) => {
                    self.credit.wait_for_room(handle, number);
                    let member = &mut state.membership;
                    self.schedule.set_timer(handle, member, Some(now + PATIENCE));
                    Sent::Nothing
                }
                Sent::Full => Sent::Later,
                nothing => nothing,
            };
        turn.end(host, state, 1);
        state.datagrams = Some((to.0, queue));
        Some(sent)
    }

    /// Runs the timers that have expired.
    pub fn run_timers(&mut self, host: &H, now: Instant) -> bool {
        let Self { credit, schedule, .. } = self;
        if credit.next_timer().is_some_and(|due| due <= now) {
            credit.expire(now, schedule, |probe| host.push_probe(probe));
        }
        let mut completed = false;
        while let Some((time, number)) = self.schedule.pop_timer(now) {
            let Some(handle) = host.tables().queue_pair(number) else { continue };
            let mut state = handle.state().lock();
            let queue_pair = &mut **state;
            // Another entry had an earlier time and was handled.
            if queue_pair.destroyed || !queue_pair.membership.take_timer(time) {
                continue;
            }
            if queue_pair.endpoint.poll_timeout().is_some_and(|due| due <= now) {
                if queue_pair.queue.as_ref().is_some_and(TransmitQueue::is_unread) {
                    queue_pair.endpoint.handle_delay(now);
                }
                queue_pair.endpoint.handle_timeout(now);
                let published = publish(host, &handle, &mut state, now);
                completed |= published.some;
                self.update(&handle, &mut state, published.lost);
                // Its next timer is set after it has transmitted; until then `poll_timeout` may return the expired one.
                self.schedule.push(handle.clone());
                continue;
            }
            if queue_pair.datagrams.is_some() {
                // A datagram has waited for room in a transmit queue.
                self.schedule.push(handle.clone());
            }
            self.set_timer(&handle, queue_pair);
        }
        completed
    }

    /// A QP has received packets: publishes its completions, and queues what it has to send. Returns whether there were
    /// completions.
    #[inline]
    pub fn received(
        &mut self,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        now: Instant,
    ) -> bool {
        let published = publish(host, handle, state, now);
        let queue_pair = &mut **state;
        self.update(handle, queue_pair, published.lost);
        self.schedule.received(handle, queue_pair.endpoint.pending());
        self.set_timer(handle, queue_pair);
        published.some
    }

    /// Sends the ACK that a QP owes through its transmit queue, if it has nothing else to send. The ACK costs no system call, so
    /// it does not wait for other packets as it does over a link, and it is cheapest while the QP is locked.
    #[inline]
    pub fn acknowledge(
        &mut self,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        now: Instant,
    ) {
        let queue_pair = &mut **state;
        if queue_pair.endpoint.pending() != Pending::Ack || queue_pair.destroyed {
            return;
        }
        // The program polls the CQ only for its own requests and watches its memory for WRITEs. The ACK follows its
        // reply, so that the peer, which does the same, polls until both have arrived.
        if queue_pair.endpoint.has_only_send_completions() {
            return;
        }
        if let Some(mut queue) = queue_pair.queue.take() {
            let written = queue.write_ack(host, state);
            state.queue = Some(queue);
            if !written {
                self.turn_in_queue(host, handle, state, now);
            }
        }
    }

    /// Lets the ACK timers of all QPs whose transmit queue has ended expire: their requests in flight fail when no retries are
    /// left. Called after everything that the peer sent was received, because the last ACK may be among it. Returns whether
    /// there were completions.
    pub fn end_queues(
        &mut self,
        host: &H,
        has_ended: impl Fn(&H::Queue) -> bool,
        now: Instant,
    ) -> bool {
        let mut completed = false;
        for handle in host.tables().queue_pairs() {
            let mut state = handle.state().lock();
            let QueuePair { endpoint, queue, destroyed, .. } = &mut **state;
            if *destroyed || !queue.as_ref().is_some_and(&has_ended) {
                continue;
            }
            endpoint.handle_link_down(now);
            completed |= self.received(host, &handle, &mut state, now);
            drop(state);
            self.schedule.push(handle);
        }
        completed
    }

    /// Sets the timer of a QP to that of its transport.
    #[inline]
    pub fn set_timer(&mut self, handle: &H::Handle, queue_pair: &mut State<H>) {
        let timeout = queue_pair.endpoint.poll_timeout();
        self.schedule.set_timer(handle, &mut queue_pair.membership, timeout);
    }

    /// Updates the credit of a QP, and queues the QPs that wait for what it returned.
    #[inline]
    pub fn update(&mut self, handle: &H::Handle, queue_pair: &mut State<H>, lost: Loss) {
        // Packets in a transmit queue take no space in a socket buffer.
        if queue_pair.queue.is_some() {
            return;
        }
        let Self { credit, schedule, .. } = self;
        let in_flight = queue_pair.endpoint.in_flight();
        credit.update(handle, &mut queue_pair.membership, in_flight, schedule);
        if lost.requests {
            credit.on_loss(&queue_pair.membership, false);
        }
        if lost.responses {
            credit.on_loss(&queue_pair.membership, true);
        }
    }

    /// Removes a destroyed QP.
    pub fn forget(&mut self, handle: &H::Handle, queue_pair: &mut State<H>) {
        queue_pair.destroyed = true;
        self.last.take_if(|(_, last)| last.number() == handle.number());
        self.credit.leave(handle, &mut queue_pair.membership, &mut self.schedule);
    }

    /// Panics if it contradicts itself. To be called between turns.
    pub fn check_invariants(&self) {
        self.schedule.check_invariants();
        self.credit.check_invariants();
    }
}

/// Writes and commits the next packet of a QP. `local`: the way to a process of the same host, which does not acknowledge it.
#[inline(never)]
fn transmit_packet<H: Host, X: Tx<H>>(
    host: &H,
    tx: &mut X,
    handle: &H::Handle,
    state: &mut H::State,
    budget: &mut Budget,
    local: Option<H::Route>,
    now: Instant,
) -> Sent {
    let room = tx.room();
    if room == Room::Full {
        return Sent::Full;
    }
    let is_captured = host.is_captured();
    let queue_pair = &mut **state;
    let mut memory = host.memory(now);
    let outgoing = queue_pair.endpoint.poll_transmit(now, budget, &mut memory);
    let Some(outgoing) = outgoing else { return Sent::Nothing };
    let (own, transmit) = (outgoing.route, outgoing.transmit);
    let bth = transmit.bth;
    let (aeth, payload) = (transmit.extensions.aeth, transmit.payload.len());
    let is_request = || bth.opcode.info().is_some_and(|info| info.request);
    if room == Room::Ended {
        if is_request() {
            queue_pair.endpoint.handle_link_down(now);
        }
        return Sent::NOWHERE;
    }
    let length = match transmit.encode(&memory, tx.space(payload)) {
        Ok(length) => length,
        Err(EncodeError::Duplicate(_)) => return Sent::NOWHERE,
        Err(error) => {
            let local = matches!(error, EncodeError::Local(_));
            let reason = transmit.explain(error, &memory);
            queue_pair.endpoint.handle_denied(bth.psn, local, reason);
            return Sent::NOWHERE;
        }
    };
    drop(memory);
    let work = if is_captured && is_request() { queue_pair.endpoint.work_of(&bth) } else { None };
    let (number, is_local) = (handle.number(), local.is_some());
    let route = local.or(own);
    let bth = &bth;
    let outgoing = Outgoing { number, bth, aeth, payload, length, route, is_local, work };
    let Committed { packets, has_room } = tx.commit(host, state, &outgoing);
    if packets == 0 {
        return Sent::NOWHERE;
    }
    host.sent(state, bth, aeth, payload, packets);
    Sent::Packets { count: packets as usize, length, has_room }
}
