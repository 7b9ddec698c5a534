//! The way of a frame: host, uplink, switch, downlink, host.

use super::Fabric;
use crate::event::Event;
use crate::flight::FlightId;
use crate::header;
use crate::host::{Destination, Host, HostId};
use crate::limit::What;
use crate::link::{self, Fate};
use crate::statistics::DropCause;
use crate::trace::{Point, Record, Trace};

/// Which link of a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

impl<H: Host, T: Trace> Fabric<H, T> {
    /// Sends all that a host has to send, and looks when it wants to be woken.
    pub(super) fn drain(&mut self, id: HostId) {
        while self.may_send(id) {
            let Some(host) = self.hosts[id.index()].host.as_mut() else { return };
            let flight = self.flights.begin(id);
            let slot = self.flights.get_mut(flight);
            let Some(destination) = host.poll_transmit(self.now, &mut slot.bytes) else {
                self.flights.end(flight);
                break;
            };
            slot.destination = destination;
            let bytes = slot.bytes.len() as u64;
            let statistics = &mut self.hosts[id.index()].statistics;
            statistics.sent += 1;
            statistics.sent_bytes += bytes;
            self.totals.sent += 1;
            self.totals.in_flight += 1;
            self.progress.note(self.now, id, What::Sent);
            self.carry(flight, id, Way::Up);
        }
        self.arm(id);
    }

    /// Whether a host may send at this moment. If not, and it is not paused, it is asked again when it may.
    fn may_send(&mut self, id: HostId) -> bool {
        let slot = &mut self.hosts[id.index()];
        if slot.pauses > 0 || slot.awaits_room {
            return false;
        }
        // Asked before each frame: a host that has always one more would never come back from here.
        if let Some(limit) = self.progress.exceeded(&self.limits, self.now) {
            self.exceeded = Some(limit);
            slot.awaits_room = true;
            self.events.push(self.now, Event::Poll(id));
            return false;
        }
        let Some(limit) = self.send_buffer else { return true };
        if slot.uplink.backlog(self.now) < limit {
            return true;
        }
        // A limit of nothing is no way to send anything: then frames go one by one.
        let Some(room) = slot.uplink.next_departure() else { return true };
        slot.awaits_room = true;
        self.events.push(room, Event::Poll(id));
        false
    }

    /// Schedules the host's deadline.
    pub(super) fn arm(&mut self, id: HostId) {
        let slot = &mut self.hosts[id.index()];
        let Some(host) = slot.host.as_mut().filter(|_| slot.pauses == 0) else { return };
        let Some(deadline) = host.poll_timeout() else { return };
        let at = deadline.max(self.now);
        // An event that comes too early finds the later deadline; only an earlier one needs an event of its own. So a
        // deadline that moves with every frame, as retransmission timers do, costs next to nothing.
        if slot.timer.is_none_or(|scheduled| at < scheduled) {
            slot.timer = Some(at);
            self.events.push(at, Event::Timer(id));
        }
    }

    /// Gives a frame to a link of `host`, and schedules its arrival at the other end.
    fn carry(&mut self, flight: FlightId, host: HostId, way: Way) {
        let slot = &mut self.hosts[host.index()];
        let link = if way == Way::Up { &mut slot.uplink } else { &mut slot.downlink };
        let reordered = link.statistics.reordered;
        let frame = self.flights.get_mut(flight);
        let (fate, faults) = link.pass(self.now, &frame.bytes);
        if way == Way::Up {
            let point = match fate {
                Fate::Dropped(cause) => Point::SentInVain(cause),
                Fate::Arrives { .. } => Point::Sent,
            };
            let record = Record { time: self.now, point, host, frame: &frame.bytes, faults };
            self.hash.record(&record);
            self.trace.record(&record);
        }
        self.totals.marked += u64::from(faults.marked);
        self.totals.corrupted += u64::from(!faults.flipped.is_empty());
        let before = (frame.faults.duplicated, frame.faults.delayed);
        if !faults.is_empty() {
            link::apply(faults, &mut frame.bytes);
            frame.faults.extend(faults);
        }
        self.totals.reordered += link.statistics.reordered - reordered;
        let event = |flight| match way {
            Way::Up => Event::Switch(flight),
            Way::Down => Event::InboundPacket(flight, host),
        };
        match fate {
            Fate::Dropped(cause) if way == Way::Up => self.end(flight, cause),
            Fate::Dropped(cause) => self.drop_frame(flight, cause),
            Fate::Arrives { at, copy } => {
                self.events.push(at, event(flight));
                if let Some(at) = copy {
                    let copy = self.flights.copy(flight);
                    let faults = &mut self.flights.get_mut(copy).faults;
                    // Marks and flipped bits are in both; the longer way is the original's alone.
                    faults.is_copy = true;
                    (faults.duplicated, faults.delayed) = before;
                    self.totals.duplicated += 1;
                    self.totals.in_flight += 1;
                    self.events.push(at, event(copy));
                }
            }
        }
    }

