//! Identity and limits of a connection manager.

use core::time::Duration;

use ferroce_wire::cm::ResponseTimeout;
use ferroce_wire::number::Guid;

use super::probe::ProbeSchedule;

/// Keepalive probes of established connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Interval between probes of all connections.
    pub idle: Duration,
    /// Schedule of a probe.
    pub probe: ProbeSchedule,
    /// Schedule of the active side's first probe, which begins one interval after the REP. It tells whether the peer responds to
    /// LAPs: only then does its silence count later.
    pub first: ProbeSchedule,
}

impl Keepalive {
    /// Probes every 30 s with 5 messages, 5 s apart. A peer that is stopped for less than 25 s, by a debugger for
    /// example, stays connected.
    pub const DEFAULT: Self = Self {
        idle: Duration::from_secs(30),
        probe: ProbeSchedule { messages: 5, interval: Duration::from_secs(5) },
        first: ProbeSchedule { messages: 3, interval: Duration::from_secs(1) },
    };
}

/// Identity and limits of a connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The CA GUID, sent in REQ and REP. Together with a communication ID, it identifies a connection globally.
    pub ca_guid: Guid,
    /// A random seed for communication IDs, so that an attacker cannot guess them.
    pub seed: u64,
    /// The top 8 bits of all communication IDs, where several managers share an address and a message must be routed
    /// to one of them. Otherwise IDs use all 32 bits.
    pub slot: Option<u8>,
    /// ACK delay of this device, sent in REP.
    pub ack_delay: ResponseTimeout,
    /// MRA timeout that is sent automatically when the peer retransmits a REQ or REP that the consumer has not
    /// answered yet. `None`: the consumer sends MRAs.
    pub automatic_mra: Option<ResponseTimeout>,
    /// Maximum number of connections in all states, including TimeWait.
    pub max_connections: usize,
    /// Maximum number of half-open connections (peers' requests). At the limit, the oldest one that waits for its RTU
    /// is dropped.
    pub max_half_open: usize,
    /// Maximum number of half-open connections from one source address. At the limit, its REQs are dropped: a
    /// legitimate peer retransmits them, and a flood from one address leaves room for others.
    pub max_half_open_per_source: usize,
    /// Lifetime of a half-open connection without further messages, regardless of the timeouts in its REQ.
    pub half_open_time: Duration,
    /// Probe of a connection whose remote QPN another REQ or REP claims.
    pub stale_probe: ProbeSchedule,
    /// Periodic probes of established connections; `None` disables them.
    pub keepalive: Option<Keepalive>,
    /// Maximum number of service ID resolutions, for local and for peers' requests each.
    pub max_resolutions: usize,
    /// How long the response to a peer's SIDR_REQ is kept, for retransmitted requests.
    pub resolution_memory: Duration,
    /// Maximum number of events and messages that wait to be polled. At the limit, inbound messages are dropped;
    /// peers retransmit them.
    pub max_undrained: usize,
    /// Upper limit of any timeout chosen by a peer, since it keeps state in memory.
    pub longest_wait: Duration,
}

impl Config {
    /// 134 ms, as rdma_rxe.
    pub const ACK_DELAY: ResponseTimeout = ResponseTimeout(15);

    /// Creates a configuration with default limits.
    pub const fn new(ca_guid: Guid, seed: u64) -> Self {
        Self {
            ca_guid,
            seed,
            slot: None,
            ack_delay: Self::ACK_DELAY,
            // As Linux's RDMA-CM.
            automatic_mra: Some(ResponseTimeout(24)),
            max_connections: 1 << 16,
            max_half_open: 1 << 12,
            max_half_open_per_source: 1 << 7,
            half_open_time: Duration::from_secs(10),
            stale_probe: ProbeSchedule { messages: 5, interval: Duration::from_secs(1) },
            keepalive: None,
            max_resolutions: 1 << 12,
            resolution_memory: Duration::from_secs(10),
            max_undrained: 1 << 14,
            longest_wait: ResponseTimeout(24).duration(),
        }
    }

    /// Limits a timeout that a peer chose.
    pub(super) fn bounded(&self, time: Duration) -> Duration {
        time.min(self.longest_wait)
    }
}
