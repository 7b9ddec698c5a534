//! Traffic patterns on a topology: flow completion times, fairness, queues and loss, driven by the real device core and RC code.
//!
//! An [`Experiment`] is a [`Pattern`], a network and a seed. Each flow is one WRITE or READ on an RC queue pair; two
//! hosts that communicate share one connection. Payload is not stored.
//!
//! | file | role |
//! |---|---|
//! | `network` | speed, delay, buffers and marking of the links |
//! | `pattern`, `plan` | the flows, and which of them wait for others |
//! | `host` | a host that posts its flows |
//! | `samples` | queue depth and rates over time |
//! | `results` | what was measured |

mod host;
mod network;
mod pattern;
mod plan;
mod results;
mod samples;

#[cfg(test)]
mod tests;

use std::time::Duration;

use ferroce_proto::congestion::{self, DcqcnParameters};
use ferroce_proto::qp::{AckTimeout, ServiceType};
use ferroce_proto::time::Instant;
use ferroce_wire::ip::Ecn;
use ferroce_wire::number::Psn;

use super::frame::ECT0;
use super::host::QpConfig;
use super::layout::{address, qpn};
use super::workload::Congestion;
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::limit::{Limits, Outcome};
use crate::random::Random;
use crate::topology::LeafSpine;
use host::{Connection, TrafficHost};
pub use network::{Layout, Network};
pub use pattern::Pattern;
use plan::{HostPlan, Plan};
pub use results::{CompletionTimes, FlowResult, Queue, Results};
pub use samples::{Sample, Samples};

/// The complete description of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Which hosts send to which.
    pub pattern: Pattern,
    /// Number of hosts, at least 2.
    pub hosts: u32,
    /// Bytes of a flow; with [`Pattern::Allreduce`], of the data that is reduced.
    pub bytes: u32,
    /// How often the pattern is repeated, at least 1.
    pub rounds: u32,
    /// The links and switches.
    pub network: Network,
    /// The congestion control of all queue pairs.
    pub congestion: Congestion,
    /// Bytes in flight that a window and DCQCN allow, as counted by [`congestion::cost`].
    pub window: usize,
    /// Payload bytes of the largest packet.
    pub mtu: u16,
    /// The ACK timeout. It must exceed the round-trip time through full buffers.
    pub timeout: Duration,
    /// Flows start at a random time below this, drawn from the seed.
    pub start_within: Duration,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Default for Experiment {
    fn default() -> Self {
        Self {
            pattern: Pattern::Incast,
            hosts: 9,
            bytes: 1 << 20,
            rounds: 1,
            network: Network::default(),
            congestion: Congestion::Dcqcn,
            window: DcqcnParameters::default().window,
            mtu: 1024,
            timeout: Duration::from_millis(16),
            start_within: Duration::from_micros(1),
            seed: 0,
        }
    }
}

/// The error of a run that did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DidNotEnd(pub String);

impl std::fmt::Display for DidNotEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the run did not end: {}", self.0)
    }
}

impl std::error::Error for DidNotEnd {}

impl Experiment {
    /// Returns the number of flows.
    pub fn flows(&self) -> usize {
        self.plan().flows()
    }

    /// Returns the dimensions of its leaf-spine network; `None` for other layouts.
    pub fn leaf_spine(&self) -> Option<LeafSpine> {
        self.network.layout_of(self.hosts)
    }

    fn plan(&self) -> Plan {
        self.pattern.plan(self.hosts.max(2), self.bytes.max(1), self.rounds.max(1), self.seed)
    }

    /// Runs the experiment.
    pub fn run(&self) -> Result<Results, DidNotEnd> {
        self.run_logged((), |_| {}).0
    }

    /// Runs the experiment, reports every frame to `event_log`, and calls `progress` with the number of flows that have
    /// completed from time to time.
    pub fn run_logged<T: EventLog>(
        &self,
        event_log: T,
        mut progress: impl FnMut(u64),
    ) -> (Result<Results, DidNotEnd>, T) {
        let plan = self.plan();
        let flows = plan.flows();
        let mut samples = Samples::new(self.leaf_spine(), self.hosts);
        samples.watch(
            (0..)
                .map(HostId)
                .zip(&plan.hosts)
                .filter_map(|(id, host)| (!host.flows.is_empty()).then_some(id)),
        );
        let mut settings = self.network.settings(self.hosts);
        settings.limits =
            Limits { events: u64::MAX, events_per_instant: 1 << 26, ..settings.limits };
        let mut fabric = Fabric::with_event_log(self.seed, settings, event_log);
        let random = Random::new(self.seed).stream("traffic");
        for (number, plan) in plan.hosts.into_iter().enumerate() {
            let host = self.host(number, plan, &random.substream(number as u64));
            // Addresses are distinct.
            let _ = fabric.add_host(host, &[address(number).into()]);
        }
        let ended = loop {
            match fabric.run_to(fabric.now() + samples.period()) {
                Outcome::LimitReached(activity) => break Err(DidNotEnd(activity.to_string())),
                Outcome::Idle => break Ok(()),
                Outcome::Done | Outcome::TimeReached => {}
            }
            samples.take(&mut fabric);
            let done: usize = fabric.hosts().map(|(_, host)| host.completed).sum();
            progress(done as u64);
            if done == flows {
                break Ok(());
            }
        };
        let results = ended.map(|()| Results::collect(self, &mut fabric, samples));
        (results, fabric.into_event_log())
    }

    fn host(&self, number: usize, plan: HostPlan, random: &Random) -> TrafficHost {
        let mut ports = random.stream("ports");
        let connections = (plan.connections.iter().enumerate()).map(|(index, connection)| {
            let service = ServiceType::ReliableConnection;
            let mut config = QpConfig::new(service, qpn(index), self.mtu, Psn(0));
            config.set_peer(qpn(connection.peer_index), Psn(0), self.mtu);
            config.settings.congestion = self.rate_control();
            config.settings.capabilities.max_send_wr = connection.flows.max(1) as u32;
            config.attributes.timeout = Some(AckTimeout::at_least(self.timeout));
            // From the dynamic range, and different for each connection: ECMP chooses paths by it.
            let port = 0xc000 | (ports.below(1 << 14) as u16);
            Connection::new(index, &config, address(connection.peer as usize), port)
        });
        let mut starts = random.stream("starts");
        let at = plan.first.iter().map(|&flow| {
            (Instant::ZERO + starts.duration(Duration::ZERO..=self.start_within), flow)
        });
        let (connections, at): (Vec<_>, Vec<_>) = (connections.collect(), at.collect());
        let ecn = if self.rate_control().reacts() { ECT0 } else { Ecn(0) };
        TrafficHost::new(address(number), ecn, connections, plan.flows, plan.gates, at)
    }

    fn rate_control(&self) -> congestion::Congestion {
        match self.congestion {
            Congestion::None => congestion::Congestion::Unlimited,
            Congestion::Window => congestion::Congestion::Window(self.window),
            Congestion::Dcqcn => congestion::Congestion::Dcqcn(DcqcnParameters {
                line_rate: self.network.speed.0,
                window: self.window,
                ..DcqcnParameters::default()
            }),
        }
    }
}
