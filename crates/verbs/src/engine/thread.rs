//! Progress while the application does something else: a thread that sleeps until a packet comes or a timer runs out.
//!
//! A program that polls its completion queues drives the device itself, and a thread that woke for each packet would
//! only compete with it. So the thread leaves the sockets alone for as long as somebody polls, and rx_passes now and then
//! whether somebody still does.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ferroce_proto::time::Instant;
use ferroce_sys::{Event, Interest, Poller, clock, thread};

use super::adapter::{Adapter, Handle};
use super::hw_counters::HwCounters;
use super::steering::Steering;
use crate::error::Error;
use crate::sync::lock;

/// How long the thread leaves the sockets alone before it rx_passes again: nanoseconds. It starts with the first, and waits
/// twice as long whenever it found nothing to do, up to the second. A program that polls without a pause is hardly
/// disturbed so, and one that polls now and then, or rx_passes at its memory in between as ib_write_lat does, does not wait
/// for long.
const MIN_LOOK_INTERVAL: u64 = 20_000;
const MAX_LOOK_INTERVAL: u64 = 500_000;

/// How long peers are waited for that were told of the end of a connection, and how often they are told: nanoseconds.
pub(super) const DISCONNECT_TIMEOUT: u64 = 500_000_000;
const DREQ_INTERVAL: u64 = 25_000_000;

/// No timer.
const NEVER: u64 = u64::MAX;

