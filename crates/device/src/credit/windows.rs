//! Flow control for UC and UD between local processes: caps the bytes in flight at the receiver's socket buffer (ADR
//! 10). The pools of [`super::pools`] count the same bytes, because RC packets go to the same buffer.
//!
//! RC has acknowledgements. UC and UD senders instead send a probe every half window: it follows the packets through the same socket to a QPN reserved
//! in each process's slot, and the receiver acknowledges it when it reads it. While the receiver is busy, packets wait
//! at the sender.
//!
//! Remote hosts are never probed: the network may lose packets anyway, and the peer may not be Ferroce.

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use ferroce_proto::congestion::cost;
use ferroce_proto::time::Instant;

use super::member::WindowWait;
use super::probe::{self, ProbePacket};
use crate::handle::{Handle, Schedulable};
use crate::receiver::Receiver;
use crate::schedule::Schedule;
use crate::tuning::windows::{MAX_PROBES, MAX_UNANSWERED, PROBE_INTERVAL};

/// The windows of all local receivers.
#[derive(Debug)]
pub(super) struct Windows<Q, R> {
    size: u64,
    slot: u8,
    windows: BTreeMap<Receiver, Window<Q, R>>,
}

#[derive(Debug)]
struct Window<Q, R> {
    route: R,
    /// Bytes ever sent, and bytes known to have been received.
    sent: u64,
    received: u64,
    probe: Option<Probe>,
    /// The number of the next probe.
    next: u32,
    /// Probes given up since the last acknowledgement.
    unanswered: u32,
    /// QPs with more to send; those that could send nothing in the last window come first.
    waiting: VecDeque<Q>,
    /// The number of these first QPs.
    starved: usize,
    /// How often the window was opened.
    opened: u64,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u32,
    /// Bytes sent before the probe.
    sent: u64,
    /// When it is repeated or given up.
    due: Instant,
    tries: u32,
}

impl<Q: Handle, R: Copy> Windows<Q, R> {
    pub(super) fn new(size: u64, slot: u8) -> Self {
        Self { size, slot, windows: BTreeMap::new() }
    }

    /// Records a sent packet. Returns a probe to send behind it if one is due.
    pub(super) fn sent(
        &mut self,
        receiver: Receiver,
        route: R,
        length: usize,
        now: Instant,
    ) -> Option<ProbePacket<R>> {
        let window = self.windows.entry(receiver).or_insert_with(|| Window::new(route));
        window.sent += cost(length, 1) as u64;
        window.probe(receiver, self.size, self.slot, now)
    }

    /// The bytes in flight to a receiver; none to one that is considered gone.
    #[inline]
    pub(super) fn in_flight(&self, receiver: Receiver) -> u64 {
        let window = self.windows.get(&receiver);
        let window = window.filter(|window| window.unanswered < MAX_UNANSWERED);
        window.map_or(0, |window| window.sent - window.received)
    }

    /// Whether the window of a receiver is used up, if RC has `others` bytes in flight to it. RC leaves at least a half: at
    /// that point a probe is sent, which opens the window again.
    fn is_closed(&self, receiver: Receiver, others: u64) -> bool {
        let size = self.size - others.min(self.size / 2);
        self.in_flight(receiver) >= size
    }

    /// Whether a QP must wait before it sends to a receiver. If so, it is queued and resumed when the window opens; QPs
    /// that have not `sent` anything in the current window are resumed first.
    #[inline]
    pub(super) fn must_wait(
        &mut self,
        receiver: Receiver,
        others: usize,
        queue_pair: &Q,
        wait: &mut Option<WindowWait>,
        sent: bool,
    ) -> bool {
        self.is_closed(receiver, others as u64) && self.wait(receiver, queue_pair, wait, sent)
    }

    /// Queues a QP whose window is closed, unless it is queued already.
    fn wait(
        &mut self,
        receiver: Receiver,
        queue_pair: &Q,
        wait: &mut Option<WindowWait>,
        sent: bool,
    ) -> bool {
        let opened = self.windows.get(&receiver).map(|window| window.opened);
        let Some(here) = opened.map(|opened| WindowWait { receiver, opened }) else { return false };
        if *wait == Some(here) {
            return true;
        }
        self.leave(queue_pair, wait);
        let Some(window) = self.windows.get_mut(&receiver) else { return false };
        let index = if sent { window.waiting.len() } else { window.starved };
        window.waiting.insert(index, queue_pair.clone());
        window.starved += usize::from(!sent);
        *wait = Some(here);
        true
    }

