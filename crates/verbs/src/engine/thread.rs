//! The device thread: makes progress while the application does something else.

use std::sync::atomic::Ordering;

use ferroce_proto::reason::Reason;
use ferroce_sync::{Mode, NEVER, Signals};
use ferroce_sys::{Event, Interest, Poller, clock, thread};

use super::adapter::Adapter;
use super::hw_counters::HwCounters;
use super::rx::Links;

use super::steering::Steering;
use crate::drive::doze::{self, Doze, Look};
use crate::drive::spin::Spin;

/// How long the thread waits for DREPs when the device closes, and how often it repeats the DREQs: nanoseconds.
pub(super) const DISCONNECT_TIMEOUT: u64 = 500_000_000;
const DREQ_INTERVAL: u64 = 25_000_000;

/// The main loop of the device thread.
pub(crate) fn run(adapter: &Adapter) {
    let signals = &adapter.signals;
    let mut poller = Poller::new();
    let wake = poller.watch(signals.waker(), Interest::Read);
    let mailboxes: Vec<_> =
        adapter.port.links.iter().map(|link| poller.watch(&link.slot, Interest::Read)).collect();
    let connections = &adapter.management.connections;
    let services = connections.services.changed();
    let services = services.map(|event| poller.watch(event, Interest::Read));
    let processes = adapter.is_first().then(|| connections.processes(adapter.mads()));
    let processes = processes.flatten().map(|processes| poller.watch(processes, Interest::Read));
    if processes.is_some() {
        // A capture that started between the opening of the device and the announcement has not found this process.
        crate::tap::look_for_collectors();
    }
    let neighbours = adapter.management.neighbours.watch();
    let neighbours = neighbours.map(|monitor| poller.watch(monitor, Interest::Read));
    let port = adapter.port.state.watch().filter(|_| adapter.is_first());
    let port = port.map(|monitor| poller.watch(monitor, Interest::Read));
    let hub = adapter.rings.hub();
    let rings = hub.map(|hub| poller.watch(hub, Interest::Read));
    let mut sockets: Vec<_> = adapter
        .port
        .links
        .iter()
        .map(|link| poller.watch(&link.receiver, Interest::Read))
        .collect();
    // As one more socket, behind those of the links.
    sockets.extend(hub.map(|hub| poller.watch(&hub.bells(), Interest::Read)));
    let fixed = 1
        + mailboxes.len()
        + services.iter().len()
        + processes.iter().len()
        + neighbours.iter().len()
        + port.iter().len()
        + rings.iter().len()
        + sockets.len();
    // Behind these come descriptors that change: sockets of multicast groups, send sockets, and the send socket whose
    // buffer is full.
    let mut reports = Vec::new();
    let mut watches_sender = false;
    let mut metadata = None;
    thread::set_low_timer_slack();
    thread::set_short_time_slice();
    let mut hw_counters = HwCounters::of(adapter.device.name()).filter(|_| adapter.is_first());
    let mut doze = Doze::new();
    let spin = Spin::default();
    let mut waits = 0;
    let mut late = 0;
    // Packets were found in a ring, without sleeping.
    let mut found = false;
    let mut steering = Steering::new(clock::now());
    let _stopped = Stopped(signals);
    while !signals.is_stopping() {
        // As beside a program that polls.
        adapter.pause.halt_if_requested(|| signals.set_mode(Mode::Dozing));
        if adapter.driver.has_failed() {
            return;
        }
        if rings.is_some_and(|index| poller.readiness(index).readable) {
            adapter.run_hub();
        }
        let forwarded = mailboxes.iter().any(|&index| poller.readiness(index).readable);
        let mut readable = sockets.iter().map(|&index| poller.readiness(index).readable);
        let links = match (readable.position(|readable| readable), readable.any(|more| more)) {
            (Some(link), false) if !forwarded => Links::One(link),
            // The rings come behind the sockets.
            (None, _) if found && !forwarded => Links::One(adapter.port.links.len()),
            _ => Links::All,
        };
        let packet = links != Links::All;
        let unpolled = clock::now().saturating_sub(adapter.last_call.load(Ordering::Relaxed));
        let done = adapter.run(forwarded, links);
        let is_busy = done.is_some_and(|ran| ran.busy);
        let received = done.is_some_and(|ran| ran.received);
        if received {
            spin.end(clock::now(), adapter.socket_bytes());
        }
        adapter.management.run(adapter.mads());
        if processes.is_some_and(|index| poller.readiness(index).readable) {
            connections.end_of_processes(adapter.mads());
        }
        let monitor = neighbours.is_some_and(|index| poller.readiness(index).readable);
        adapter.management.neighbours.run(monitor);
        if port.is_some_and(|index| poller.readiness(index).readable) {
            let was_active = adapter.port.state.is_active();
            adapter.port.state.refresh(&adapter.device);
            if was_active && !adapter.port.state.is_active() {
                adapter.report(&Reason::PortDown);
            }
            adapter.counters.set_active(adapter.port.state.is_active());
        }
        if reports.iter().any(|&index| poller.readiness(index).broken) {
            adapter.handle_reports();
        }
        let now = clock::now();
        let readable =
            |index: Option<_>| index.is_some_and(|index| poller.readiness(index).readable);
        // A process that ended may have freed its slot.
        let busy = is_busy || readable(processes);
        steering.run(adapter, readable(services), busy, now);

        // Set before the flags are read: a program that stops polling afterwards wakes this thread.
        signals.set_mode(Mode::Dozing);
        // If another thread owns the device, it counts as polling. It may have been preempted in the middle of a pass:
        // reading the sockets now would only keep it from being scheduled. The first looks of a doze are shorter than the
        // pauses of a program that polls.
        let polled = signals.take_polled() || done.is_none() || unpolled <= doze::GAP;
        let before = std::mem::replace(&mut waits, signals.waits());
        let look = Look {
            received,
            found: received && unpolled > doze::GAP,
            packet,
            late: std::mem::take(&mut late),
            polled: polled || waits != before,
            led: signals.led_until() > now,
        };
        let mut mode = doze.next(look);
        signals.set_mode(mode);
        // Read after the mode was set: a thread that stops waiting afterwards wakes this one.
        let led_until = signals.led_until();
        if mode == Mode::Detached && led_until <= now {
            mode = Mode::Watching;
            signals.set_mode(mode);
        }
        let interest = if mode == Mode::Watching { Interest::Read } else { Interest::Nothing };
        sockets.iter().for_each(|&index| poller.set(index, interest));

        let mut deadline = adapter.management.next_timer().min(steering.next());
        let dozes = matches!(mode, Mode::Dozing | Mode::Resting);
        if dozes || done.is_none() || !adapter.forwarding.is_empty() {
            deadline = deadline.min(doze.deadline(now));
        } else if signals.owes_acks() {
            deadline = now;
        } else if mode == Mode::Detached {
            deadline = deadline.min(led_until);
        }
        if let Some(hw_counters) = &mut hw_counters {
            let due = hw_counters.publish(|| adapter.counters.read(), now);
            deadline = deadline.min(due.unwrap_or(NEVER));
        }
        // A thread that polls or owns the device runs the QP timers. Waking for them as well would compete with it, and
        // while it is preempted in the middle of a pass, an expired timer would keep this thread spinning.
        if !dozes && done.is_some() {
            signals.sleep_until(deadline.min(signals.timer()));
            // A timer or a full socket published in the meantime is seen here, or this thread is woken.
            deadline = deadline.min(signals.timer());
        }
        let blocked = adapter.blocked_sender();
        let version = Some((adapter.port.groups.version(), adapter.port.senders()));
        if version != metadata || watches_sender || blocked.is_some() {
            poller.truncate(fixed);
            adapter.port.groups.watch(&mut poller);
            reports = adapter.watch_reports(&mut poller);
            metadata = version;
            watches_sender = blocked.is_some();
            blocked.map(|sender| poller.watch(sender, Interest::Write));
        }
        let mut waited = Ok(0);
        found = false;
        // Beside a program that polls there may be no processor to spin on.
        while mode == Mode::Watching && !polled && waited.as_ref().is_ok_and(|&ready| ready == 0) {
            // Announcing a sleep that ends at once would cost both processes several system calls.
            found = adapter.rings.spin_for_packets();
            if !found && spin.wait(clock::now()).is_none_or(|until| until >= deadline) {
                break;
            }
            waited = poller.wait(Some(0));
            if found {
                break;
            }
        }
        if !found && waited.as_ref().is_ok_and(|&ready| ready == 0) {
            if mode == Mode::Watching {
                adapter.rings.sleep();
            }
            waited = poller.wait(Some(deadline).filter(|&deadline| deadline != NEVER));
        }
        if !found && waited.as_ref().is_ok_and(|&ready| ready == 0) {
            late = clock::now().saturating_sub(deadline);
        }
        signals.awake();
        if waited.is_ok() && poller.readiness(wake).readable {
            let _ = signals.waker().take();
        }
    }
    sockets.iter().for_each(|&index| poller.set(index, Interest::Read));
    finish_disconnects(adapter, &mut poller);
    connections.ledger.remove();
    if let Some(hw_counters) = &mut hw_counters {
        hw_counters.finish(&adapter.counters.read());
    }
}

/// Sets the flag when the thread ends, also by a panic.
struct Stopped<'a>(&'a Signals<Event>);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.set_stopped();
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
        adapter.run(true, Links::All);
        let now = clock::now();
        if connections.unconfirmed() == 0 || now >= until {
            return;
        }
        if now >= next_dreq {
            connections.repeat_disconnects(adapter.mads());
            next_dreq = now + DREQ_INTERVAL;
        }
        let _ = poller.wait(Some(next_dreq));
        // The stop request is known already.
        let _ = adapter.signals.waker().take();
    }
}
