//! The links and switches of an experiment.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::probability::Probability;
use crate::rdma::workload::{UnknownName, named};
use crate::settings::{Bandwidth, LinkConfig, Marking, Settings};
use crate::topology::{LeafSpine, Topology};

named! {
    /// How hosts are connected.
    "a topology", Layout {
        /// Two hosts and a cable.
        Pair = "pair",
        /// One switch.
        Star = "star",
        /// Leaf and spine switches, with ECMP by addresses and UDP ports.
        LeafSpine = "leaf-spine",
    }
}

/// The links and switches. All links have the same speed, delay, buffer and marking.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// How hosts are connected.
    pub layout: Layout,
    /// Hosts of each leaf switch.
    pub hosts_per_leaf: u32,
    /// Spine switches.
    pub spines: u32,
    /// The speed of each link.
    pub speed: Bandwidth,
    /// The propagation delay of each link.
    pub delay: Duration,
    /// Bytes that each port of a switch can queue; frames beyond it are dropped (drop-tail).
    pub buffer: usize,
    /// When ports of switches mark ECN-capable frames; `None` for never.
    pub marking: Option<Marking>,
    /// The probability that a frame is lost on the link from its sender.
    pub loss: Probability,
}

impl Default for Network {
    /// 40 Gbit/s and the marking of Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015:
    /// Kmin 5 KB, Kmax 200 KB, Pmax 1 %.
    fn default() -> Self {
        Self {
            layout: Layout::Star,
            hosts_per_leaf: 8,
            spines: 4,
            speed: Bandwidth::gigabits(40),
            delay: Duration::from_micros(1),
            buffer: 1 << 20,
            marking: Some(Marking {
                start: 5_000,
                full: 200_000,
                max_probability: Probability::from_parts_per_billion(10_000_000),
            }),
            loss: Probability::NEVER,
        }
    }
}

/// All headers of a packet; the payload is constant.
const HEADERS: usize = 128;

/// Bytes in the transmit queue of a host's port above which the host waits, as for a NIC that is busy.
const TRANSMIT_QUEUE: usize = 4096;

impl Network {
    /// Returns the dimensions of the leaf-spine network for this many hosts; `None` for other layouts.
    pub(super) fn layout_of(&self, hosts: u32) -> Option<LeafSpine> {
        let hosts_per_leaf = self.hosts_per_leaf.max(1);
        (self.layout == Layout::LeafSpine).then(|| LeafSpine {
            hosts_per_leaf,
            leaves: hosts.div_ceil(hosts_per_leaf).max(1),
            spines: self.spines.max(1),
        })
    }

    /// Returns the settings of the fabric for this many hosts.
    pub(super) fn settings(&self, hosts: u32) -> Settings {
        let wire =
            LinkConfig { bandwidth: self.speed, latency: self.delay, ..LinkConfig::default() };
        let port =
            LinkConfig { queue_limit: Some(self.buffer), marking: self.marking, ..wire.clone() };
        Settings {
            uplink: LinkConfig { loss: self.loss, ..wire },
            // A cable is one link: its far end takes no time.
            downlink: if self.layout == Layout::Pair {
                LinkConfig::default()
            } else {
                port.clone()
            },
            topology: self.layout_of(hosts).map_or(Topology::Star, Topology::LeafSpine),
            trunk: port,
            send_buffer: Some(TRANSMIT_QUEUE),
            hashed_bytes: Some(HEADERS),
            ..Settings::default()
        }
    }
}
