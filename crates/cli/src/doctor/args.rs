//! Arguments of `ferroce doctor`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

/// Examples in the help text.
pub(crate) const EXAMPLES: &str = "\
Examples:
  ferroce doctor                               check this host
  ferroce doctor -- ib_write_bw                and whether `ferroce run -- ib_write_bw` will work
  ferroce doctor --strict                      for scripts: warnings fail as well
  ferroce doctor --json | jq '.findings[] | select(.result == \"problem\")'

Exit status:
  0  everything works; there may be notes and warnings
  1  something does not work, or there is a warning and --strict was given";

/// Arguments of `ferroce doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Treat warnings as failures
    #[arg(long)]
    pub(crate) strict: bool,

    /// Leave out the test connections over each device
    #[arg(long)]
    pub(crate) no_self_test: bool,

    /// A program that is to be started by `ferroce run`
    #[arg(value_name = "PROGRAM", last = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) program: Vec<OsString>,
}
