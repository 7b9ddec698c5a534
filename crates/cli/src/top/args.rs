//! Arguments of `ferroce top`.

use clap::Args;

use crate::duration::Interval;

/// Examples for the help text.
pub(crate) const EXAMPLES: &str = "\
Examples:
  ferroce top                                  all processes, updated every second
  ferroce top --interval 200ms                 more often
  ferroce top --pid 4711                       one process
  ferroce top --once                           one frame as text, for scripts and bug reports

Keys:
  1 2 3 4       devices, queue pairs, completion queues, memory regions
  ↑ ↓ PgUp PgDn choose a row           Enter   the queue pairs of a device; a queue pair in detail
  p             in a queue pair: overview, its last packets, the packets around its last losses and NAKs
  s S           sort by the next or previous column, r reverses
  /             show only rows that contain a text, Esc ends it and goes back
  Space         pause                  q       quit";

/// Arguments of `ferroce top`.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// How often to update, such as 500ms
    #[arg(long, value_name = "INTERVAL", default_value = "1s")]
    pub(crate) interval: Interval,

    /// Only this process
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Only this device, by its name
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,

    /// Print one frame as text, after one interval
    #[arg(long)]
    pub(crate) once: bool,

    /// Print the objects and rates as one JSON object, after one interval, as ferroce stat --watch does
    #[arg(long, conflicts_with = "once")]
    pub(crate) json: bool,
}
