//! Arguments of `ferroce analyze`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::fail_on::{self, FailOn};
use crate::duration::Interval;
use crate::filter::FilterArgs;
use crate::input::DecompressionLimit;

/// Arguments of `ferroce analyze`.
#[derive(Args, Debug)]
pub(crate) struct AnalyzeArgs {
    /// Capture files, pcap or pcapng, also compressed with gzip or zstd; - reads standard input
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,

    /// Show packets as they arrive, and the analysis at the end
    ///
    /// Reads one file that is still being written, or a pipe, until the pipe ends or Ctrl-C. Each packet is one line, with
    /// the anomalies found at it below.
    #[arg(long, conflicts_with = "conversation")]
    pub(crate) live: bool,

    /// With --live: explain each packet in words, on a second line
    #[arg(long, requires = "live")]
    pub(crate) explain: bool,

    /// Print JSON; with --live one object per line: the packets, then the analysis
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw a ladder diagram of each conversation, or of the one with this number
    #[arg(long, value_name = "CONVERSATION", num_args = 0..=1, require_equals = true)]
    pub(crate) ladder: Option<Option<u32>>,

    /// Maximum length of a ladder diagram, in packets
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub(crate) rows: usize,

    /// Abbreviate nothing: every row of every list, every packet of a ladder
    #[arg(long)]
    pub(crate) all: bool,

    /// List every anomaly
    #[arg(long)]
    pub(crate) anomalies: bool,

    /// List every message
    #[arg(long)]
    pub(crate) messages: bool,

    /// List every packet, with its ICRC check
    #[arg(long)]
    pub(crate) packets: bool,

    /// Show only the conversation with this number
    #[arg(long, value_name = "N")]
    pub(crate) conversation: Option<u32>,

    /// Exit with status 3 if there are such anomalies: error, warning, info, or kinds such as retransmission
    ///
    /// A comma-separated list. error: unrecoverable failures; warning: also everything the protocol had to recover
    /// from; info: any anomaly. With --conversation, only anomalies of that conversation count.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = fail_on::parser(), hide_possible_values = true)]
    pub(crate) fail_on: Vec<FailOn>,

    /// With --live and --fail-on: stop at the first such anomaly
    #[arg(long, requires = "live", requires = "fail_on")]
    pub(crate) fail_fast: bool,

    /// Interval of the traffic graph, such as 10ms or 1s; by default chosen to fit the file
    #[arg(long, value_name = "TIME")]
    pub(crate) graph_interval: Option<Interval>,

    /// Draw with ASCII characters only; the default if the locale is not UTF-8
    #[arg(long)]
    pub(crate) ascii: bool,

    /// Show no progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Maximum number of messages listed; further ones are only counted
    #[arg(long, value_name = "N", default_value_t = 100_000, help_heading = "Limits")]
    pub(crate) max_messages: usize,

    /// Maximum number of anomalies listed
    #[arg(long, value_name = "N", default_value_t = 100_000, help_heading = "Limits")]
    pub(crate) max_anomalies: usize,

    /// Maximum number of packets listed
    #[arg(long, value_name = "N", default_value_t = 10_000, help_heading = "Limits")]
    pub(crate) max_packets: usize,

    /// Maximum number of conversations tracked at a time
    #[arg(long, value_name = "N", default_value_t = 65_536, help_heading = "Limits")]
    pub(crate) max_conversations: usize,

    #[command(flatten)]
    pub(crate) decompression: DecompressionLimit,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}
