//! The command line of `ferroce perf`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use serde::{Deserialize, Serialize};

use super::test::{Amount, Test};
use crate::duration::Interval;
use crate::session::address::Listen;
use crate::session::bytes::Size;

pub(crate) const EXAMPLES: &str = "\
Examples:
  ferroce perf write bw                        this host to itself, 64 KiB, for a second
  ferroce perf send lat --all --svg lat.svg    every size, with a chart
  ferroce perf read bw --wire --json           through sockets instead of shared memory
  ferroce perf write rate --qps 4 --threads 2  messages per second
  ferroce perf --server                        on one host, then on another:
  ferroce perf write bw 192.0.2.1 --all --verify

Semantics, as in perftest:
  bw    requests in flight up to --tx-depth; completions are moderated
  rate  bw with small messages, posted in lists
  lat   write, send: ping-pong, half of the round trip; write polls memory
        read, atomic: one operation at a time, from post to completion";

/// The operation to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    /// RDMA WRITE
    Write,
    /// RDMA READ
    Read,
    /// SEND and RECV
    Send,
    /// Atomic operations on 8 bytes
    Atomic,
}

impl Operation {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
            Self::Atomic => "atomic",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Measure {
    /// Bandwidth
    Bw,
    /// Latency
    Lat,
    /// Message rate
    Rate,
}

impl Measure {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bw => "bw",
            Self::Lat => "lat",
            Self::Rate => "rate",
        }
    }
}

/// The transport service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    /// Reliable connection
    Rc,
    /// Unreliable connection: write and send
    Uc,
    /// Unreliable datagram: send, up to the path MTU
    Ud,
    /// Extended reliable connection
    Xrc,
}

impl Transport {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Xrc => "XRC",
        }
    }

    /// Whether messages can be lost.
    pub(super) const fn is_lossy(self) -> bool {
        matches!(self, Self::Uc | Self::Ud)
    }
}

/// The atomic operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Atomic {
    /// Fetch-and-add
    #[default]
    FetchAdd,
    /// Compare-and-swap
    CompareSwap,
}

/// Arguments of `ferroce perf`.
#[derive(Args, Debug)]
pub(crate) struct PerfArgs {
    /// The operation
    #[arg(required_unless_present = "server")]
    pub(crate) operation: Option<Operation>,

    /// What to measure: bandwidth, latency or message rate
    #[arg(value_name = "TEST", required_unless_present = "server")]
    pub(crate) measure: Option<Measure>,

    /// The host where `ferroce perf --server` runs, and its port if it is not 7471 [default: a
    /// server process on this host, for this test only]
    #[arg(value_name = "HOST[:PORT]", value_hint = ValueHint::Hostname)]
    pub(crate) host: Option<String>,

    /// Serve tests of other hosts, any number one after another or at once
    #[arg(long, conflicts_with_all = ["operation", "measure", "host", "svg", "wire"])]
    pub(crate) server: bool,

    /// Where the server listens: an address of this machine and a TCP port; 0 chooses any port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:7471", requires = "server")]
    pub(crate) listen: Listen,

    /// Report only the address, and exit at the end of standard input.
    #[arg(long, hide = true, requires = "server")]
    pub(crate) child: bool,

    /// The transport service
    #[arg(long, short = 'c', value_name = "SERVICE", default_value = "rc")]
    pub(crate) transport: Transport,

    /// Message size [default: 64K for bw, 2 for lat, 8 for rate and atomic]
    #[arg(long, short, value_name = "BYTES", conflicts_with = "all")]
    pub(crate) size: Option<Size>,

    /// All powers of two from 2 bytes to 8 MiB, or to what the transport allows
    #[arg(long, short)]
    pub(crate) all: bool,

    /// How long to measure each size [default: 1s]
    #[arg(long, short = 'D', value_name = "TIME", conflicts_with = "iterations")]
    pub(crate) duration: Option<Interval>,

    /// Messages of each QP and size, instead of a duration
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub(crate) iterations: Option<u64>,

    /// Number of QPs, divided among the threads [default: the number of threads]
    #[arg(long, short, value_name = "COUNT")]
    pub(crate) qps: Option<u32>,

    /// Threads on each side, each with a CQ and a shard of the device of its own
    #[arg(long, short = 'j', value_name = "COUNT", default_value_t = 1)]
    pub(crate) threads: u32,

    /// Both sides send at the same time; the result is the sum (bw and rate)
    #[arg(long, short)]
    pub(crate) bidirectional: bool,

    /// Sleep until a completion event instead of polling
    #[arg(long, short)]
    pub(crate) events: bool,

    /// Check every byte. Filling and checking are part of the measured time of bw and rate
    #[arg(long)]
    pub(crate) verify: bool,

    /// Requests of a QP in flight
    #[arg(long, short = 't', value_name = "COUNT", default_value_t = 128)]
    pub(crate) tx_depth: u32,

    /// Requests that are posted with one call [default: 1 for bw, 32 for rate]
    #[arg(long, short = 'l', value_name = "COUNT")]
    pub(crate) post_list: Option<u32>,

    /// A completion for every so many requests [default: 100, or 1 for messages above 8 KiB]
    #[arg(long, short = 'Q', value_name = "COUNT")]
    pub(crate) cq_mod: Option<u32>,

    /// The atomic operation
    #[arg(long, value_name = "OPERATION", default_value = "fetch-add")]
    pub(crate) atomic: Atomic,

    /// Send through sockets, as between hosts, even if the server is on this host
    #[arg(long)]
    pub(crate) wire: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a chart of the result to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,

    /// Show no progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl PerfArgs {
    /// The test, or why the options do not go together. `mtu` is the longest UD message.
    pub(super) fn test(&self, mtu: u64) -> Result<Test, String> {
        let operation = self.operation.ok_or("no operation")?;
        let measure = self.measure.ok_or("no test")?;
        let longest = if self.transport == Transport::Ud { mtu } else { 8 << 20 };
        let sizes = match (self.size, operation) {
            (_, Operation::Atomic) if self.all => vec![8],
            (None, _) if self.all => powers(longest),
            (Some(size), _) => vec![size.0],
            (None, Operation::Atomic) => vec![8],
            (None, _) => vec![match measure {
                Measure::Bw => (64 << 10).min(longest),
                Measure::Lat => 2,
                Measure::Rate => 8,
            }],
        };
        let test = Test {
            operation,
            measure,
            transport: self.transport,
            sizes,
            amount: match (self.iterations, self.duration) {
                (Some(count), _) => Amount::Iterations(count),
                (None, Some(time)) => Amount::Nanoseconds(time.nanoseconds),
                (None, None) => Amount::Nanoseconds(1_000_000_000),
            },
            qps: self.qps.unwrap_or(self.threads),
            threads: self.threads,
            bidirectional: self.bidirectional,
            events: self.events,
            verify: self.verify,
            tx_depth: self.tx_depth,
            post_list: self.post_list.unwrap_or(match measure {
                Measure::Rate => 32.min(self.tx_depth),
                _ => 1,
            }),
            cq_mod: self.cq_mod,
            atomic: self.atomic,
        };
        test.check(mtu)?;
        Ok(test)
    }
}

/// The powers of two from 2 to the longest message.
fn powers(longest: u64) -> Vec<u64> {
    (1..=23).map(|shift| 1 << shift).filter(|size| *size <= longest).collect()
}
