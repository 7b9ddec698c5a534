//! RDMA hosts on the fabric: random programs of work requests over all transport services, checked to the last byte.
//!
//! A [`Simulation`] is a scenario, a seed and a [`Workload`]; everything else follows from them. Connections join pairs
//! of hosts. One side or both post SENDs, WRITEs, READs, atomics and memory window binds, and some programs have a
//! request that must not be executed. The `verify` module lists the invariants of a run; a violation of one is a bug.
//!
//! | file | role |
//! |---|---|
//! | `workload` | the amount and kind of work |
//! | `replay` | the command line that repeats a run |
//! | `plan` | draws the connections |
//! | `layout` | addresses, QPNs, regions and SRQs of every host |
//! | `program` | draws the work requests |
//! | `churn` | programs that create, reset and destroy at random |
//! | `host`, `memory`, `frame` | a host: its QPs, its MRs and MWs, its frames |
//! | `management` | connections that are established by messages |
//! | `verify` | checks the invariants |
//! | `summary` | the result of a run |
//! | `transfer`, `many` | measurements |
//! | `traffic` | traffic patterns on a topology, measured |

mod churn;
mod frame;
mod host;
mod layout;
mod management;
mod many;
mod memory;
mod plan;
mod program;
mod replay;
mod summary;
pub mod traffic;
mod transfer;
mod verify;
mod workload;

#[cfg(test)]
mod tests;

use std::time::Duration;

use ferroce_proto::time::Instant;
use ferroce_wire::number::Qpn;

use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::limit::Outcome;
use crate::random::Random;
use crate::scenario::Scenario;
use host::RdmaHost;
pub use many::{ManyConnections, ManyConnectionsRun};
use plan::Connection;
pub use replay::{Replay, ReplayParseError};
pub use summary::Summary;
pub use transfer::Transfer;
use verify::{NetworkFaults, Stranded, Verifier};
pub use workload::{Congestion, Posting, Service, Services, SetUp, UnknownName, Workload};

/// The complete description of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulation {
    /// The network.
    pub scenario: Scenario,
    /// The seed of all random choices.
    pub seed: u64,
    /// The work of the hosts.
    pub workload: Workload,
}

impl Simulation {
    /// Returns the command that repeats this run.
    pub fn replay(&self) -> Replay {
        Replay { scenario: self.scenario, seed: self.seed, workload: self.workload }
    }

    /// Runs the simulation.
    pub fn run(&self) -> Summary {
        self.run_logged(()).0
    }

    /// Runs the simulation, and reports every frame to `event_log`.
    pub fn run_logged<T: EventLog>(&self, event_log: T) -> (Summary, T) {
        match self.scenario {
            Scenario::Churn | Scenario::Machines => churn::run(self, event_log),
            _ => self.run_tampered(event_log, None),
        }
    }

    /// As [`Simulation::run_logged`]; tests may change the hosts before they are verified.
    fn run_tampered<T: EventLog>(
        &self,
        event_log: T,
        tamper: Option<&dyn Fn(&mut RdmaHost)>,
    ) -> (Summary, T) {
        let (connections, mut hosts) = self.plan();
        let count = hosts.len() as u32;
        plan::begin(&connections, &mut hosts);

        let mut settings = self.scenario.settings(self.seed, count);
        settings.limits.time = settings.limits.time.max(Instant::ZERO + Duration::from_secs(3600));
        let mut fabric = Fabric::with_event_log(self.seed, settings, event_log);
        let mut violations = Vec::new();
        for (index, host) in hosts.into_iter().enumerate() {
            if let Err(error) = fabric.add_host(host, &[layout::address(index).into()]) {
                violations.push(error.to_string());
            }
        }
        for connection in &connections {
            let Some(group) = connection.group else { continue };
            for endpoint in &connection.endpoints[1..] {
                fabric.join(group.into(), HostId(endpoint.host as u32));
            }
        }
        // A restarted host has no state.
        let (seed, workload) = (self.seed, self.workload);
        fabric.on_restart(move |id, _| {
            let mut host = plan::host(id.0 as usize, seed, &workload);
            host.restarted = true;
            host
        });
        let ids: Vec<_> = (0..count).map(HostId).collect();
        let stranded = match self.workload.posting {
            Posting::AtOnce => None,
            Posting::Lists => find_stranded(&mut fabric, &connections, &mut violations),
        };
        finish(&mut fabric, &mut violations);
        for &id in &ids {
            fabric.with_host(id, |host, _| {
                host.memory.collect();
                tamper.into_iter().for_each(|tamper| tamper(host));
            });
        }
        let mut summary = self.verify(&fabric, &ids, &connections, &mut violations);
        if let Some(stranded) = stranded {
            (summary.suspects, summary.suspect_pairs) = identity(&connections[stranded.connection]);
        }
        if self.workload.set_up != SetUp::Direct {
            for &id in &ids {
                fabric.with_host(id, |host, now| {
                    host.with_management(|management, host| management.disconnect(now, host));
                });
            }
            finish(&mut fabric, &mut violations);
            let living = living(&fabric, &ids);
            let managements = living.iter().flatten().filter_map(|host| host.management.as_deref());
            let agreement = management::verify(managements, self.is_faultless(), &mut violations);
            summary.disconnected += agreement.disconnected;
            if let (Some(number), true) = (agreement.first_violation, summary.suspects.is_empty()) {
                (summary.suspects, summary.suspect_pairs) = identity(&connections[number]);
            }
        }
        summary.close(&fabric, violations);
        (summary, fabric.into_event_log())
    }

