//! The device thread: makes progress while the application does something else.

use ferroce_links::route::Route;
use ferroce_links::udp::Steering;
use ferroce_proto::reason::Reason;
use ferroce_sync::{Mode, NEVER, Signals};
use ferroce_sys::{Event, clock, thread};
use ferroce_wire::address::Gid;
use ferroce_wire::transport::{Bth, Deth};

use super::adapter::Adapter;
use super::hw_counters::HwCounters;
use super::management::MANAGEMENT;
use super::watches::{Watch, Watches};
use crate::drive::{DeviceThread, Due, Links, Pass, Programs, Sleep};
use crate::time::now;

/// How long the thread waits for DREPs when the device closes, and how often it repeats the DREQs: nanoseconds.
pub(super) const DISCONNECT_TIMEOUT: u64 = 500_000_000;
const DREQ_INTERVAL: u64 = 25_000_000;

/// The main loop of the device thread.
pub(crate) fn run(adapter: &Adapter) {
    let signals = &adapter.signals;
    let mut thread = Thread::new(adapter);
    let _stopped = Stopped(signals);
    while !signals.is_stopping() {
        // As beside a program that polls.
        adapter.pause.halt_if_requested(|| signals.set_mode(Mode::Dozing));
        if adapter.driver.has_failed() {
            return;
        }
        let (pass, busy) = thread.pass();
        let now = thread.manage(busy);
        let sleep = thread.decide(pass, now);
        thread.sleep(&sleep);
    }
    thread.finish();
}

struct Thread<'a> {
    adapter: &'a Adapter,
    watches: Watches,
    policy: DeviceThread,
    steering: Steering,
    hw_counters: Option<HwCounters>,
    /// Packets were found in a ring, without sleeping.
    found: bool,
}

impl<'a> Thread<'a> {
    fn new(adapter: &'a Adapter) -> Self {
        let watches = Watches::new(adapter);
        thread::set_low_timer_slack();
        thread::set_short_time_slice();
        Self {
            adapter,
            watches,
            policy: DeviceThread::new(),
            steering: Steering::new(clock::now()),
            hw_counters: HwCounters::of(adapter.device.name()).filter(|_| adapter.is_first()),
            found: false,
        }
    }

    /// Makes passes. Returns what they found, and whether they found anything to do.
    fn pass(&mut self) -> (Pass, bool) {
        let adapter = self.adapter;
        if self.watches.has(Watch::Rings) {
            adapter.rings.run_hub();
        }
        let links = self.watches.links(self.found);
        let unpolled = adapter.polling.idle(clock::now());
        let ran = adapter.run(self.watches.mailboxes(), links);
        let received = ran.is_some_and(|ran| ran.received);
        if received {
            self.policy.received(clock::now(), adapter.counters.socket_bytes());
        }
        let pass = Pass { made: ran.is_some(), received, packet: links != Links::All, unpolled };
        (pass, ran.is_some_and(|ran| ran.busy))
    }

    /// Does what is due besides passes. Returns the time afterwards.
    fn manage(&mut self, busy: bool) -> u64 {
        let (adapter, watches) = (self.adapter, &self.watches);
        adapter.management.run(adapter.mads());
        if watches.has(Watch::Processes) {
            let connections = &adapter.management.connections;
            let ended = connections.take_ended(adapter.mads());
            if !ended.is_empty() {
                // What they sent before may still be in a socket.
                adapter.flush();
                connections.end_connections(adapter.mads(), &ended);
            }
        }
        adapter.management.neighbours.run(watches.has(Watch::Neighbours));
        if watches.has(Watch::Port) {
            if let Some(active) = adapter.port.state.refresh(&adapter.device) {
                adapter.counters.set_active(active);
                if !active {
                    adapter.report_device(&Reason::PortDown);
                }
            }
        }
        if watches.reports() {
            self.handle_reports();
        }
        let now = clock::now();
        // A process that ended may have freed its slot.
        let services_changed = watches.has(Watch::Services);
        if services_changed {
            let changed = &adapter.management.connections.services.changed;
            let _ = changed.as_ref().map(|event| event.take());
        }
        let busy = busy || watches.has(Watch::Processes);
        self.steering.run(&adapter.port.links, services_changed, busy, now);
        now
    }

