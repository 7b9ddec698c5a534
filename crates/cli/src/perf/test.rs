//! The parameters of a test, as the client sends them to the server. Both sides check them.

use serde::{Deserialize, Serialize};

use super::args::{Atomic, Measure, Operation, Transport};
use crate::session::bytes::Size;

/// How long a size is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Amount {
    /// Messages of each QP.
    Iterations(u64),
    /// A duration.
    Nanoseconds(u64),
}

/// A test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Test {
    pub(super) operation: Operation,
    pub(super) measure: Measure,
    pub(super) transport: Transport,
    pub(super) sizes: Vec<u64>,
    pub(super) amount: Amount,
    pub(super) qps: u32,
    pub(super) threads: u32,
    pub(super) bidirectional: bool,
    pub(super) events: bool,
    pub(super) verify: bool,
    pub(super) tx_depth: u32,
    pub(super) post_list: u32,
    pub(super) cq_mod: Option<u32>,
    pub(super) atomic: Atomic,
}

/// Limits of what a client can ask of a server.
const MAX_QPS: u32 = 1024;
const MAX_THREADS: u32 = ferroce::MAX_SHARDS as u32;
const MAX_DEPTH: u32 = 8192;
const MAX_SIZES: usize = 64;
const MAX_SIZE: u64 = 1 << 30;
const MAX_MEMORY: u64 = 8 << 30;

/// The memory of a QP in each direction when bytes are checked, at least one message.
const CHECKED: u64 = 16 << 20;

/// Completions are moderated up to this message size, as in perftest.
const MODERATED: u64 = 8192;

/// Posted receives of a QP, as in perftest.
const RECEIVES: u32 = 512;

/// Posted receives of a QP that plays ping-pong: one message is under way, and repetitions of lost ones.
const PING_PONG_RECEIVES: u32 = 16;

impl Test {
    /// Refuses what the transport does not have and what would use too many resources. `mtu` is the longest UD message.
    pub(super) fn check(&self, mtu: u64) -> Result<(), String> {
        self.check_operation(mtu)?;
        let within = |name: &str, value: u32, max: u32| match value {
            0 => Err(format!("{name} must be greater than zero")),
            value if value > max => Err(format!("{name} {value} is above the limit of {max}")),
            _ => Ok(()),
        };
        within("--qps", self.qps, MAX_QPS)?;
        within("--threads", self.threads, MAX_THREADS)?;
        within("--tx-depth", self.tx_depth, MAX_DEPTH)?;
        within("--post-list", self.post_list, self.tx_depth)?;
        within("--cq-mod", self.cq_mod.unwrap_or(1), self.tx_depth)?;
        if self.qps < self.threads {
            let (qps, threads) = (self.qps, self.threads);
            return Err(format!(
                "--qps {qps} is less than --threads {threads}: every thread needs a QP"
            ));
        }
        if matches!(self.amount, Amount::Iterations(0) | Amount::Nanoseconds(0)) {
            return Err("--iterations and --duration must be greater than zero".into());
        }
        let memory = 2 * u64::from(self.qps) * self.slots() * self.stride();
        if memory > MAX_MEMORY {
            return Err(format!(
                "the test needs {} of memory on each side, the limit is {}: use fewer QPs or a \
                 smaller --size",
                Size(memory),
                Size(MAX_MEMORY)
            ));
        }
        Ok(())
    }

    fn check_operation(&self, mtu: u64) -> Result<(), String> {
        let (operation, transport) = (self.operation.name(), self.transport.name());
        match (self.transport, self.operation) {
            (Transport::Ud, Operation::Send) | (Transport::Rc | Transport::Xrc, _) => {}
            (Transport::Uc, Operation::Send | Operation::Write) => {}
            (Transport::Ud, _) => {
                return Err(format!("{transport} has no {operation}, only send: use RC or XRC"));
            }
            (Transport::Uc, _) => {
                return Err(format!(
                    "{transport} has no {operation}, only write and send: use RC or XRC"
                ));
            }
        }
        if self.bidirectional && self.measure == Measure::Lat {
            return Err("--bidirectional does not apply to lat: use bw or rate".into());
        }
        let waits = self.operation == Operation::Write && self.measure == Measure::Lat;
        if self.events && waits {
            return Err("write lat polls memory, which raises no event: use send lat for \
                        --events"
                .into());
        }
        if self.sizes.is_empty() || self.sizes.len() > MAX_SIZES {
            return Err(format!("a test has 1 to {MAX_SIZES} sizes"));
        }
        for &size in &self.sizes {
            if self.operation == Operation::Atomic && size != 8 {
                return Err(format!("atomic operations are of 8 bytes, not of {size}"));
            }
            if self.transport == Transport::Ud && size > mtu {
                return Err(format!(
                    "a message of {} does not fit in a UD packet: the path MTU is {mtu}",
                    Size(size)
                ));
            }
            if size == 0 || size > MAX_SIZE {
                return Err(format!("a message has 1 byte to {}", Size(MAX_SIZE)));
            }
        }
        Ok(())
    }

    /// The longest message.
    pub(super) fn longest(&self) -> u64 {
        self.sizes.iter().copied().max().unwrap_or(1)
    }

    /// The distance of messages in memory. A cache line is not shared.
    pub(super) fn stride(&self) -> u64 {
        self.longest().next_multiple_of(64)
    }

    /// Messages of a QP that memory has room for. Without verification all use the same buffer, as in perftest.
    pub(super) fn slots(&self) -> u64 {
        if self.verify && self.measure != Measure::Lat {
            (CHECKED / self.stride()).clamp(1, u64::from(self.tx_depth))
        } else {
            1
        }
    }

    /// Posted receives of a QP.
    pub(super) fn receives(&self) -> u32 {
        match (self.operation, self.measure) {
            (Operation::Send, Measure::Lat) => PING_PONG_RECEIVES,
            (Operation::Send, _) if self.verify => self.slots() as u32,
            (Operation::Send, _) => RECEIVES,
            _ => 0,
        }
    }

    /// A completion for every so many requests.
    pub(super) fn moderation(&self, size: u64) -> u64 {
        let default = if size > MODERATED { 1 } else { 100 };
        u64::from(self.cq_mod.unwrap_or(default).min(self.tx_depth))
    }

    /// Untimed messages of a QP before the measurement, which fault in pages and fill caches.
    pub(super) fn warm_up(&self, size: u64) -> u64 {
        let count = ((16 << 20) / size).clamp(1, 128);
        match self.amount {
            Amount::Iterations(iterations) => count.min(iterations),
            Amount::Nanoseconds(_) => count,
        }
    }

    /// Whether the peer of the side that sends has to act.
    pub(super) fn is_one_sided(&self) -> bool {
        self.operation != Operation::Send
    }

    /// Whether messages carry their number as immediate data: to find out which were lost, or which to compare.
    pub(super) fn is_numbered(&self) -> bool {
        let lossy = self.transport.is_lossy() && self.measure == Measure::Lat;
        self.operation == Operation::Send && (self.verify || lossy)
    }
}
