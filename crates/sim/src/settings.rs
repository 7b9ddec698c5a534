//! Configuration of links and of the fabric.

use std::time::Duration;

use crate::fault::FaultPlan;
use crate::limit::Limits;
use crate::probability::Probability;
use crate::topology::Topology;

/// Everything that determines a run besides its seed and its hosts. Plain data: take a scenario's settings and change
/// fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The link from each host to the switch.
    pub uplink: LinkConfig,
    /// The link from the switch to each host, where the traffic of several senders meets.
    pub downlink: LinkConfig,
    /// The switches between the hosts.
    pub topology: Topology,
    /// Each direction of the links between switches.
    pub trunk: LinkConfig,
    /// Bytes queued in a host's uplink above which the fabric stops polling the host, as a socket that would block;
    /// `None` polls until the host has no frame left.
    pub send_buffer: Option<usize>,
    /// The share of frames to an address that several hosts have ([`crate::Fabric::add_process`]) that may go to the wrong
    /// one.
    pub missteering: Probability,
    /// Bytes at the start of each frame that enter [`crate::Fabric::hash`]; `None` for all. Hosts whose payload is
    /// constant need not pay for hashing it.
    pub hashed_bytes: Option<usize>,
    /// The schedule of failures.
    pub faults: FaultPlan,
    /// The limits at which a run is stopped.
    pub limits: Limits,
}

/// Configuration of one direction of a link. The default is perfect: no delay, no limit, no fault.
///
/// A frame passes these steps in order: it is dropped or queued, marked, serialised, and then, on the wire, lost,
/// corrupted, duplicated and delayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Capacity of the queue in bytes, including the frame being sent. A frame that would exceed it is dropped
    /// (drop-tail).
    pub queue_limit: Option<usize>,
    /// Marks ECN-capable frames CE ("congestion experienced").
    pub marking: Option<Marking>,
    /// The serialisation rate.
    pub bandwidth: Bandwidth,
    /// Bytes on the wire in addition to the frame: for Ethernet the preamble, FCS and inter-frame gap.
    pub overhead: u32,
    /// Propagation delay of the last bit.
    pub latency: Duration,
    /// The maximum of an additional delay, drawn uniformly.
    pub jitter: Duration,
    /// Whether frames with little jitter may overtake frames with much; otherwise they wait.
    pub jitter_reorders: bool,
    /// The probability that a frame is lost, independently of others.
    pub loss: Probability,
    /// Burst loss.
    pub burst: Option<BurstLoss>,
    /// Bit flips.
    pub corruption: Option<Corruption>,
    /// The probability that a copy arrives too. The copy has its own jitter and takes no bandwidth.
    pub duplication: Probability,
    /// Extra delay of some frames, which later frames overtake.
    pub reordering: Option<Reordering>,
}

impl LinkConfig {
    /// Preamble and start of frame 8, FCS 4, inter-frame gap 12 (IEEE 802.3 clauses 3.1 and 4.4).
    pub const ETHERNET_OVERHEAD: u32 = 24;
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            queue_limit: None,
            marking: None,
            bandwidth: Bandwidth::UNLIMITED,
            overhead: Self::ETHERNET_OVERHEAD,
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            jitter_reorders: false,
            loss: Probability::NEVER,
            burst: None,
            corruption: None,
            duplication: Probability::NEVER,
            reordering: None,
        }
    }
}

/// Bits per second; 0 is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(pub u64);

impl Bandwidth {
    /// Frames take no time to send and never queue.
    pub const UNLIMITED: Self = Self(0);

    /// Converts from Gbit/s.
    pub const fn gigabits(count: u32) -> Self {
        Self(count as u64 * 1_000_000_000)
    }

    /// Converts from Mbit/s.
    pub const fn megabits(count: u32) -> Self {
        Self(count as u64 * 1_000_000)
    }

    /// Returns the picoseconds that `bytes` take.
    pub(crate) fn picoseconds(self, bytes: u64) -> u64 {
        const PER_SECOND: u64 = 1_000_000_000_000;
        let bits = bytes.saturating_mul(8);
        match (self.0, bits.checked_mul(PER_SECOND)) {
            (0, _) => 0,
            (rate, Some(product)) => product / rate,
            (rate, None) => {
                let exact = u128::from(bits) * u128::from(PER_SECOND) / u128::from(rate);
                u64::try_from(exact).unwrap_or(u64::MAX)
            }
        }
    }
}

/// When a queue marks frames: never up to `start`, always from `full` on, and in between with a probability that grows
/// linearly to `max_probability` (Kmin, Kmax and Pmax of switches configured for DCQCN). With `start` = `full` it is a
/// single threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    /// Bytes queued up to which nothing is marked (Kmin).
    pub start: usize,
    /// Bytes queued from which everything is marked (Kmax).
    pub full: usize,
    /// The probability just below `full` (Pmax).
    pub max_probability: Probability,
}

impl Marking {
    /// Marks whenever at least this many bytes are queued.
    pub const fn threshold(bytes: usize) -> Self {
        Self { start: bytes, full: bytes, max_probability: Probability::ALWAYS }
    }

    /// Returns the probability that a frame is marked that finds `backlog` bytes queued.
    pub(crate) fn probability(&self, backlog: usize) -> Probability {
        if backlog >= self.full {
            return Probability::ALWAYS;
        }
        let Some(above) = backlog.checked_sub(self.start) else { return Probability::NEVER };
        // Here start <= backlog < full.
        let max = u128::from(self.max_probability.parts_per_billion());
        let parts = max * above as u128 / (self.full - self.start) as u128;
        Probability::from_parts_per_billion(u32::try_from(parts).unwrap_or(u32::MAX))
    }
}

/// Burst loss after Gilbert and Elliott: a link that is good or bad, and changes state between frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLoss {
    /// The probability, before each frame, that a good link turns bad.
    pub begin: Probability,
    /// The probability, before each frame, that a bad link turns good: a burst lasts 1 / `end` frames on average.
    pub end: Probability,
    /// The loss probability in the good state.
    pub loss_when_good: Probability,
    /// The loss probability in the bad state.
    pub loss_when_bad: Probability,
}

/// Bit flips that the Ethernet FCS does not detect, anywhere in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The probability that a frame is corrupted.
    pub probability: Probability,
    /// The maximum number of bits that flip in a frame, at least 1; the number is drawn uniformly.
    pub max_bits: u32,
}

/// Extra delay of some frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reordering {
    /// The probability that a frame is delayed.
    pub probability: Probability,
    /// The minimum extra delay.
    pub min_delay: Duration,
    /// The maximum extra delay.
    pub max_delay: Duration,
}