    /// Draws hosts, connections and programs from the seed.
    fn plan(&self) -> (Vec<Connection>, Vec<RdmaHost>) {
        let mut hosts: Vec<_> = (0..self.workload.hosts.max(2) as usize)
            .map(|index| plan::host(index, self.seed, &self.workload))
            .collect();
        let mut random = Random::new(self.seed).stream("batches");
        for host in &mut hosts {
            host.batch = Duration::from_micros([0, 0, 5, 20][random.below(4) as usize]);
        }
        // In other scenarios, delays of a host would look like faults of their network.
        if self.scenario == Scenario::Hostile {
            let random = Random::new(self.seed).stream("memory");
            for (number, host) in hosts.iter_mut().enumerate() {
                host.memory.slow_down(random.substream(number as u64));
            }
        }
        if self.workload.posting == Posting::Lists {
            let random = Random::new(self.seed).stream("posting");
            for (number, host) in hosts.iter_mut().enumerate() {
                host.posting = Some(random.substream(number as u64));
            }
        }
        let random = Random::new(self.seed).stream("workload");
        let connect = |number: usize| {
            let mut random = random.substream(number as u64);
            plan::connect(number, &self.workload, &mut hosts, &mut random)
        };
        ((0..self.workload.connections as usize).map(connect).collect(), hosts)
    }

    /// Returns the hosts of a connection and their QPNs, the active side first, to find it in a capture.
    pub fn connection(&self, number: usize) -> (Vec<HostId>, Vec<Qpn>) {
        let (connections, _) = self.plan();
        connections.get(number).map(identity).unwrap_or_default()
    }

    /// Whether every frame between hosts that did not crash arrives.
    fn is_faultless(&self) -> bool {
        matches!(self.scenario, Scenario::Clean | Scenario::Crashing | Scenario::Crash)
    }

    /// Returns how often one packet may be in a receive buffer.
    fn copies(&self) -> usize {
        // A packet, and its retries.
        const TRANSMISSIONS: usize = 1 + 7;
        match self.scenario {
            // Nothing is sent twice, except to a host that does not receive.
            Scenario::Clean | Scenario::Crashing | Scenario::Crash => 1,
            // The network copies a frame once.
            Scenario::Duplicating => 2,
            // A NAK is sent when the buffer was emptied. What was on the way then may wait with what is sent again, and
            // nothing is sent a third time: the next NAK comes when the buffer is emptied next, and the ACK timeout is longer
            // than any frame waits.
            Scenario::Lossy(_)
            | Scenario::Bursty
            | Scenario::Corrupting
            | Scenario::Congested
            | Scenario::Partitioned => 2,
            // Frames are delayed until others that were sent after several NAKs or ACK timeouts arrive.
            Scenario::Reordering | Scenario::Pausing => TRANSMISSIONS,
            // Churn has no such bound, and is not verified here: a QP that is reset or destroyed returns its credit while its
            // packets are on the way, and buffers drop what does not fit.
            Scenario::Hostile | Scenario::Churn | Scenario::Machines => 2 * TRANSMISSIONS,
        }
    }

    /// Verifies every connection, and counts the results of its requests.
    fn verify<T: EventLog>(
        &self,
        fabric: &Fabric<RdmaHost, T>,
        ids: &[HostId],
        connections: &[Connection],
        violations: &mut Vec<String>,
    ) -> Summary {
        let hosts = living(fabric, ids);
        let network = NetworkFaults {
            faultless: self.is_faultless(),
            duplicated: fabric.totals().duplicated > 0,
            copies: self.copies(),
            largest: self.workload.largest as usize,
        };
        let mut summary = Summary::new(self.workload);
        let mut verifier = Verifier { hosts: &hosts, network, violations };
        for (number, connection) in connections.iter().enumerate() {
            let before = verifier.violations.len();
            let progress = verifier.connection(number, connection);
            if verifier.violations.len() > before && summary.suspects.is_empty() {
                (summary.suspects, summary.suspect_pairs) = identity(connection);
            }
            summary.count(connection, &progress, &hosts);
        }
        for number in 0..hosts.len() {
            verifier.host(number);
        }
        summary.damaged = hosts.iter().flatten().map(|host| host.damaged).sum();
        summary
    }
}

/// Returns the hosts of a connection, and their QPNs.
fn identity(connection: &Connection) -> (Vec<HostId>, Vec<Qpn>) {
    let endpoints = connection.endpoints.iter();
    endpoints.map(|endpoint| (HostId(endpoint.host as u32), layout::qpn(endpoint.index))).unzip()
}

/// Runs until requests are held back that nothing will send, or no event is left. Such requests are a violation.
fn find_stranded<T: EventLog>(
    fabric: &mut Fabric<RdmaHost, T>,
    connections: &[Connection],
    violations: &mut Vec<String>,
) -> Option<Stranded> {
    let mut stranded = None;
    // How the run ends is checked when it is finished.
    let _ = fabric.run_until(|fabric| {
        stranded = Stranded::find(connections, |host| fabric.host(HostId(host as u32)));
        stranded.is_some()
    });
    violations.extend(stranded.map(|stranded| stranded.describe(fabric.now())));
    stranded
}

/// Runs until no event is left.
fn finish<T: EventLog>(fabric: &mut Fabric<RdmaHost, T>, violations: &mut Vec<String>) {
    let outcome = fabric.run();
    if !matches!(outcome, Outcome::Idle) {
        violations.push(format!("the run did not end: {outcome}"));
    }
}

/// Returns the hosts that did not crash.
fn living<'a, T: EventLog>(
    fabric: &'a Fabric<RdmaHost, T>,
    ids: &[HostId],
) -> Vec<Option<&'a RdmaHost>> {
    ids.iter().map(|&id| fabric.host(id).filter(|host| !host.restarted)).collect()
}