    /// A frame is at the switch.
    pub(super) fn forward(&mut self, flight: FlightId) {
        let frame = self.flights.get(flight);
        let source = frame.source;
        self.progress.note(self.now, source, What::Forwarded);
        let receiver = match frame.destination {
            Destination::Host(host) => Some(host),
            Destination::Header => {
                let address = header::destination(&frame.bytes);
                if let Some(group) = address.and_then(|address| self.groups.get(&address)) {
                    let mut members: Vec<HostId> = group.iter().copied().collect();
                    members.retain(|member| *member != source && self.knows(*member));
                    return self.replicate(flight, &members);
                }
                address.and_then(|address| self.routes.get(&address)).copied()
            }
        };
        match receiver.filter(|receiver| self.knows(*receiver)) {
            Some(receiver) => self.send_down(flight, receiver),
            None => self.drop_frame(flight, DropCause::Unroutable),
        }
    }

    fn knows(&self, host: HostId) -> bool {
        host.index() < self.hosts.len()
    }

    fn replicate(&mut self, flight: FlightId, members: &[HostId]) {
        let Some((last, others)) = members.split_last() else {
            return self.drop_frame(flight, DropCause::Unroutable);
        };
        for member in others {
            let copy = self.flights.copy(flight);
            self.totals.replicated += 1;
            self.totals.in_flight += 1;
            self.send_down(copy, *member);
        }
        self.send_down(flight, *last);
    }

    fn send_down(&mut self, flight: FlightId, receiver: HostId) {
        if self.cuts.separate(self.flights.get(flight).source, receiver) {
            return self.drop_frame(flight, DropCause::Partition);
        }
        self.carry(flight, receiver, Way::Down);
    }

    /// A frame is at a host.
    pub(super) fn arrive(&mut self, flight: FlightId, id: HostId) {
        let slot = &mut self.hosts[id.index()];
        if slot.host.is_none() {
            self.drop_frame(flight, DropCause::HostDown);
        } else if slot.dropping > 0 {
            self.drop_frame(flight, DropCause::HostPaused);
        } else if slot.pauses > 0 {
            slot.waiting.push_back(flight);
        } else {
            self.deliver(flight, id);
        }
    }

    /// A host takes a frame.
    pub(super) fn deliver(&mut self, flight: FlightId, id: HostId) {
        self.progress.note(self.now, id, What::Delivered);
        self.show(Point::Delivered, id, flight);
        let frame = self.flights.get(flight);
        let slot = &mut self.hosts[id.index()];
        slot.statistics.delivered += 1;
        slot.statistics.delivered_bytes += frame.bytes.len() as u64;
        self.totals.delivered += 1;
        self.totals.in_flight -= 1;
        if let Some(host) = &mut slot.host {
            host.handle_frame(self.now, &frame.bytes);
        }
        self.flights.end(flight);
        self.drain(id);
    }

    /// Drops a frame behind its uplink.
    pub(super) fn drop_frame(&mut self, flight: FlightId, cause: DropCause) {
        let source = self.flights.get(flight).source;
        self.progress.note(self.now, source, What::Dropped(cause));
        self.show(Point::Dropped(cause), source, flight);
        self.end(flight, cause);
    }

    /// Counts a frame that goes no further.
    fn end(&mut self, flight: FlightId, cause: DropCause) {
        let source = self.flights.get(flight).source;
        self.hosts[source.index()].statistics.dropped.add(cause);
        self.totals.dropped.add(cause);
        self.totals.in_flight -= 1;
        self.flights.end(flight);
    }

    fn show(&mut self, point: Point, host: HostId, flight: FlightId) {
        let flight = self.flights.get(flight);
        let (frame, faults) = (flight.bytes.as_slice(), &flight.faults);
        let record = Record { time: self.now, point, host, frame, faults };
        self.hash.record(&record);
        self.trace.record(&record);
    }
}
