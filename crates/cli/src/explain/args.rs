//! Arguments of `ferroce explain`.

use clap::Args;

/// Examples in the help text.
pub(crate) const EXAMPLES: &str = "\
Examples:
  ferroce explain                              all topics
  ferroce explain write                        RDMA WRITE, with its packets
  ferroce explain status 12                    IBV_WC_RETRY_EXC_ERR, provoked
  ferroce explain rkey                         and what a wrong one leads to
  ferroce explain bth                          a header, with the bytes of a real packet
  ferroce explain 0x0a                         an opcode
  ferroce explain vendor_err 4                 the reason in a completion with an error
  ferroce explain --json rnr | jq '.example.packets[].summary'";

/// Arguments of `ferroce explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// An operation, transport, header, completion status, state, counter, term, or opcode; without it, all are listed
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw with ASCII characters only
    #[arg(long)]
    pub(crate) ascii: bool,

    /// Only the text, without running the example
    #[arg(long)]
    pub(crate) no_example: bool,
}
