//! Arguments of `ferroce stat`.

use clap::{Args, ValueEnum};
use ferroce_stat::Filter;

use crate::duration::Interval;

/// Examples for the help text.
pub(crate) const EXAMPLES: &str = "\
Examples:
  ferroce stat                                 processes, their devices, traffic and errors
  ferroce stat qp                              every queue pair: state, peer, traffic, latency
  ferroce stat qp --pid 4711 --verbose         with all counters, NAKs and the latency histogram
  ferroce stat dev --device ferroce_eth0       all counters of a device
  ferroce stat cq mr                           completion queues and memory regions
  ferroce stat --watch 1s                      rates, every second until Ctrl-C
  ferroce stat --json | jq '.processes[].devices[].counters.retrans_pkts'";

/// What to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Object {
    /// Devices with all their counters
    Dev,
    /// Queue pairs
    Qp,
    /// Completion queues
    Cq,
    /// Memory regions
    Mr,
    /// Shared receive queues
    Srq,
}

/// Arguments of `ferroce stat`.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// What to show; a summary if nothing is given
    #[arg(value_name = "OBJECT")]
    pub(crate) objects: Vec<Object>,

    /// Only this process
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Only this device, by its name
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,

    /// Show every counter of queue pairs, and their latency histograms
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// Show rates, repeatedly at this interval
    #[arg(long, value_name = "INTERVAL", conflicts_with_all = ["objects", "verbose"])]
    pub(crate) watch: Option<Interval>,

    /// Stop after this many intervals
    #[arg(long, value_name = "COUNT", requires = "watch")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Print JSON: everything in one object, or with --watch one line per interval
    #[arg(long)]
    pub(crate) json: bool,
}

impl StatArgs {
    /// Which processes and devices to read.
    pub(super) fn filter(&self) -> Filter {
        // As ibv_devices and ferroce devinfo take it: the interface's name stands for the device's.
        Filter { pid: self.pid, device: self.device.clone() }
    }
}
