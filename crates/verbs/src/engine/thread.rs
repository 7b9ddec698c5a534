//! The device thread: makes progress while the application does something else.
//!
//! A program that polls its CQs drives the device itself, and a thread that woke up for each packet would only compete
//! with it. So the thread does not watch the sockets while a thread polls, and checks from time to time whether one
//! still does.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ferroce_proto::time::Instant;
use ferroce_sys::{Event, Interest, Poller, clock, thread};

use super::adapter::{Adapter, Handle};
use super::hw_counters::HwCounters;
use super::steering::Steering;
use crate::error::SystemError;
use crate::sync::lock;

/// How long the thread leaves the sockets to a polling program before it reads them itself, in nanoseconds. The
/// interval starts at the minimum and doubles, up to the maximum, each time the thread finds nothing to do. A program
/// that polls continuously is hardly disturbed, and one that polls rarely, or watches its memory as `ib_write_lat`
/// does, does not wait for long.
const MIN_LOOK_INTERVAL: u64 = 20_000;
const MAX_LOOK_INTERVAL: u64 = 500_000;

/// How long the thread waits for DREPs when the device closes, and how often it repeats the DREQs: nanoseconds.
pub(super) const DISCONNECT_TIMEOUT: u64 = 500_000_000;
const DREQ_INTERVAL: u64 = 25_000_000;

/// The time of no timer.
const NEVER: u64 = u64::MAX;

/// State shared between the device thread and the threads that wake it.
#[derive(Debug)]
pub(crate) struct Signals {
    wake: Event,
    stop: AtomicBool,
    /// The thread has stopped.
    stopped: AtomicBool,
    /// A CQ was polled since the thread's last wakeup.
    polled: AtomicBool,
    /// When the next QP timer expires.
    timer: AtomicU64,
    /// When the thread wakes up at the latest; 0 while it is awake.
    asleep_until: AtomicU64,
    /// The thread has left the sockets to a polling program.
    poller_active: AtomicU32,
    handle: Mutex<Weak<Handle>>,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, SystemError> {
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

    /// Records that a program polls.
    pub(crate) fn polled(&self) {
        if !self.polled.load(Ordering::Relaxed) {
            self.polled.store(true, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_polled(&self) -> bool {
        self.polled.load(Ordering::SeqCst)
    }

    /// Records that the calling program stops polling, and makes the thread watch the sockets again.
    pub(crate) fn stop_polling(&self) {
        self.polled.store(false, Ordering::SeqCst);
        if self.poller_active.load(Ordering::SeqCst) != 0 {
            self.wake();
        }
    }

    /// Publishes the next timer after a pass. Wakes the thread only if it would sleep past it.
    pub(crate) fn set_timer(&self, timer: Option<Instant>) {
        let timer = timer.map_or(NEVER, Instant::as_nanos);
        self.timer.store(timer, Ordering::SeqCst);
        if timer < self.asleep_until.load(Ordering::SeqCst) {
            self.wake();
        }
    }
}

/// The main loop of the device thread.
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
    // Behind these come descriptors that change: sockets of multicast groups, send sockets, and the send socket whose
    // buffer is full.
    let mut reports = Vec::new();
    let mut watches_sender = false;
    let mut metadata = None;
    thread::set_low_timer_slack();
    thread::set_short_time_slice();
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
        // A process that ended may have freed its slot.
        let busy = done == Some(true) || readable(processes);
        steering.run(adapter, readable(services), busy, now);

        signals.poller_active.store(1, Ordering::SeqCst);
        // If another thread owns the device, it counts as polling. It may have been preempted in the middle of a pass:
        // reading the sockets now would only keep it from being scheduled.
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
        // A timer set in the meantime is seen here, or its setter sees how long we sleep and wakes us.
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

/// Sets the flag when the thread ends, also by a panic.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Forwards packets that still arrive for other processes, and waits for the DREPs of connections that were
/// disconnected. DREQs are repeated: the first may have reached a third process that exited with it. A kernel would do
/// this after the process has ended; here nobody else can.
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
        // The stop request is known already.
        let _ = adapter.thread.wake.take();
    }
}
