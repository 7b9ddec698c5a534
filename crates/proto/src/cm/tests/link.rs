//! A simulated link between two managers with seeded faults, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;
use std::vec::Vec;

use super::super::{
    AcceptParameters, ConnectionId, ConnectionManager, DrepData, Event, RtuData, Transmit,
    private_data,
};
use super::{SERVICE, gid};
use crate::time::Instant;
use ferroce_wire::mad::MAD_LEN;
use ferroce_wire::number::{Psn, Qpn};

/// SplitMix64.
pub(super) struct Prng(pub(super) u64);

impl Prng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub(super) struct Host {
    pub(super) number: u8,
    pub(super) manager: ConnectionManager,
    pub(super) events: Vec<Event>,
    pub(super) sent: Vec<(Instant, Transmit)>,
    /// Accepts every request.
    pub(super) willing: bool,
    pub(super) accepts: u32,
    lost_in_a_row: u32,
}

impl Host {
    fn new(number: u8) -> Self {
        Self {
            number,
            manager: super::manager(number),
            events: Vec::new(),
            sent: Vec::new(),
            willing: true,
            accepts: 0,
            lost_in_a_row: 0,
        }
    }

    /// Parameters for accepting, with a new QPN each time.
    pub(super) fn acceptance(count: u32) -> AcceptParameters {
        AcceptParameters {
            responder_resources: 3,
            initiator_depth: 2,
            private_data: private_data(b"welcome").unwrap(),
            ..AcceptParameters::new(Qpn(0x1000 + count), Psn(0x70_0000 + count))
        }
    }

    fn consume(&mut self, now: Instant) {
        while let Some(event) = self.manager.poll_event() {
            self.events.push(event.clone());
            let manager = &mut self.manager;
            let result = match event {
                _ if !self.willing => Ok(()),
                Event::Request(id, _) => {
                    let acceptance = Self::acceptance(self.accepts);
                    self.accepts += 1;
                    manager.accept(now, id, &acceptance)
                }
                Event::Reply(id, _) => manager.ready(id, RtuData::default()),
                Event::DisconnectRequest(id, _) => {
                    manager.confirm_disconnect(now, id, DrepData::default())
                }
                _ => Ok(()),
            };
            // The peer's state may have changed while the event waited.
            let _ = result;
        }
    }

    pub(super) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }
}

pub(super) struct Link {
    pub(super) now: Instant,
    /// Host 12 is active, host 11 listens.
    pub(super) hosts: [Host; 2],
    /// Messages in flight by time of arrival: destination host and contents.
    flights: BTreeMap<(Instant, u64), (usize, [u8; MAD_LEN])>,
    flown: u64,
    pub(super) prng: Prng,
    pub(super) loss: u64,
    pub(super) duplication: u64,
    pub(super) jitter: Duration,
    /// Maximum consecutive losses per direction.
    pub(super) longest_burst: u32,
}

impl Link {
    pub(super) fn new(seed: u64) -> Self {
        let mut hosts = [Host::new(12), Host::new(11)];
        hosts[1].manager.listen(SERVICE, 64).unwrap();
        Self {
            now: Instant::ZERO,
            hosts,
            flights: BTreeMap::new(),
            flown: 0,
            prng: Prng(seed),
            loss: 0,
            duplication: 0,
            jitter: Duration::ZERO,
            longest_burst: u32::MAX,
        }
    }

    pub(super) fn active(&mut self) -> &mut ConnectionManager {
        &mut self.hosts[0].manager
    }

    pub(super) fn passive(&mut self) -> &mut ConnectionManager {
        &mut self.hosts[1].manager
    }

    /// The passive side's connection, if a REQ arrived.
    pub(super) fn requested(&self) -> Option<ConnectionId> {
        self.hosts[1].events.iter().rev().find_map(|event| match event {
            Event::Request(id, _) => Some(*id),
            _ => None,
        })
    }

    fn drain(&mut self) {
        for index in 0..2 {
            self.hosts[index].consume(self.now);
            while let Some(transmit) = self.hosts[index].manager.poll_transmit() {
                self.hosts[index].sent.push((self.now, transmit));
                assert_eq!(transmit.destination, gid(self.hosts[1 - index].number));
                let lose = self.prng.chance(self.loss)
                    && self.hosts[index].lost_in_a_row < self.longest_burst;
                let host = &mut self.hosts[index];
                host.lost_in_a_row = if lose { host.lost_in_a_row + 1 } else { 0 };
                let copies = match (lose, self.prng.chance(self.duplication)) {
                    (true, _) => 0,
                    (false, doubled) => 1 + u64::from(doubled),
                };
                for _ in 0..copies {
                    let jitter = self.prng.below(self.jitter.as_nanos() as u64 + 1);
                    let arrival = self.now + Duration::from_nanos(10_000 + jitter);
                    self.flown += 1;
                    self.flights.insert((arrival, self.flown), (1 - index, transmit.to_mad()));
                }
            }
        }
    }

    /// Sets the clock of both hosts. Messages in flight take as long as before.
    pub(super) fn set_clock(&mut self, now: Instant) {
        let flights = std::mem::take(&mut self.flights).into_iter();
        let moved = flights
            .map(|((arrival, number), message)| ((now + arrival.since(self.now), number), message));
        self.flights = moved.collect();
        self.now = now;
    }

    /// Runs until no message is in flight and no timer runs, or until `end`.
    pub(super) fn run_until(&mut self, end: Instant) {
        loop {
            self.drain();
            let arrival = self.flights.keys().next().map(|&(arrival, _)| arrival);
            let timeouts = self.hosts.iter().filter_map(|host| host.manager.poll_timeout());
            let Some(next) = timeouts.chain(arrival).min().filter(|&next| next <= end) else {
                self.now = self.now.max(if end == NO_END { self.now } else { end });
                return;
            };
            self.now = self.now.max(next);
            for host in &mut self.hosts {
                host.manager.handle_timeout(self.now);
            }
            while let Some(first) = self.flights.first_entry() {
                if first.key().0 > self.now {
                    break;
                }
                let (to, mad) = first.remove();
                let from = gid(self.hosts[1 - to].number);
                let _ = self.hosts[to].manager.handle_mad(self.now, from, &mad);
                self.drain();
            }
        }
    }

    pub(super) fn run(&mut self) {
        self.run_until(NO_END);
    }

    /// Asserts that no state is left.
    pub(super) fn assert_empty(&self) {
        for host in &self.hosts {
            assert_eq!(host.manager.connections(), 0);
            assert_eq!(host.manager.half_open(), 0);
            assert_eq!(host.manager.timers.len(), 0);
            assert_eq!(host.manager.table.index_sizes(), (0, 0, 0));
        }
    }
}

pub(super) const NO_END: Instant = Instant::from_nanos(u64::MAX);
