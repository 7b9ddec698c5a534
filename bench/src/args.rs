//! Command line.

use clap::{Parser, Subcommand};

use crate::driver::Driver;
use crate::sample::Which;

/// Repetitions of a full run and of `--quick`.
const REPETITIONS: [usize; 2] = [5, 2];

const EXAMPLES: &str = "\
Examples:
  ferroce-bench                      all rows, 5 repetitions
  ferroce-bench --quick --only rate  one row, 2 repetitions
  ferroce-bench --only lat --only qps --json
  ferroce-bench --write              all rows, and docs/benchmarks.md

Only ratios within one run are comparable. Let nothing else run on the machine.

Exit status:
  0  all rows ran, whether or not they meet their bars
  1  a row failed to run
  2  wrong usage";

/// Compare Ferroce with TCP, UCX, libfabric and rdma_rxe on this machine.
#[derive(Parser, Debug)]
#[command(version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// 2 repetitions instead of 5
    #[arg(long)]
    pub(crate) quick: bool,

    /// Only rows whose name contains this; can be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,

    /// List the rows
    #[arg(long)]
    pub(crate) list: bool,

    /// Write docs/benchmarks.md in the current directory, which must be that of the repository
    #[arg(long, conflicts_with_all = ["only", "list"])]
    pub(crate) write: bool,

    /// Print JSON, with all samples
    #[arg(long)]
    pub(crate) json: bool,

    /// What this program starts itself for.
    #[command(subcommand)]
    pub(crate) mode: Option<Mode>,
}

/// Subcommands with which this program starts itself.
#[derive(Subcommand, Debug)]
pub(crate) enum Mode {
    /// Take one sample in a new network namespace
    #[command(hide = true)]
    Sample(Which),
    /// Run a measuring program
    #[command(subcommand, hide = true)]
    Driver(Driver),
}

impl Args {
    /// The number of samples of each side.
    pub(crate) fn repetitions(&self) -> usize {
        REPETITIONS[usize::from(self.quick)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn quick_runs_have_two_repetitions() {
        assert_eq!(Args::parse_from(["ferroce-bench"]).repetitions(), 5);
        assert_eq!(Args::parse_from(["ferroce-bench", "--quick"]).repetitions(), 2);
    }

    #[test]
    fn a_partial_run_does_not_replace_the_document() {
        assert!(Args::try_parse_from(["ferroce-bench", "--write", "--only", "rate"]).is_err());
    }
}
