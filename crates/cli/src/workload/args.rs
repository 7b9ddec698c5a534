//! Arguments of `ferroce workload`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueHint};

use super::job::{Job, Workload};
use super::method::Method;
use crate::duration::Interval;
use crate::session::bytes::Size;
use crate::session::failure::Failure;

pub(crate) const EXAMPLES: &str = "\
Examples:
  ferroce workload rendezvous --ranks 8        barriers of 8 processes, over RDMA and TCP
  ferroce workload rendezvous --delay 2:5ms    rank 2 is late: the table shows it
  ferroce workload allreduce --size 4M --method wire,tcp
  ferroce workload kv --capture kv.pcapng && ferroce analyze kv.pcapng
  ferroce workload nvmeof --depth 32 --json | jq '.methods[] | {method, latency}'";

/// A rank and a duration, such as `2:5ms`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    rank: usize,
    nanoseconds: u64,
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rank, time) = text.split_once(':').ok_or("expected RANK:DURATION, such as 2:5ms")?;
        let rank = rank.parse().map_err(|_| format!("{rank:?} is not a rank"))?;
        Ok(Self { rank, nanoseconds: time.parse::<Interval>()?.nanoseconds })
    }
}

/// Arguments of `ferroce workload`.
#[derive(Args, Debug)]
pub(crate) struct WorkloadArgs {
    /// The workload
    #[arg(value_name = "NAME", required_unless_present = "rank")]
    pub(super) workload: Option<Workload>,

    /// Processes, each connected to every other [default: see docs/workloads.md]
    #[arg(long, value_name = "COUNT")]
    ranks: Option<usize>,

    /// Epochs, steps, requests or commands: see docs/workloads.md for their meaning and default
    #[arg(long, short = 'n', value_name = "COUNT")]
    count: Option<u64>,

    /// Bytes of a request, value, block or vector
    #[arg(long, value_name = "BYTES")]
    size: Option<Size>,

    /// Requests of a rank in flight, or entries of a cache
    #[arg(long, value_name = "COUNT")]
    depth: Option<usize>,

    /// Determines all generated data
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How long a rank waits for another before it reports it as late
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    timeout: Interval,

    /// Make a rank late for every epoch of rendezvous
    #[arg(long, value_name = "RANK:DURATION")]
    delay: Option<Delay>,

    /// The address of this host to use
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(super) address: IpAddr,

    /// How ranks reach each other, separated by commas [default: all that are possible]
    #[arg(long, value_name = "METHOD,…", value_delimiter = ',')]
    pub(super) method: Vec<Method>,

    /// Run once more over sockets, and write the packets of rank 0 to a pcapng file; %r in its name is the rank, and
    /// each rank writes a file then
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) capture: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Print the process of each rank
    #[arg(long, short)]
    pub(super) verbose: bool,

    /// Show no progress line
    #[arg(long, short)]
    pub(super) quiet: bool,

    /// Be a rank: the command talks to standard input and output.
    #[arg(long, hide = true, conflicts_with = "workload")]
    pub(super) rank: bool,
}

impl WorkloadArgs {
    /// The job, with defaults for what was not given.
    pub(super) fn job(&self, workload: Workload) -> Result<Job, Failure> {
        let (traits, name) = (workload.traits(), workload.name());
        let inapplicable =
            |option: &str| Failure::Other(format!("{option} does not apply to {name}"));
        if self.size.is_some() && traits.size.is_none() {
            return Err(inapplicable("--size"));
        }
        if self.depth.is_some() && traits.depth.is_none() {
            return Err(inapplicable("--depth"));
        }
        if self.delay.is_some() && !traits.delay {
            return Err(inapplicable("--delay"));
        }
        let size = self.size.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX));
        let job = Job {
            workload,
            ranks: self.ranks.unwrap_or(traits.ranks),
            count: self.count.unwrap_or(traits.count.2),
            size: size.or(traits.size.map(|size| size.1)).unwrap_or(0),
            depth: self.depth.or(traits.depth.map(|depth| depth.1)).unwrap_or(0),
            seed: self.seed,
            timeout_ns: self.timeout.nanoseconds,
            delay: self.delay.map(|delay| (delay.rank, delay.nanoseconds)),
        };
        job.check().map_err(Failure::Other)?;
        Ok(job)
    }
}