    /// Removes a QP from the queue in which it waits.
    pub(super) fn leave(&mut self, queue_pair: &Q, wait: &mut Option<WindowWait>) {
        let Some(WindowWait { receiver, opened }) = wait.take() else { return };
        let window = self.windows.get_mut(&receiver).filter(|window| window.opened == opened);
        let Some(window) = window else { return };
        let number = queue_pair.number();
        let index = window.waiting.iter().position(|waiting| waiting.number() == number);
        debug_assert!(index.is_some(), "QP {:#x} is not in the queue it waits in", number.0);
        if let Some(index) = index {
            window.waiting.remove(index);
            window.starved -= usize::from(index < window.starved);
        }
    }

    /// Handles the acknowledgement of a probe: resumes waiting QPs, and returns the next probe if one is due.
    pub(super) fn handle_probe_ack(
        &mut self,
        receiver: Receiver,
        number: u32,
        now: Instant,
        schedule: &mut Schedule<Q>,
    ) -> Option<ProbePacket<R>> {
        let window = self.windows.get_mut(&receiver)?;
        let probe = window.probe.take_if(|probe| probe.number == number)?;
        window.unanswered = 0;
        window.open(probe.sent, schedule);
        window.probe(receiver, self.size, self.slot, now)
    }

    /// When [`Windows::expire`] is due.
    #[inline]
    pub(super) fn next_timer(&self) -> Option<Instant> {
        // Each pass asks, and most devices have no window.
        if self.windows.is_empty() { None } else { self.next_probe() }
    }

    /// When a probe is repeated or given up. Apart from what every pass asks.
    #[inline(never)]
    fn next_probe(&self) -> Option<Instant> {
        self.windows.values().filter_map(|window| window.probe).map(|probe| probe.due).min()
    }

    /// Repeats unacknowledged probes or gives them up, which counts the packets before them as received. Returns the
    /// receivers whose windows this opened.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        schedule: &mut Schedule<Q>,
        mut send: impl FnMut(ProbePacket<R>),
    ) -> Vec<Receiver> {
        let mut opened = Vec::new();
        for (&receiver, window) in &mut self.windows {
            let Some(probe) = window.probe.as_mut().filter(|probe| probe.due <= now) else {
                continue;
            };
            probe.due = now + PROBE_INTERVAL;
            probe.tries += 1;
            // A receiver that is considered gone is probed only once.
            if probe.tries < MAX_PROBES && window.unanswered < MAX_UNANSWERED {
                send((window.route, probe::probe(probe.number, receiver, self.slot)));
                continue;
            }
            let sent = probe.sent;
            window.probe = None;
            window.unanswered = window.unanswered.saturating_add(1);
            window.open(sent, schedule);
            opened.push(receiver);
            window.probe(receiver, self.size, self.slot, now).into_iter().for_each(&mut send);
        }
        opened
    }

    /// All receivers, and the bytes in flight to each.
    pub(super) fn receivers(&self) -> impl Iterator<Item = (Receiver, u64)> {
        self.windows.keys().map(|&receiver| (receiver, self.in_flight(receiver)))
    }

    /// The number of QPs that wait.
    pub(super) fn waiting(&self) -> usize {
        self.windows.values().map(|window| window.waiting.len()).sum()
    }

    /// Panics if QPs wait for a window that no probe would open.
    pub(super) fn check_invariants(&self) {
        for (receiver, window) in &self.windows {
            let waiting = window.waiting.len();
            assert!(window.starved <= waiting, "{} of {waiting} starve", window.starved);
            assert!(window.received <= window.sent, "{receiver:?} received more than was sent");
            let probed = window.probe.is_some() || waiting == 0;
            assert!(probed, "{waiting} QPs wait for {receiver:?}, and no probe is in flight");
        }
    }
}

impl<Q: Handle, R: Copy> Window<Q, R> {
    fn new(route: R) -> Self {
        Self {
            route,
            sent: 0,
            received: 0,
            probe: None,
            next: 0,
            unanswered: 0,
            waiting: VecDeque::new(),
            starved: 0,
            opened: 0,
        }
    }

    /// Opens the window: bytes up to `received` are no longer in flight.
    fn open(&mut self, received: u64, schedule: &mut Schedule<Q>) {
        self.received = received;
        self.opened += 1;
        self.starved = 0;
        self.waiting.drain(..).for_each(|queue_pair| schedule.push(queue_pair));
    }

    /// Returns a probe if half a window is in flight and no probe is.
    fn probe(
        &mut self,
        receiver: Receiver,
        size: u64,
        slot: u8,
        now: Instant,
    ) -> Option<ProbePacket<R>> {
        if self.probe.is_some() || self.sent - self.received < size / 2 {
            return None;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.probe = Some(Probe { number, sent: self.sent, due: now + PROBE_INTERVAL, tries: 0 });
        Some((self.route, probe::probe(number, receiver, slot)))
    }
}
