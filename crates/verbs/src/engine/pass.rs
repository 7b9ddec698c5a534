//! Passes over a device: receive, run timers, transmit. One thread at a time makes them.
//!
//! Threads that post, poll or wait make passes themselves; the device thread makes them when no other thread does. A
//! thread that finds the device owned leaves a request for the owner and does not wait; see [`ferroce_sync::Owned`].

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::tuning::passes::{
    MAX_PASSES_PER_POLL, MAX_PASSES_PER_WAKEUP, MAX_RX_BEFORE_TIMERS, PACKETS_PER_PASS,
    PACKETS_PER_POST, ROUNDS_PER_POST,
};
use ferroce_device::{Host as _, TurnEnd};
use ferroce_proto::reason::Reason;
use ferroce_proto::time::Instant;
use ferroce_sync::{Guard, MutexGuard, NEVER, Requests};
use ferroce_sys::{Uncancellable, clock};

use super::adapter::Adapter;
use super::data_path::DataPath;
use super::driver::Driver;
use super::queue_pair::{Core, Inner};
use crate::drive::Links;
use crate::event::EventKind;
use crate::time::{self, now};

thread_local! {
    /// This thread is making a pass.
    pub(super) static IN_PASS: Cell<bool> = const { Cell::new(false) };
}

/// Receive from the sockets.
pub(super) const RX: Requests = Requests::bit(0);
/// Receive packets that other processes have forwarded.
pub(super) const MAILBOX: Requests = Requests::bit(1);
/// Run expired timers.
pub(super) const TIMERS: Requests = Requests::bit(2);
/// Transmit queued packets.
pub(super) const TX: Requests = Requests::bit(3);

/// What the passes of the device thread found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ran {
    /// Something was received or sent.
    pub(super) busy: bool,
    /// Packets were waiting in a socket.
    pub(super) received: bool,
}

/// Ownership of the driver during passes. A panic makes the device fail: see [`EventKind::DeviceFatal`].
pub(super) struct Pass<'a> {
    adapter: &'a Adapter,
    guard: Option<Guard<'a, Driver>>,
    /// Whether the thread was panicking already: a destructor may make a pass during an unrelated panic.
    panicking: bool,
}

impl<'a> Pass<'a> {
    pub(super) fn new(adapter: &'a Adapter, guard: Guard<'a, Driver>) -> Self {
        IN_PASS.set(true);
        Self { adapter, guard: Some(guard), panicking: std::thread::panicking() }
    }

    /// Publishes when the device needs its next pass, for the device thread. Makes the device fail if one of its sockets is
    /// gone: the program has closed descriptors that are not its own.
    fn publish(&mut self) {
        let driver: &Driver = self;
        debug_assert!({
            driver.device.check_invariants();
            true
        });
        let signals = &self.adapter.signals;
        let blocked = driver.tx.blocked_route();
        signals.set_blocked(blocked.map(|route| (route.link, route.sender)));
        signals.set_owes_acks(driver.device.schedule.owes_acks());
        signals.set_timer(driver.device.next_timer().map_or(NEVER, Instant::as_nanos));
        if let Some(tap) = self.adapter.tap() {
            self.adapter.counters.capture_drops().store(tap.dropped(), Ordering::Relaxed);
        }
        if self.rx.broken || self.tx.broken {
            if let Some(guard) = self.guard.take() {
                guard.fail();
            }
            self.adapter.fail("a socket was closed or replaced");
        }
    }

    /// Ends the pass, unless requests arrived in the meantime, which it returns.
    fn release(&mut self) -> Option<Requests> {
        self.publish();
        let (guard, requests) = self.guard.take()?.release().err()?;
        self.guard = Some(guard);
        Some(requests)
    }

    /// Ends the pass. Leaves the requests that were not served to the device thread, with `rest` if packets are left to
    /// send. Returns whether they are.
    pub(super) fn hand_over(mut self, rest: Requests) -> bool {
        let left = self.has_backlog();
        self.publish();
        let requests = self.guard.take().map_or(Requests::NONE, Guard::give_up);
        self.adapter.pass_on(if left { requests.and(rest) } else { requests });
        left
    }
}

impl Deref for Pass<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.guard.as_deref().expect("the guard is taken only when the pass ends")
    }
}

impl DerefMut for Pass<'_> {
    fn deref_mut(&mut self) -> &mut Driver {
        self.guard.as_deref_mut().expect("the guard is taken only when the pass ends")
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        IN_PASS.set(false);
        if std::thread::panicking() && !self.panicking {
            // Ownership is never released after that.
            self.guard = None;
            self.adapter.fail("the engine panicked");
        }
    }
}

