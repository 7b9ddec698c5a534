//! What a manager is told once: who it is, and how much it may remember.

use core::time::Duration;

use ferroce_wire::cm::ResponseTimeout;
use ferroce_wire::number::Guid;

use super::probe::ProbeSchedule;

/// When and how established connections are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Time between two probes of all connections.
    pub idle: Duration,
    /// How each is probed.
    pub probe: ProbeSchedule,
}

impl Keepalive {
    /// Every 30 s; 5 messages 5 s apart. A peer that is stopped for less than 25 s, by a debugger for example, is kept.
    pub const USUAL: Self = Self {
        idle: Duration::from_secs(30),
        probe: ProbeSchedule { messages: 5, interval: Duration::from_secs(5) },
    };
}

/// A manager's identity and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The device's identifier, sent in REQ and REP. With a name of a connection, it makes that name unique.
    pub ca_guid: Guid,
    /// A random number. Names of connections follow from it, so that a stranger cannot guess them.
    pub seed: u64,
    /// The top 8 bits of all names, where several managers share an address and a message has to find the right one.
    /// Otherwise names use all 32.
    pub slot: Option<u8>,
    /// How long this device takes to acknowledge a packet, sent in REP.
    pub ack_delay: ResponseTimeout,
    /// Ask the peer for this much time when it repeats a REQ or REP that the consumer has not answered yet. `None`
    /// leaves that to the consumer.
    pub automatic_mra: Option<ResponseTimeout>,
    /// Connections of all states, time-wait included.
    pub max_connections: usize,
    /// Peers' requests that are not yet connections. Beyond, the oldest one that waits for its RTU is dropped.
    pub max_half_open: usize,
    /// Those of one source address. Beyond, its REQs are dropped: an honest peer repeats them, and a flood from one
    /// address leaves room for the others.
    pub max_half_open_per_source: usize,
    /// How long a half-open connection is kept when the peer sends nothing more, whatever times its REQ names.
    pub half_open_time: Duration,
    /// How a connection is probed whose queue pair another REQ or REP claims.
    pub stale_probe: ProbeSchedule,
    /// Established connections are probed now and then. `None`: only when there is a reason.
    pub keepalive: Option<Keepalive>,
    /// Service resolutions: own questions, and those of peers, each.
    pub max_resolutions: usize,
    /// How long the answer to a peer's SIDR_REQ is remembered, for when the peer asks again.
    pub resolution_memory: Duration,
    /// Events and messages that may wait to be polled. Beyond, arriving messages are dropped: peers repeat them.
    pub max_undrained: usize,
    /// No single time that a peer chooses is longer than this: it would hold our memory as long.
    pub longest_wait: Duration,
}

impl Config {
    /// What rdma_rxe says: 134 ms.
    pub const ACK_DELAY: ResponseTimeout = ResponseTimeout(15);

    /// The usual limits.
    pub const fn new(ca_guid: Guid, seed: u64) -> Self {
        Self {
            ca_guid,
            seed,
            slot: None,
            ack_delay: Self::ACK_DELAY,
            // What Linux's RDMA-CM asks for.
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

    /// A peer's time, cut to the longest.
    pub(super) fn bounded(&self, time: Duration) -> Duration {
        time.min(self.longest_wait)
    }
}
