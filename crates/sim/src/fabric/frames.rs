//! The path of a frame: host, uplink, switches and the links between them, downlink, host.

use super::Fabric;
use crate::event::Event;
use crate::event_log::{EventLog, FrameEvent, FrameRecord};
use crate::flight::FlightId;
use crate::header;
use crate::host::{Destination, Host, HostId};
use crate::limit::EventKind;
use crate::link::{self, Fate};
use crate::statistics::DropCause;
use crate::topology::{Topology, TrunkId};

/// One direction of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hop {
    /// From this host to its switch.
    Up(HostId),
    /// Between switches.
    Trunk(TrunkId),
    /// From its switch to this host.
    Down(HostId),
}

impl<H: Host, T: EventLog> Fabric<H, T> {
    /// Sends all frames that a host has, and schedules its timer.
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
            self.counter.note(self.now, id, EventKind::Sent);
            self.carry(flight, Hop::Up(id));
        }
        self.schedule_notifications(id);
        self.arm(id);
    }

    /// Whether a host may send now. If not, and it is not paused, a poll is scheduled for when it may.
    fn may_send(&mut self, id: HostId) -> bool {
        let slot = &mut self.hosts[id.index()];
        if slot.pauses > 0 || slot.poll_scheduled {
            return false;
        }
        // Checked before each frame: a host that always has another frame would never return from here.
        if let Some(limit) = self.counter.exceeded(&self.limits, self.now) {
            self.exceeded = Some(limit);
            slot.poll_scheduled = true;
            self.events.push(self.now, Event::Poll(id));
            return false;
        }
        let Some(limit) = self.send_buffer else { return true };
        if slot.uplink.backlog(self.now) < limit {
            return true;
        }
        // With a limit of 0, frames are sent one by one.
        let Some(next_departure) = slot.uplink.next_departure() else { return true };
        slot.poll_scheduled = true;
        self.events.push(next_departure, Event::Poll(id));
        false
    }

    /// Schedules the host's deadline.
    pub(super) fn arm(&mut self, id: HostId) {
        let slot = &mut self.hosts[id.index()];
        let Some(host) = slot.host.as_mut().filter(|_| slot.pauses == 0) else { return };
        let Some(deadline) = host.poll_timeout() else { return };
        let at = deadline.max(self.now);
        // An event that fires too early finds the later deadline; only an earlier deadline needs another event. So a
        // deadline that moves with every frame, such as a retransmission timer, costs next to nothing.
        if slot.timer.is_none_or(|scheduled| at < scheduled) {
            slot.timer = Some(at);
            self.events.push(at, Event::Timer(id));
        }
    }

    /// Passes a frame to a link, and schedules its arrival at the other end.
    fn carry(&mut self, flight: FlightId, hop: Hop) {
        let link = match hop {
            Hop::Up(host) => &mut self.hosts[host.index()].uplink,
            Hop::Trunk(trunk) => &mut self.trunks[trunk.index()],
            Hop::Down(host) => &mut self.hosts[host.index()].downlink,
        };
        let reordered = link.statistics.reordered;
        let frame = self.flights.get_mut(flight);
        let (fate, faults) = link.pass(self.now, &frame.bytes);
        let event = match fate {
            Fate::Dropped(cause) => FrameEvent::SentThenDropped(cause),
            Fate::Arrives { .. } => FrameEvent::Sent,
        };
        let (time, host) = (self.now, frame.source);
        let record = FrameRecord { time, event, host, frame: &frame.bytes, faults };
        match hop {
            Hop::Up(_) => {
                match self.hashed_bytes {
                    None => self.hash.record(&record),
                    Some(bytes) => self.hash.record_start(&record, bytes),
                }
                self.event_log.record(&record);
            }
            Hop::Trunk(trunk) => self.event_log.crosses(trunk, &record),
            Hop::Down(_) => {}
        }
        self.totals.marked += u64::from(faults.marked);
        self.totals.corrupted += u64::from(!faults.flipped.is_empty());
        let before = (frame.faults.duplicated, frame.faults.delayed);
        if !faults.is_empty() {
            link::apply(faults, &mut frame.bytes);
            frame.faults.extend(faults);
        }
        self.totals.reordered += link.statistics.reordered - reordered;
        let event = |flight| match hop {
            Hop::Up(_) => Event::Switch(flight),
            Hop::Trunk(trunk) => Event::Trunk(flight, trunk),
            Hop::Down(host) => Event::Arrival(flight, host),
        };
        match fate {
            Fate::Dropped(cause) if matches!(hop, Hop::Up(_)) => self.end(flight, cause),
            Fate::Dropped(cause) => self.drop_frame(flight, cause),
            Fate::Arrives { at, copy } => {
                self.events.push(at, event(flight));
                if let Some(at) = copy {
                    let copy = self.flights.copy(flight);
                    let faults = &mut self.flights.get_mut(copy).faults;
                    // Both have the marks and flipped bits; only the original has the extra delay.
                    faults.is_copy = true;
                    (faults.duplicated, faults.delayed) = before;
                    self.totals.duplicated += 1;
                    self.totals.in_flight += 1;
                    self.events.push(at, event(copy));
                }
            }
        }
    }

    /// Forwards a frame at the switch of its sender.
    pub(super) fn forward(&mut self, flight: FlightId) {
        let frame = self.flights.get(flight);
        let source = frame.source;
        self.counter.note(self.now, source, EventKind::Forwarded);
        let receiver = match frame.destination {
            Destination::Host(host) => Some(host),
            Destination::Header => {
                let address = header::destination(&frame.bytes);
                if let Some(group) = address.and_then(|address| self.groups.get(&address)) {
                    let mut members: Vec<HostId> = group.iter().copied().collect();
                    members.retain(|member| *member != source && self.has_host(*member));
                    return self.replicate(flight, &members);
                }
                match address {
                    Some(address) if self.machines.is_empty() => self.routes.get(&address).copied(),
                    Some(address) => {
                        // Taken out while the rest of the fabric is used.
                        let bytes = std::mem::take(&mut self.flights.get_mut(flight).bytes);
                        let receiver = self.steer(address, &bytes);
                        self.flights.get_mut(flight).bytes = bytes;
                        receiver
                    }
                    None => None,
                }
            }
        };
        match receiver.filter(|receiver| self.has_host(*receiver)) {
            Some(receiver) => self.send_down(flight, receiver),
            None => self.drop_frame(flight, DropCause::Unroutable),
        }
    }

    fn has_host(&self, host: HostId) -> bool {
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
        if self.active_partitions.separate(self.flights.get(flight).source, receiver) {
            return self.drop_frame(flight, DropCause::Partition);
        }
        if let Topology::LeafSpine(network) = self.topology {
            let frame = self.flights.get_mut(flight);
            let (from, to) = (network.leaf(frame.source), network.leaf(receiver));
            if from != to {
                // The route is decided here, so that switches behind need not look it up.
                frame.destination = Destination::Host(receiver);
                let spine = network.spine(&frame.bytes, self.ecmp_salt);
                return self.carry(flight, Hop::Trunk(network.up(from, spine)));
            }
        }
        self.carry(flight, Hop::Down(receiver));
    }

    /// Forwards a frame at the far end of a link between switches.
    pub(super) fn end_of_trunk(&mut self, flight: FlightId, trunk: TrunkId) {
        let frame = self.flights.get(flight);
        let (source, destination) = (frame.source, frame.destination);
        self.counter.note(self.now, source, EventKind::Forwarded);
        let (Topology::LeafSpine(network), Destination::Host(receiver)) =
            (self.topology, destination)
        else {
            return self.drop_frame(flight, DropCause::Unroutable);
        };
        self.carry(
            flight,
            match network.spine_of(trunk) {
                Some(spine) => Hop::Trunk(network.down(spine, network.leaf(receiver))),
                None => Hop::Down(receiver),
            },
        );
    }

    /// Handles the arrival of a frame at a host.
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

    /// Delivers a frame to a host.
    pub(super) fn deliver(&mut self, flight: FlightId, id: HostId) {
        self.counter.note(self.now, id, EventKind::Delivered);
        self.log(FrameEvent::Delivered, id, flight);
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

    /// Drops a frame that has left its uplink.
    pub(super) fn drop_frame(&mut self, flight: FlightId, cause: DropCause) {
        let source = self.flights.get(flight).source;
        self.counter.note(self.now, source, EventKind::Dropped(cause));
        self.log(FrameEvent::Dropped(cause), source, flight);
        self.end(flight, cause);
    }

    /// Counts a dropped frame and frees its slot.
    fn end(&mut self, flight: FlightId, cause: DropCause) {
        let source = self.flights.get(flight).source;
        self.hosts[source.index()].statistics.dropped.add(cause);
        self.totals.dropped.add(cause);
        self.totals.in_flight -= 1;
        self.flights.end(flight);
    }

    fn log(&mut self, event: FrameEvent, host: HostId, flight: FlightId) {
        let flight = self.flights.get(flight);
        let (frame, faults) = (flight.bytes.as_slice(), &flight.faults);
        let record = FrameRecord { time: self.now, event, host, frame, faults };
        match self.hashed_bytes {
            None => self.hash.record(&record),
            Some(bytes) => self.hash.record_start(&record, bytes),
        }
        self.event_log.record(&record);
    }
}