impl Adapter {
    /// Reports the failure of the device to the program. No thread can own the driver any more.
    fn fail(&self, reason: &str) {
        tracing::error!(device = self.device.name(), reason, "device fatal");
        self.report_device(&Reason::DeviceFailed);
        self.port.state.raise(EventKind::DeviceFatal);
        // The device thread may be asleep.
        self.signals.wake();
    }

    /// Queues a QP for transmission and drives the device, or requests that from the thread that owns it.
    pub(crate) fn kick(&self, core: &Arc<Core>) {
        // Usually the device is free, and the queue that other threads use is not needed.
        if let Some(guard) = self.driver.try_own() {
            let mut pass = Pass::new(self, guard);
            pass.device.schedule.push(Arc::clone(core));
            self.transmit(pass, now());
        } else {
            self.hold(core);
            self.drive();
        }
    }

    /// As [`Adapter::kick`], for a QP that was just posted to and is still locked. A QP that sends through a ring
    /// transmits at once, unless other QPs are queued.
    pub(crate) fn kick_locked(&self, core: &Arc<Core>, mut inner: MutexGuard<'_, Inner>) {
        let guard = inner.queue.is_some().then(|| self.driver.try_own()).flatten();
        let Some(guard) = guard else {
            drop(inner);
            return self.kick(core);
        };
        let mut pass = Pass::new(self, guard);
        let now = pass.read_clock();
        let end = if pass.device.schedule.has_ready() {
            TurnEnd::Over
        } else {
            let Driver { device, tx, .. } = &mut *pass;
            device.turn(tx, self, core, &mut inner, now).1
        };
        drop(inner);
        if end != TurnEnd::Done {
            pass.device.schedule.push(Arc::clone(core));
        }
        self.transmit(pass, now);
    }

    /// Queues a QP for the next pass of any thread. For requests that need not be sent at once.
    pub(crate) fn hold(&self, core: &Arc<Core>) {
        self.tables.posted.push(core, core.marks.queued());
    }

    /// Transmits everything that is queued, or requests that from the current owner.
    ///
    /// It never receives, because the caller may hold locks that packet handlers take.
    pub(crate) fn drive(&self) {
        if let Some(guard) = self.driver.own_or_request(TX) {
            self.transmit(Pass::new(self, guard), now());
        }
    }

    /// Transmits everything that is queued, for a posting thread.
    fn transmit(&self, mut pass: Pass<'_>, mut now: Instant) {
        pass.called();
        let mut left = Requests::NONE;
        for _ in 0..ROUNDS_PER_POST {
            pass.device.schedule.take_posted(&self.tables.posted);
            // ACKs follow the data, in the same system call.
            pass.device.schedule.release_owed();
            if pass.may_transmit(self) {
                pass.transmit_all(self, now, PACKETS_PER_POST);
            }
            self.polling.called(now.as_nanos());
            if pass.has_backlog() {
                break;
            }
            let Some(requests) = pass.release() else {
                self.pass_on(left.without(TX));
                return;
            };
            left = left.and(requests);
            now = time::now();
        }
        self.pass_on(left);
        pass.hand_over(TX);
    }

    /// Leaves requests to the device thread. All but TX are its own, and if it dozes, it checks again soon: waking it
    /// would only preempt the polling program.
    fn pass_on(&self, requests: Requests) {
        if requests.intersects(TX) || !requests.is_empty() && !self.signals.looks_soon() {
            self.signals.wake();
        }
    }

    /// Polls the CQ with this ID: makes a pass, unless another thread owns the device. A program that has armed the CQ
    /// (`sleeps`) polls once more and then blocks, so the device thread must keep watching the sockets.
    pub(crate) fn poll(&self, cq: u64, sleeps: bool) {
        if !sleeps {
            self.signals.polled();
        }
        if self.polling.makes_pass(cq, clock::now) {
            self.make_pass();
        }
    }

