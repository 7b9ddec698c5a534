//! Queue depth and rates over time.

use std::time::Duration;

use ferroce_proto::time::Instant;

use super::host::TrafficHost;
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::topology::{LeafSpine, TrunkId};

/// Hosts whose rates are sampled, the first that send.
const SAMPLED_HOSTS: usize = 8;

/// When there are this many samples, every second one is removed and the period doubles: a run of unknown length has
/// between half as many and as many.
const MAX_SAMPLES: usize = 1024;

/// The state of the network at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The time.
    pub time: Instant,
    /// Bytes in the longest queue of all ports of switches.
    pub queue: usize,
    /// Bytes of frames that were delivered so far.
    pub delivered: u64,
    /// Bytes of frames that each of [`Samples::hosts`] has sent so far.
    pub sent: Vec<u64>,
}

/// Samples at regular times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples {
    /// The hosts whose rates are sampled.
    pub hosts: Vec<HostId>,
    /// The samples.
    pub samples: Vec<Sample>,
    period: Duration,
    count: u32,
    trunks: u32,
}

impl Samples {
    pub(super) fn new(network: Option<LeafSpine>, count: u32) -> Self {
        let trunks = network.map_or(0, |network| network.trunks());
        let period = Duration::from_micros(1);
        Self { hosts: Vec::new(), samples: Vec::new(), period, count, trunks }
    }

    /// Chooses the hosts whose rates are sampled.
    pub(super) fn watch(&mut self, senders: impl Iterator<Item = HostId>) {
        self.hosts.extend(senders.take(SAMPLED_HOSTS));
    }

    pub(super) fn period(&self) -> Duration {
        self.period
    }

    pub(super) fn take<T: EventLog>(&mut self, fabric: &mut Fabric<TrafficHost, T>) {
        let hosts = (0..self.count).map(|host| fabric.downlink_backlog(HostId(host))).max();
        let trunks = (0..self.trunks).map(|trunk| fabric.trunk_backlog(TrunkId(trunk))).max();
        let statistics = |host: HostId| fabric.host_statistics(host).unwrap_or_default();
        self.samples.push(Sample {
            time: fabric.now(),
            queue: hosts.max(trunks).unwrap_or(0),
            delivered: (0..self.count).map(|host| statistics(HostId(host)).delivered_bytes).sum(),
            sent: self.hosts.iter().map(|&host| statistics(host).sent_bytes).collect(),
        });
        if self.samples.len() >= MAX_SAMPLES {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                !keep
            });
            self.period *= 2;
        }
    }
}
