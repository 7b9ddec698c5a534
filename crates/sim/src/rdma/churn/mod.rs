//! Programs that create, connect, reset, reconnect and destroy queue pairs, and that deregister and unmap regions, at
//! random while traffic runs.
//!
//! Every byte of a region that may be accessed is a function of its offset, and all requests keep offsets, so that memory
//! shows what was written wherever it was written; memory that is deregistered or unmapped is filled with another byte,
//! which must stay. The invariants:
//!
//! - a posted request completes or is flushed within [`BOUND`] unless its queue pair is reset or destroyed, in order;
//! - a request that was posted after its region was deregistered or unmapped, or its window lost its queue pair, does not
//!   succeed;
//! - a message is received whole, in a receive request that was posted and did not complete before;
//! - a datagram is received once, and again only if the network duplicated frames, by the QP or the members of the group that
//!   it was sent to;
//! - in ERR, no request is left in the RQ;
//! - a WRITE or READ that succeeded has filled its memory, also if that takes time;
//! - if a copy fails that had begun, its QP is in an error state within [`BOUND`], and so is the requester, whose request fails;
//! - a reset, a destruction and half of the deregistrations wait for what has not finished, and nothing is accessed after them;
//! - each QP counts as many unfinished accesses as the memory;
//! - an SRQ reports that its limit was reached;
//! - nothing completes that belongs to a queue pair that was reset or destroyed;
//! - when all queue pairs are destroyed, no credit is in use and nobody waits for it;
//! - both sides of a connection that was established by messages agree.
//!
//! Processes that share machines also pause, end and begin again. There:
//!
//! - no transmit queue holds more records than it has room for, and nobody waits for one that has room, without a wakeup;
//! - nothing is read from a transmit queue that a QP has written after its destruction;
//! - what a process forwards to another one arrives in order.

mod attempts;
mod connection;
mod datagrams;
mod memory;
mod processes;
mod queue_pair;
mod requests;

use std::time::Duration;

use ferroce_proto::qp::State;
use ferroce_proto::time::Instant;
use ferroce_wire::number::Qpn;

use super::Simulation;
use super::host::{Counted, Endpoint, RdmaHost};
use super::layout::{RC_SRQ, XRC_SRQS};
use super::memory::Regions;
use super::summary::Summary;
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::fault::WhilePaused;
use crate::host::HostId;
use crate::limit::Outcome;
use crate::random::Random;
use crate::scenario::Scenario;
use connection::Connection;
use datagrams::Datagrams;
use memory::{Pool, SharedReceives};
use processes::Processes;

/// The longest time from the post of a request to its completion. Retries against a peer that is gone take 70 ms, and
/// requests behind those of others wait as long.
const BOUND: Duration = Duration::from_millis(400);

/// Actions for each request of the workload.
const ACTIONS: u32 = 8;

/// The state of a run.
struct Churn<'a, T: EventLog> {
    simulation: &'a Simulation,
    fabric: Fabric<RdmaHost, T>,
    random: Random,
    connections: Vec<Connection>,
    datagrams: Datagrams,
    pools: Vec<Pool>,
    shared: Vec<SharedReceives>,
    summary: Summary,
    violations: Vec<String>,
    processes: Processes,
    /// What the processes did that have ended.
    counted: Counted,
}

/// Runs a simulation of [`Scenario::Churn`](crate::Scenario::Churn).
pub(super) fn run<T: EventLog>(simulation: &Simulation, event_log: T) -> (Summary, T) {
    let Simulation { scenario, seed, workload } = *simulation;
    let processes = Processes::new(seed, workload, scenario == Scenario::Machines);
    let settings = scenario.settings(seed, processes.len() as u32);
    let random = Random::new(seed).stream("churn");
    let mut churn = Churn {
        simulation,
        fabric: Fabric::with_event_log(seed, settings, event_log),
        connections: Vec::new(),
        datagrams: Datagrams::new(&workload, &processes, random.stream("datagrams")),
        pools: Vec::new(),
        shared: Vec::new(),
        summary: Summary::new(workload),
        violations: Vec::new(),
        random: random.stream("actions"),
        counted: Counted::default(),
        processes,
    };
    for index in 0..churn.processes.len() {
        let host = churn.make(index);
        churn.processes.add(index, host, &mut churn.fabric);
    }
    for number in 0..workload.connections as usize {
        let (hosts, random) = (churn.processes.len(), &mut churn.random);
        churn.connections.extend(Connection::new(number, hosts, &workload, random));
    }
    churn.actions();
    churn.end();
    let Churn { fabric, mut summary, violations, counted, .. } = churn;
    let all = fabric.hosts().map(|(_, host)| host.counted());
    let all = all.fold(counted, Counted::plus);
    (summary.records, summary.forwarded) = (all.records, all.forwarded);
    summary.close(&fabric, violations);
    (summary, fabric.into_event_log())
}

