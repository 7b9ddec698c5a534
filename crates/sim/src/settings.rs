//! What a link does to frames, and all that a fabric is made from.

use std::time::Duration;

use crate::fault::FaultPlan;
use crate::limit::Limits;
use crate::probability::Probability;

/// All that shapes a run besides its seed and its hosts. Plain data: take a scenario's and change what you like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// From each host to the switch.
    pub uplink: LinkConfig,
    /// From the switch to each host: where traffic of many senders meets.
    pub downlink: LinkConfig,
    /// Bytes that may wait in a host's uplink before the fabric stops asking the host for more, as a socket that would
    /// block; `None` takes all that a host has at once.
    pub send_buffer: Option<usize>,
    /// What fails when.
    pub faults: FaultPlan,
    /// When a run is given up.
    pub limits: Limits,
}

/// One direction of a link. The default is perfect: no delay, no limit, no fault.
///
/// A frame goes through these in the order of the fields: it is dropped or queued, marked, serialised, and then, on the
/// wire, lost, damaged, copied and delayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Bytes that may wait, those being sent included. A frame that would exceed it is dropped (drop-tail).
    pub queue_limit: Option<usize>,
    /// Marks "congestion experienced" on frames that are ECN-capable.
    pub marking: Option<Marking>,
    /// How fast bytes leave.
    pub bandwidth: Bandwidth,
    /// Bytes on the wire besides those of the frame: for Ethernet the preamble, check sequence and gap.
    pub overhead: u32,
    /// From the last bit's leaving to its arrival.
    pub latency: Duration,
    /// Up to so much more, uniformly.
    pub jitter: Duration,
    /// Whether frames with little jitter may overtake frames with much; otherwise these wait.
    pub jitter_reorders: bool,
    /// Each frame for itself is lost.
    pub loss: Probability,
    /// Frames are lost in bursts.
    pub burst: Option<BurstLoss>,
    /// Bits flip.
    pub corruption: Option<Corruption>,
    /// A copy arrives too. It has a jitter of its own, and takes no bandwidth.
    pub duplication: Probability,
    /// Some frames take a longer way, and those behind them overtake.
    pub reordering: Option<Reordering>,
}

impl LinkConfig {
    /// Preamble and start of frame 8, check sequence 4, gap 12 (IEEE 802.3 clauses 3.1 and 4.4).
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

/// Bits per second; 0 is without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(pub u64);

impl Bandwidth {
    /// Frames take no time to send, so that they never wait either.
    pub const UNLIMITED: Self = Self(0);

    /// So many Gbit/s.
    pub const fn gigabits(count: u32) -> Self {
        Self(count as u64 * 1_000_000_000)
    }

    /// So many Mbit/s.
    pub const fn megabits(count: u32) -> Self {
        Self(count as u64 * 1_000_000)
    }

    /// Picoseconds that `bytes` take.
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
/// to `most` (as switches are configured for DCQCN: Kmin, Kmax, Pmax). With `start` = `full` it is one threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    /// Bytes waiting, up to which nothing is marked.
    pub start: usize,
    /// Bytes waiting, from which everything is marked.
    pub full: usize,
    /// The probability just below `full`.
    pub most: Probability,
}

impl Marking {
    /// Marks whenever at least so many bytes wait.
    pub const fn threshold(bytes: usize) -> Self {
        Self { start: bytes, full: bytes, most: Probability::ALWAYS }
    }

    /// How likely a frame is marked that finds `backlog` bytes waiting.
    pub(crate) fn probability(&self, backlog: usize) -> Probability {
        if backlog >= self.full {
            return Probability::ALWAYS;
        }
        let Some(above) = backlog.checked_sub(self.start) else { return Probability::NEVER };
        // Here start <= backlog < full.
        let most = u128::from(self.most.parts_per_billion());
        let parts = most * above as u128 / (self.full - self.start) as u128;
        Probability::from_parts_per_billion(u32::try_from(parts).unwrap_or(u32::MAX))
    }
}

/// Loss in bursts, after Gilbert and Elliott: a link that is good or bad, and changes between frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLoss {
    /// Before each frame, a good link turns bad.
    pub begin: Probability,
    /// Before each frame, a bad link turns good: a burst lasts 1 / `end` frames on average.
    pub end: Probability,
    /// Loss while good.
    pub loss_when_good: Probability,
    /// Loss while bad.
    pub loss_when_bad: Probability,
}

/// Bits that flip on the wire and that no check sequence of the link catches, anywhere in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// How likely a frame is hit.
    pub probability: Probability,
    /// The most bits that flip in it, at least 1: each number is as likely.
    pub most_bits: u32,
}

/// Frames that take a longer way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reordering {
    /// How likely a frame does.
    pub probability: Probability,
    /// The least it takes longer.
    pub least: Duration,
    /// The most it takes longer.
    pub most: Duration,
}