    /// Makes a pass for a thread that waits for a completion, unless another thread owns the device. Returns whether
    /// packets are left to send, so that the thread should make another pass before it sleeps.
    pub(crate) fn make_pass(&self) -> bool {
        if self.is_awaited() {
            // Otherwise the thread that destroys an object would never find the device free between two polls.
            std::thread::yield_now();
        }
        let Some(guard) = self.driver.try_own() else { return false };
        let mut pass = Pass::new(self, guard);
        pass.called();
        let defer = self.signals.looks_soon();
        let mut busy = false;
        for _ in 0..MAX_PASSES_PER_POLL {
            busy |= pass.pass(self, Links::Lively, defer);
            if !pass.has_backlog() {
                break;
            }
        }
        if busy {
            pass.busy_at = pass.now;
        }
        let idle = pass.now.since(pass.busy_at).as_nanos() as u64;
        let yields = self.polling.passed(pass.now.as_nanos(), idle);
        if !pass.has_backlog() {
            let Some(requests) = pass.release() else {
                if yields {
                    let before = clock::now();
                    std::thread::yield_now();
                    self.polling.resumed(before, clock::now());
                }
                return false;
            };
            // The device thread would keep requesting passes until the event that woke it is handled.
            pass.serve(self, requests);
        }
        // This thread polls again soon; if it does not, a dozing device thread notices. A request of TX would wake that
        // thread, which would then transmit while this one polls an owned device.
        pass.hand_over(RX)
    }

    /// Makes passes for the device thread until there is nothing left to do. Returns what they found, or `None` if
    /// another thread owns the device and will make another pass.
    pub(super) fn run(&self, mailboxes: bool, links: Links) -> Option<Ran> {
        let requests = if mailboxes { RX.and(TIMERS).and(MAILBOX) } else { RX.and(TIMERS) };
        let mut pass = Pass::new(self, self.driver.own_or_request(requests)?);
        #[cfg(test)]
        assert!(!self.panics.load(Ordering::Relaxed), "panic requested by a test");
        if pass.device.schedule.owes_acks() {
            pass.deferral.late();
        }
        let mut ran = Ran::default();
        if mailboxes {
            pass.receive_forwarded(self);
        }
        // Bounded, so that a request to stop is noticed under load.
        for _ in 0..MAX_PASSES_PER_WAKEUP {
            ran.busy |= pass.pass(self, links, false);
            ran.received |= pass.rx.received;
            if self.is_awaited() {
                break;
            }
            // Packets that arrive later wake the thread, so a pass that checks for them would be wasted.
            if pass.rx.more || pass.has_backlog() {
                continue;
            }
            let Some(requests) = pass.release() else { return Some(ran) };
            pass.serve(self, requests);
            ran.busy = true;
        }
        pass.hand_over(TX);
        Some(ran)
    }
}

impl Driver {
    /// Receives, runs timers and transmits. Returns whether anything was received or sent, so that there may be more.
    ///
    /// With `defer`, ACKs of packets that completed something are deferred: the program is waiting for the completion,
    /// and its next post or poll sends them.
    fn pass(&mut self, data_path: &DataPath, links: Links, defer: bool) -> bool {
        self.device.schedule.release_owed();
        self.rx.completed = false;
        self.rx.now = None;
        let mut received = self.receive_all(data_path, links);
        self.rx.received = received;
        data_path.retry_forwarding();
        if links == Links::All {
            data_path.rx_passes.fetch_add(1, Ordering::Release);
        }
        let mut now = self.rx.now.unwrap_or_else(|| self.read_clock());
        if self.device.next_timer().is_some_and(|time| time <= now) {
            let _guard = Uncancellable::new();
            // This thread may be late: the response may already be in the socket buffer.
            self.receive_forwarded(data_path);
            for _ in 0..MAX_RX_BEFORE_TIMERS {
                if !self.receive_all(data_path, Links::All) {
                    break;
                }
                received = true;
            }
            now = self.read_clock();
            // Polling threads run timers as well: the device thread might never acquire the device between two polls.
            self.rx.completed |= self.device.run_timers(data_path, now);
        }
        let defer = defer && self.deferral.allows();
        if !(defer && self.rx.completed) {
            self.device.schedule.release_owed();
            if self.rx.completed {
                self.deferral.sent_at_once();
            }
        }
        self.now = now;
        let sent =
            self.may_transmit(data_path) && self.transmit_all(data_path, now, PACKETS_PER_PASS);
        received || sent
    }

    /// Serves requests of other threads: by a pass, or by transmission alone if only TX was requested.
    fn serve(&mut self, data_path: &DataPath, requests: Requests) {
        if requests.intersects(MAILBOX) {
            self.receive_forwarded(data_path);
        }
        if requests.intersects(RX.and(TIMERS).and(MAILBOX)) {
            self.pass(data_path, Links::All, false);
        } else {
            self.device.schedule.release_owed();
            self.transmit_all(data_path, now(), PACKETS_PER_PASS);
        }
    }
}