impl<T: EventLog> Churn<'_, T> {
    /// Acts at random times.
    fn actions(&mut self) {
        let workload = self.simulation.workload;
        for _ in 0..ACTIONS * workload.requests * workload.connections {
            // Mostly less than a round trip, so that packets are in flight; sometimes more than the ACK timeout.
            let longest = if self.random.below(16) == 0 { 5_000_000 } else { 30_000 };
            let pause = Duration::from_nanos(self.random.between(1..=longest));
            let until = self.fabric.now() + pause;
            if !self.run(Some(until)) {
                return;
            }
            self.act();
        }
    }

    /// Makes a host with its regions and SRQs.
    fn make(&mut self, index: usize) -> RdmaHost {
        let largest = self.simulation.workload.largest;
        let mut host = self.processes.make(index);
        host.memory.map();
        let pool = Pool::new(&mut host.memory, largest);
        match self.pools.get_mut(index) {
            Some(before) => *before = pool,
            None => self.pools.push(pool),
        }
        for srq in [RC_SRQ].into_iter().chain(XRC_SRQS) {
            self.shared.push(SharedReceives::new(index, srq, &mut host.memory, largest));
        }
        host
    }

    /// Pauses a process, ends one, or lets one begin again.
    fn disturb(&mut self) {
        let Self { processes, fabric, random, .. } = self;
        let index = random.below(processes.len() as u64) as usize;
        match random.below(6) {
            0..=2 => processes.pause(index, fabric, random),
            3 => {
                self.counted = fabric
                    .host(HostId(index as u32))
                    .map_or(self.counted, |host| self.counted.plus(host.counted()));
                if processes.end(index, fabric) {
                    self.connections.iter_mut().for_each(|one| one.process_ended(index));
                    self.datagrams.process_ended(index, fabric);
                    self.shared.retain(|one| one.host != index);
                }
            }
            _ => {
                if let Some(index) = processes.down(random) {
                    let host = self.make(index);
                    self.fabric.restart(HostId(index as u32), host);
                }
            }
        }
    }

    /// Runs until a time, or until no event is left, and verifies what has completed. Returns whether to go on.
    fn run(&mut self, until: Option<Instant>) -> bool {
        while let Some((at, id)) = self.processes.next_resume(until) {
            // Whether it ended is seen below.
            let _ = self.fabric.run_to(at);
            self.fabric.resume(id, WhilePaused::Wait);
        }
        let outcome = match until {
            Some(until) => self.fabric.run_to(until),
            None => self.fabric.run(),
        };
        if matches!(outcome, Outcome::LimitReached(_)) {
            self.violations.push(format!("the run did not end: {outcome}"));
        }
        // When no event is left, a failure has had all its consequences.
        let bound = until.map_or(Duration::ZERO, |_| BOUND);
        for connection in &mut self.connections {
            for end in 0..2 {
                let mut found =
                    connection.collect(end, &mut self.fabric, &mut self.shared, &mut self.summary);
                if end == 1 {
                    let is_over = until.is_none();
                    let established = &mut self.summary.established;
                    found = found
                        .and_then(|()| connection.note_attempt(&self.fabric, is_over, established));
                    let mut verify = |end| connection.verify_failure(end, &self.fabric, bound);
                    found = found.and_then(|()| verify(0)).and_then(|()| verify(1));
                }
                if let (Err(what), true) = (found, self.violations.len() < 10) {
                    let number = connection.number;
                    self.violations.push(format!("connection {number}, end {end}: {what}"));
                    if self.summary.suspects.is_empty() {
                        (self.summary.suspects, self.summary.suspect_pairs) =
                            connection.identity(&self.fabric);
                    }
                }
            }
        }
        let Self { datagrams, fabric, shared, summary, .. } = self;
        self.violations.extend(datagrams.collect(fabric, shared, summary, bound).err());
        for (number, pool) in self.pools.iter_mut().enumerate() {
            let id = HostId(number as u32);
            if pool.is_waiting() {
                self.fabric.with_host(id, |host, _| pool.settle(&mut host.memory));
            }
            let Some(host) = self.fabric.host(id) else { continue };
            let is_destroyed = |qpn: &Qpn| host.endpoints[host.index_of(*qpn)].destroyed();
            if let Some(late) = host.memory.accessors().into_iter().find(is_destroyed) {
                let what = "is destroyed, but an access of it is unfinished";
                self.violations.push(format!("host {number}: {late:?} {what}"));
            }
            let found = host.check_machine();
            self.violations.extend(found.map(|what| format!("host {number}: {what}")));
        }
        for shared in &mut self.shared {
            self.violations.extend(shared.verify(&mut self.fabric));
        }
        self.violations.is_empty()
    }

    fn act(&mut self) {
        if self.processes.share() && self.random.below(40) == 0 {
            return self.disturb();
        }
        let Self { connections, pools, shared, fabric, random, processes, .. } = self;
        self.summary.requests += self.datagrams.act(fabric, pools) as u64;
        if connections.is_empty() {
            return;
        }
        let index = random.below(connections.len() as u64) as usize;
        let connection = &mut connections[index];
        let end = random.below(2) as usize;
        // What failed stays so for a while.
        let kind = if connection.has_failed() && random.below(4) == 0 {
            7 + random.below(7)
        } else {
            random.below(100)
        };
        match kind {
            0 | 1 => connection.change(end, State::Reset, fabric),
            2 => connection.change(end, State::Error, fabric),
            3 | 4 => connection.destroy(end, fabric),
            5 | 6 => connection.bind(end, fabric, pools, random),
            7..=10 => connection.reconnect(fabric, processes, random),
            11..=13 => connection.connect_by_messages(fabric, processes, random),
            14 => connection.disconnect(end, fabric),
            15..=19 => {
                let host = random.below(pools.len() as u64) as usize;
                let unmaps = random.below(3) == 0;
                let pool = &mut pools[host];
                fabric.with_host(HostId(host as u32), |host, _| {
                    pool.change(&mut host.memory, unmaps, random);
                });
            }
            20..=34 => {
                // None if no process is up.
                let one = random.below(shared.len().max(1) as u64) as usize;
                shared.get_mut(one).into_iter().for_each(|shared| shared.fill(fabric, random));
            }
            35..=49 => connection.post_receives(end, fabric, random),
            _ => {
                let posted = connection.post(end, fabric, pools, random);
                self.summary.requests += posted as u64;
            }
        }
    }

    /// Lets everything complete, destroys all queue pairs, and verifies what is left.
    fn end(&mut self) {
        if !self.violations.is_empty() || !self.run(None) {
            return;
        }
        for connection in &mut self.connections {
            if let Some(what) = connection.unfinished() {
                self.violations
                    .push(format!("connection {}: {what} at the end", connection.number));
                (self.summary.suspects, self.summary.suspect_pairs) =
                    connection.identity(&self.fabric);
            }
            (0..2).for_each(|end| connection.destroy(end, &mut self.fabric));
        }
        self.violations.extend(self.datagrams.end(&mut self.fabric));
        self.run(None);
        for (number, pool) in self.pools.iter().enumerate() {
            let violations = &mut self.violations;
            self.fabric.with_host(HostId(number as u32), |host, _| {
                if let (in_use, waiting @ 1..) | (in_use @ 1.., waiting) = host.credit() {
                    violations.push(format!(
                        "host {number}: {in_use} bytes of credit in use and {waiting} QPs waiting for it without a QP"
                    ));
                }
                if let Some(left) = host.endpoints.iter().find(|one| !one.destroyed()) {
                    violations.push(format!("host {number}: not destroyed at the end: {left:?}"));
                }
                let late = |one: &&Endpoint| {
                    one.send_completions.len() + one.receive_completions.len() > 0
                };
                if let Some(one) = host.endpoints.iter().filter(|one| one.destroyed()).find(late) {
                    violations.push(format!("host {number}: completions after it was destroyed: {one:?}"));
                }
                host.memory.collect();
                let found = pool.verify(&host.memory);
                violations.extend(found.map(|what| format!("host {number}: {what}")));
                self.summary.damaged += host.damaged;
            });
        }
    }
}

/// The byte at an offset of every region.
fn pattern(offset: usize) -> u8 {
    (offset ^ (offset >> 8).wrapping_mul(0x9d)) as u8
}

/// The bytes of a region from an offset on.
fn contents(offset: usize, length: usize) -> Vec<u8> {
    (offset..offset + length).map(pattern).collect()
}

/// Reads memory of a region.
fn read(memory: &Regions, region: usize, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    memory.read(region, offset, &mut bytes);
    bytes
}