    /// Reads the ICMP port unreachable reports of all sockets, and notifies the connections and QPs concerned: the peer's host
    /// has no process with an open device.
    fn handle_reports(&self) {
        let adapter = self.adapter;
        let mut reported: Vec<(Route, Bth)> = Vec::new();
        adapter.port.links.read_reports(|route, quoted| {
            let Some((bth, rest)) = Bth::split(quoted) else { return };
            if bth.destination == MANAGEMENT {
                let mad = rest.get(Deth::LEN..).unwrap_or_default();
                let peer = Gid::from_ip(route.destination.ip());
                let link = adapter.cm_link(route.link);
                // A quote of anything else is forged, or belongs to another process.
                link.act(|manager, now| manager.cm.handle_unreachable(now, peer, mad).ok());
                link.connections.deliver_events(link.transport);
            } else if bth.opcode.info().is_some_and(|info| info.request) {
                // Unreachable responses are ignored: the requester repeats its request, or is gone.
                reported.push((route, bth));
            }
        });
        if reported.is_empty() {
            return;
        }
        for core in adapter.tables.queue_pairs() {
            let mut inner = core.inner.lock();
            let Some(route) = inner.route.filter(|_| !inner.destroyed) else { continue };
            let peer = inner.endpoint.attributes().destination;
            // The last one.
            let found = reported.iter().rfind(|(to, bth)| {
                (to.link, to.sender, to.destination)
                    == (route.link, route.sender, route.destination)
                    && peer == Some(bth.destination)
            });
            let Some((_, bth)) = found else { continue };
            let now = now();
            inner.endpoint.handle_unreachable(now, bth.psn);
            adapter.publish(&core, &mut inner, now);
            drop(inner);
            adapter.kick(&core);
        }
    }

    /// Decides how to sleep, and announces it.
    fn decide(&mut self, pass: Pass, now: u64) -> Sleep {
        let (adapter, signals) = (self.adapter, &self.adapter.signals);
        // Set before the flags are read: a program that stops polling afterwards wakes this thread.
        signals.set_mode(Mode::Dozing);
        let polled = signals.take_polled();
        let programs = Programs { polled, waits: signals.waits(), led_until: signals.led_until() };
        let mode = self.policy.next_mode(pass, programs, now);
        signals.set_mode(mode);
        // Read after the mode was set: a thread that stops waiting afterwards, or leaves ACKs, wakes this one.
        let led_until = signals.led_until();
        let owes_acks = signals.owes_acks();
        let published = self.hw_counters.as_mut();
        let published = published.and_then(|it| it.publish(|| adapter.counters.read(), now));
        let timer = adapter.management.next_timer().min(self.steering.next);
        let due = Due {
            timer: timer.min(published.unwrap_or(NEVER)),
            forwarding: !adapter.forwarding.is_empty(),
            owes_acks,
        };
        let mut sleep = self.policy.sleep(pass.made, led_until, due, now);
        if sleep.mode != mode {
            signals.set_mode(sleep.mode);
        }
        if sleep.runs_timers {
            signals.sleep_until(sleep.deadline.min(signals.timer()));
            // A timer published in the meantime is seen here, and a full socket before the sleep, or this thread is woken.
            sleep.deadline = sleep.deadline.min(signals.timer());
        }
        sleep
    }

    /// Waits for packets and wakeups, at first by spinning, but not past the deadline.
    fn sleep(&mut self, sleep: &Sleep) {
        let (adapter, deadline) = (self.adapter, sleep.deadline);
        self.watches.watch_sockets(sleep.mode == Mode::Watching);
        self.watches.update(adapter);
        let poller = &mut self.watches.poller;
        let mut waited = Ok(0);
        self.found = false;
        while sleep.spins && !self.found && matches!(waited, Ok(0)) {
            // Announcing a sleep that ends at once would cost both processes several system calls.
            self.found = adapter.rings.spin_for_packets();
            if !self.found && !self.policy.spins(deadline, clock::now()) {
                break;
            }
            waited = poller.wait(Some(0));
        }
        if !self.found && matches!(waited, Ok(0)) {
            if sleep.mode == Mode::Watching {
                adapter.rings.sleep();
            }
            waited = poller.wait(Some(deadline).filter(|&deadline| deadline != NEVER));
            if matches!(waited, Ok(0)) {
                self.policy.woke_at(deadline, clock::now());
            }
        }
        adapter.signals.awake();
        if waited.is_ok() && self.watches.has(Watch::Wake) {
            let _ = adapter.signals.waker().take();
        }
    }

    /// The device closes. Forwards packets that still arrive for other processes, and waits for the DREPs of connections that
    /// were disconnected. DREQs are repeated: the first may have reached a third process that exited with it. A kernel would
    /// do this after the process has ended; here nobody else can.
    fn finish(&mut self) {
        let (adapter, watches) = (self.adapter, &mut self.watches);
        let connections = &adapter.management.connections;
        watches.watch_sockets(true);
        let until = clock::now() + DISCONNECT_TIMEOUT;
        let mut next_dreq = clock::now() + DREQ_INTERVAL;
        loop {
            adapter.run(true, Links::All);
            let now = clock::now();
            if connections.unconfirmed() == 0 || now >= until {
                break;
            }
            if now >= next_dreq {
                connections.repeat_disconnects(adapter.mads());
                next_dreq = now + DREQ_INTERVAL;
            }
            let _ = watches.poller.wait(Some(next_dreq));
            // The stop request is known already.
            let _ = adapter.signals.waker().take();
        }
        connections.ledger.remove();
        if let Some(hw_counters) = &mut self.hw_counters {
            hw_counters.finish(&adapter.counters.read());
        }
    }
}

/// Sets the flag when the thread ends, also by a panic.
struct Stopped<'a>(&'a Signals<Event>);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.set_stopped();
    }
}