/// What the thread is told by others, and what they have to know about it.
#[derive(Debug)]
pub(crate) struct Signals {
    wake: Event,
    stop: AtomicBool,
    /// It has stopped.
    stopped: AtomicBool,
    /// Somebody polled since the thread last looked: who did will do so again.
    polled: AtomicBool,
    /// When the next timer of a queue pair runs out.
    timer: AtomicU64,
    /// Until when the thread sleeps, if nothing wakes it; 0 while it does not.
    asleep_until: AtomicU64,
    /// Whether it leaves the sockets alone meanwhile.
    poller_active: AtomicU32,
    handle: Mutex<Weak<Handle>>,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self {
            wake: Event::new()?,
            stop: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            timer: AtomicU64::new(NEVER),
            asleep_until: AtomicU64::new(0),
            poller_active: AtomicU32::new(0),
            handle: Mutex::default(),
        })
    }

    pub(crate) fn handle(&self) -> Option<Arc<Handle>> {
        lock(&self.handle).upgrade()
    }

    pub(crate) fn set_handle(&self, handle: &Arc<Handle>) {
        *lock(&self.handle) = Arc::downgrade(handle);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn wake(&self) {
        let _ = self.wake.signal();
    }

    /// Somebody polls.
    pub(crate) fn polled(&self) {
        if !self.polled.load(Ordering::Relaxed) {
            self.polled.store(true, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_polled(&self) -> bool {
        self.polled.load(Ordering::SeqCst)
    }

    /// Nobody does any more, as far as this caller goes.
    pub(crate) fn stop_polling(&self) {
        self.polled.store(false, Ordering::SeqCst);
        if self.poller_active.load(Ordering::SeqCst) != 0 {
            self.wake();
        }
    }

    /// Tells when the next timer runs out, after a round. The thread is woken only if it would sleep too long.
    pub(crate) fn set_timer(&self, timer: Option<Instant>) {
        let timer = timer.map_or(NEVER, Instant::as_nanos);
        self.timer.store(timer, Ordering::SeqCst);
        if timer < self.asleep_until.load(Ordering::SeqCst) {
            self.wake();
        }
    }
}

/// What the thread does until it is told to stop.
pub(crate) fn run(adapter: &Adapter) {
    let signals = &adapter.thread;
    let mut poller = Poller::new();
    let wake = poller.watch(&signals.wake, Interest::Read);
    let mailboxes: Vec<_> =
        adapter.links.iter().map(|link| poller.watch(&link.slot, Interest::Read)).collect();
    let services = adapter.management.connections.services.changed();
    let services = services.map(|event| poller.watch(event, Interest::Read));
    let processes = adapter.management.connections.processes(adapter);
    let processes = processes.map(|processes| poller.watch(processes, Interest::Read));
    let neighbours = adapter.management.neighbours.watch();
    let neighbours = neighbours.map(|monitor| poller.watch(monitor, Interest::Read));
    let port = adapter.port.watch().map(|monitor| poller.watch(monitor, Interest::Read));
    let sockets: Vec<_> =
        adapter.links.iter().map(|link| poller.watch(&link.receiver, Interest::Read)).collect();
    let fixed = 1
        + mailboxes.len()
        + services.iter().len()
        + processes.iter().len()
        + neighbours.iter().len()
        + port.iter().len()
        + sockets.len();
    // Behind those come the groups' sockets and those that packets leave from, which come and go, and the one whose buffer
    // is full.
    let mut reports = Vec::new();
    let mut watches_sender = false;
    let mut metadata = None;
    clock::precise();
    clock::prompt();
    let mut hw_counters = HwCounters::of(adapter.device.name());
    let mut look = MIN_LOOK_INTERVAL;
    let mut steering = Steering::new(clock::now());
    let _stopped = Stopped(&signals.stopped);
    while !signals.stop.load(Ordering::Acquire) {
        if adapter.ownership.has_failed() {
            return;
        }
        let forwarded = mailboxes.iter().any(|&index| poller.readiness(index).readable);
        let done = adapter.run(forwarded);
        look =
            if done == Some(true) { MIN_LOOK_INTERVAL } else { (2 * look).min(MAX_LOOK_INTERVAL) };
        adapter.management.run(adapter);
        if processes.is_some_and(|index| poller.readiness(index).readable) {
            adapter.management.connections.end_of_processes(adapter);
        }
        let monitor = neighbours.is_some_and(|index| poller.readiness(index).readable);
        adapter.management.neighbours.run(monitor);
        if port.is_some_and(|index| poller.readiness(index).readable) {
            adapter.port.refresh(&adapter.device);
        }
        if reports.iter().any(|&index| poller.readiness(index).broken) {
            adapter.handle_reports();
        }
        let now = clock::now();
        let readable =
            |index: Option<_>| index.is_some_and(|index| poller.readiness(index).readable);
        // A process that has ended may have left its place to another.
        let busy = done == Some(true) || readable(processes);
        steering.run(adapter, readable(services), busy, now);

        signals.poller_active.store(1, Ordering::SeqCst);
        // Who drives is polling, too. It may have lost its processor in the middle: to look at the sockets then, again and
        // again, would only keep it from getting one.
        let poller_active = signals.polled.swap(false, Ordering::SeqCst) || done.is_none();
        signals.poller_active.store(u32::from(poller_active), Ordering::SeqCst);
        let interest = if poller_active { Interest::Nothing } else { Interest::Read };
        sockets.iter().for_each(|&index| poller.set(index, interest));
        let blocked = adapter.blocked_sender();
        let sources: usize = adapter.links.iter().map(|link| link.senders.len()).sum();
        let version = Some((adapter.groups.version(), sources));
        if version != metadata || watches_sender || blocked.is_some() {
            poller.truncate(fixed);
            adapter.groups.watch(&mut poller);
            reports = adapter.watch_reports(&mut poller);
            metadata = version;
            watches_sender = blocked.is_some();
            blocked.map(|sender| poller.watch(sender, Interest::Write));
        }

        let mut deadline = signals.timer.load(Ordering::SeqCst);
        deadline = deadline.min(adapter.management.next_timer()).min(steering.next());
        if poller_active || !adapter.forwarding.is_empty() {
            deadline = deadline.min(now + look);
        }
        if let Some(hw_counters) = &mut hw_counters {
            let due = hw_counters.publish(&adapter.counters.read(), now);
            deadline = deadline.min(due.unwrap_or(NEVER));
        }
        signals.asleep_until.store(deadline, Ordering::SeqCst);
        // A timer that was set in between is metadata here, or its setter sees until when we sleep.
        let timer = signals.timer.load(Ordering::SeqCst).min(deadline);
        let waited = poller.wait(Some(timer).filter(|&timer| timer != NEVER));
        signals.asleep_until.store(0, Ordering::SeqCst);
        if waited.is_ok() && poller.readiness(wake).readable {
            let _ = signals.wake.take();
        }
    }
    sockets.iter().for_each(|&index| poller.set(index, Interest::Read));
    finish_disconnects(adapter, &mut poller);
    adapter.management.connections.ledger.remove();
    if let Some(hw_counters) = &mut hw_counters {
        hw_counters.finish(&adapter.counters.read());
    }
}

/// Says that the thread has stopped, however it did.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What came meanwhile may be another process's, and would be lost with the sockets. And who was told that a connection is
/// over shall know it before we go: nobody else would ever say so. A kernel would say it again and again after the end of
/// the process, for the message may have come to a third process that ends, too, and took it along.
fn finish_disconnects(adapter: &Adapter, poller: &mut Poller) {
    let connections = &adapter.management.connections;
    let until = clock::now() + DISCONNECT_TIMEOUT;
    let mut next_dreq = clock::now() + DREQ_INTERVAL;
    loop {
        adapter.run(true);
        let now = clock::now();
        if connections.unconfirmed() == 0 || now >= until {
            return;
        }
        if now >= next_dreq {
            connections.repeat_disconnects(adapter);
            next_dreq = now + DREQ_INTERVAL;
        }
        let _ = poller.wait(Some(next_dreq));
        // Who wakes us has said already that it is time to go.
        let _ = adapter.thread.wake.take();
    }
}
