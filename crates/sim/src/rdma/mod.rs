//! Hosts that speak every service, on the fabric: random programs of work requests, checked to the last byte.
//!
//! A [`Simulation`] is a scenario, a seed and a [`Workload`]; everything else follows from them. Hosts hold connections
//! in pairs, on which one side or both post SENDs, WRITEs, READs, atomics and windows, and now and then a request that
//! must not be executed. What must hold afterwards is listed in `verify`; whatever does not is a violation, and a bug.
//!
//! | file | role |
//! |---|---|
//! | `workload` | how much, by whom, and how |
//! | `plan` | who is connected to whom |
//! | `program` | what they do |
//! | `host`, `memory`, `frame` | a host: its queue pairs, its memory, its frames |
//! | `manage` | connections that come up by messages |
//! | `verify` | what must hold |
//! | `transfer`, `many` | measurements |

mod frame;
mod host;
mod manage;
mod many;
mod memory;
mod plan;
mod program;
mod summary;
mod transfer;
mod verify;
mod workload;

#[cfg(test)]
mod tests;

use std::time::Duration;

use ferroce_proto::time::Instant;
use ferroce_wire::number::Qpn;

use crate::{Fabric, HostId, Outcome, Random, Replay, Scenario, Trace};
use host::RdmaHost;
pub use many::{Crowd, Many};
use plan::Connection;
pub use summary::Summary;
pub use transfer::Transfer;
use verify::{Judge, Network};
pub use workload::{Congestion, Service, Services, SetUp, UnknownName, Workload};

/// One run, told in full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulation {
    /// What the network does.
    pub scenario: Scenario,
    /// What everything is drawn from.
    pub seed: u64,
    /// What the hosts do.
    pub workload: Workload,
}

impl Simulation {
    /// The command that runs this again.
    pub fn replay(&self) -> Replay {
        Replay { scenario: self.scenario, seed: self.seed, workload: self.workload }
    }

    /// Runs it.
    pub fn run(&self) -> Summary {
        self.run_traced(()).0
    }

    /// Runs it, and hands everything that is sent to `trace`.
    pub fn run_traced<T: Trace>(&self, trace: T) -> (Summary, T) {
        self.run_disturbed(trace, None)
    }

    /// As [`Simulation::run_traced`]; before hosts are judged, tests may change them.
    fn run_disturbed<T: Trace>(
        &self,
        trace: T,
        disturb: Option<&dyn Fn(&mut RdmaHost)>,
    ) -> (Summary, T) {
        let (connections, mut hosts) = self.plan();
        let count = hosts.len() as u32;
        plan::begin(&connections, &mut hosts);

        let mut settings = self.scenario.settings(self.seed, count);
        settings.limits.time = settings.limits.time.max(Instant::ZERO + Duration::from_secs(3600));
        let mut fabric = Fabric::with_trace(self.seed, settings, trace);
        let mut violations = Vec::new();
        for (index, host) in hosts.into_iter().enumerate() {
            if let Err(error) = fabric.add_host(host, &[plan::address(index).into()]) {
                violations.push(error.to_string());
            }
        }
        for connection in &connections {
            let Some(group) = connection.group else { continue };
            for place in &connection.ends[1..] {
                fabric.join(group.into(), HostId(place.host as u32));
            }
        }
        // One that comes back remembers nothing.
        fabric.on_restart(|id, _| {
            let mut host = plan::host(id.0 as usize);
            host.restarted = true;
            host
        });
        let ids: Vec<_> = (0..count).map(HostId).collect();
        finish(&mut fabric, &mut violations);
        if let Some(disturb) = disturb {
            for &id in &ids {
                fabric.with_host(id, |host, _| disturb(host));
            }
        }
        let mut summary = self.judge(&fabric, &ids, &connections, &mut violations);
        if self.workload.set_up != SetUp::Direct {
            for &id in &ids {
                fabric.with_host(id, |host, now| {
                    host.manage(|management, host| management.disconnect(now, host));
                });
            }
            finish(&mut fabric, &mut violations);
            let living = living(&fabric, &ids);
            let wrong = manage::judge(&living, self.is_faultless(), &mut summary, &mut violations);
            if let (Some(wrong), true) = (wrong, summary.suspects.is_empty()) {
                (summary.suspects, summary.suspect_pairs) = identity(&connections[wrong]);
            }
        }
        summary.close(&fabric, violations);
        (summary, fabric.into_trace())
    }

    /// Draws hosts, connections and programs.
    fn plan(&self) -> (Vec<Connection>, Vec<RdmaHost>) {
        let mut hosts: Vec<_> = (0..self.workload.hosts.max(2) as usize).map(plan::host).collect();
        let mut random = Random::new(self.seed).stream("batches");
        for host in &mut hosts {
            host.batch = Duration::from_micros([0, 0, 5, 20][random.below(4) as usize]);
        }
        let random = Random::new(self.seed).stream("workload");
        let connect = |number: usize| {
            let mut random = random.substream(number as u64);
            plan::connect(number, &self.workload, &mut hosts, &mut random)
        };
        ((0..self.workload.connections as usize).map(connect).collect(), hosts)
    }

    /// The hosts of a connection and their queue pairs, the active end first: by these it is found in a capture.
    pub fn connection(&self, number: usize) -> (Vec<HostId>, Vec<Qpn>) {
        let (connections, _) = self.plan();
        connections.get(number).map(identity).unwrap_or_default()
    }

    /// Whether every frame between hosts that live arrives.
    fn is_faultless(&self) -> bool {
        matches!(self.scenario, Scenario::Clean | Scenario::Crashing | Scenario::Crash)
    }

    /// Judges every connection, and counts what became of its requests.
    fn judge<T: Trace>(
        &self,
        fabric: &Fabric<RdmaHost, T>,
        ids: &[HostId],
        connections: &[Connection],
        violations: &mut Vec<String>,
    ) -> Summary {
        let hosts = living(fabric, ids);
        let network =
            Network { faultless: self.is_faultless(), duplicated: fabric.totals().duplicated > 0 };
        let mut summary = Summary::new(self);
        let mut judge = Judge { hosts: &hosts, network, violations };
        for (number, connection) in connections.iter().enumerate() {
            let before = judge.violations.len();
            let progress = judge.connection(number, connection);
            if judge.violations.len() > before && summary.suspects.is_empty() {
                (summary.suspects, summary.suspect_pairs) = identity(connection);
            }
            summary.count(connection, &progress, &hosts);
        }
        for number in 0..hosts.len() {
            judge.host(number);
        }
        summary.damaged = hosts.iter().flatten().map(|host| host.damaged).sum();
        summary
    }
}

/// The hosts of a connection, and their queue pairs.
fn identity(connection: &Connection) -> (Vec<HostId>, Vec<Qpn>) {
    let ends = connection.ends.iter();
    ends.map(|place| (HostId(place.host as u32), host::number(place.end))).unzip()
}

/// Runs until nothing moves.
fn finish<T: Trace>(fabric: &mut Fabric<RdmaHost, T>, violations: &mut Vec<String>) {
    let outcome = fabric.run();
    if !matches!(outcome, Outcome::Idle) {
        violations.push(format!("the run did not come to an end: {outcome}"));
    }
}

/// The hosts that live since the start.
fn living<'a, T: Trace>(
    fabric: &'a Fabric<RdmaHost, T>,
    ids: &[HostId],
) -> Vec<Option<&'a RdmaHost>> {
    ids.iter().map(|&id| fabric.host(id).filter(|host| !host.restarted)).collect()
}
