//! The command line: the one definition from which parsing, help, man pages and completions come.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use ferroce_sim::Scenario;
use ferroce_trace::link::LinkType;

use crate::decode::numbers::Numbers;
use crate::duration::Interval;
use crate::style::ColorChoice;

/// Said in every help text and man page.
const EXIT_STATUS: &str = "\
Exit status:
  0  done, and nothing was wrong with the input
  1  not done, or failed: wrong usage, a file that cannot be opened, output that cannot be
     written, a violation in a simulation
  2  bad input was met: a damaged or foreign file, a malformed packet, a wrong ICRC;
     whatever was readable was shown";

const EXAMPLES: &str = "\
Examples:
  ferroce analyze capture.pcap         what happened in a capture
  ferroce decode capture.pcap          its frames, one line each
  ferroce decode capture.pcap 12       frame 12, field by field
  ferroce simulate --scenario hostile  connections over a network that breaks";

const DECODE_EXAMPLES: &str = "\
Examples:
  ferroce decode capture.pcap                  list the frames, one line each
  ferroce decode capture.pcap 12               frame 12, field by field
  ferroce decode capture.pcap 3 7-9 20-        several frames; 20- is 20 and all that follow
  ferroce decode --json capture.pcap 12        the same for programs
  ferroce decode 525400770011525400770012...   a frame in hexadecimal
  xxd -p frame.bin | ferroce decode -          the same from the standard input
  tcpdump -w - udp port 4791 | ferroce decode - 1-10";

const ANALYZE_EXAMPLES: &str = "\
Examples:
  ferroce analyze capture.pcap                 conversations, latencies, anomalies, traffic graph
  ferroce analyze --ladder capture.pcap        with a ladder diagram of each conversation
  ferroce analyze --ladder=2 --rows 100 capture.pcap
  ferroce analyze --messages capture.pcap      every message: operation, size, packets, latency
  ferroce analyze --packets capture.pcap       every packet: ICRC verdict and summary
  ferroce analyze --json *.pcapng | jq '.files[].icrc'";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  ferroce simulate --scenario lossy:0.05 --seed 42
  ferroce simulate --scenario hostile --seeds 1000          seeds 0 to 999
  ferroce simulate --scenario reordering --capture r.pcapng && ferroce analyze --ladder=1 r.pcapng

Scenarios:
  clean, lossy:SHARE, bursty, reordering, duplicating, corrupting, congested, partitioned, pausing,
  crashing, hostile";

/// RDMA over Converged Ethernet in user space: see every packet, explained.
#[derive(Debug, Parser)]
#[command(name = "ferroce", version, propagate_version = true, max_term_width = 100)]
#[command(arg_required_else_help = true, subcommand_required = true, after_help = after(EXAMPLES))]
pub(crate) struct Cli {
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", display_order = 100)]
    pub(crate) color: ColorChoice,

    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show a frame as an annotated tree
    ///
    /// Every field of every header: its offset in the frame, its bytes, its name, its value and what that means,
    /// from the link layer to the ICRC, the connection manager's messages included. Frames come from a capture file
    /// (pcap or pcapng) by their number, or as hexadecimal digits.
    #[command(after_help = after(DECODE_EXAMPLES))]
    Decode(DecodeArgs),

    /// Explain what happened in capture files
    ///
    /// Protocol hierarchy; conversations by queue pair, both directions joined; messages with their sizes and
    /// latencies; every retransmission, duplicate, NAK, RNR, timeout and congestion notification, named and
    /// classified; the connection manager's timeline; the ICRC of every packet; a traffic graph. A file that cannot
    /// be opened does not keep the others from being analysed.
    #[command(after_help = after(ANALYZE_EXAMPLES))]
    Analyze(AnalyzeArgs),

    /// Run reliable connections over a simulated network that breaks
    ///
    /// Two hosts in virtual time do random SENDs, WRITEs, READs and atomics, and every byte is checked. All of it
    /// follows from the scenario and the seed: the same ones give the same run. What should never happen is a
    /// violation, with the command that shows it again.
    #[command(after_help = after(SIMULATE_EXAMPLES))]
    Simulate(SimulateArgs),

    /// Write completions for a shell
    ///
    /// For example, in bash: source <(ferroce completions bash)
    #[command(after_help = after(""))]
    Completions {
        /// The shell
        shell: Shell,
    },

    /// Write the man pages
    ///
    /// Without --dir, the page of ferroce itself goes to the standard output: ferroce man | man -l -
    #[command(after_help = after(""))]
    Man {
        /// Write all pages to files in this directory, which is made if missing
        #[arg(long, value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

/// Arguments of `ferroce simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// What the network does; see below
    #[arg(long, value_name = "NAME", default_value = "hostile")]
    pub(crate) scenario: Scenario,

    /// What everything is drawn from; with --seeds, the first one
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,

    /// How many seeds to run, one after the other
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) seeds: u64,

    /// Connections between the two hosts
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) connections: u32,

    /// Work requests on each connection
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) requests: u32,

    /// Bytes of the largest message
    #[arg(long, value_name = "BYTES", default_value_t = 9_000, value_parser = clap::value_parser!(u32).range(8..=1_048_576))]
    pub(crate) largest: u32,

    /// Write what the first host sends and gets to a pcapng file; for one seed
    #[arg(long, value_name = "FILE", conflicts_with = "seeds", value_hint = ValueHint::FilePath)]
    pub(crate) capture: Option<PathBuf>,
}

/// Arguments of `ferroce decode`.
#[derive(Args, Debug)]
pub(crate) struct DecodeArgs {
    /// A frame in hexadecimal, or a capture file; - is the standard input
    ///
    /// Hexadecimal digits may be separated by spaces, colons, commas and newlines, and prefixed by 0x. Anything else
    /// is taken as the name of a file. With frame numbers it is a file in any case.
    #[arg(value_name = "HEX|FILE", required_unless_present = "file", value_hint = ValueHint::FilePath)]
    pub(crate) input: Option<String>,

    /// Numbers of the frames to show, from 1: N, N-M, or N- for N and all that follow
    ///
    /// Without any, the frames of the file are listed, one line each.
    #[arg(value_name = "N")]
    pub(crate) numbers: Vec<Numbers>,

    /// The capture file, for names that could be hexadecimal
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "numbers"], value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// A frame to show, with --file; may be repeated
    #[arg(long = "frame", value_name = "N", requires = "file")]
    pub(crate) frames: Vec<Numbers>,

    /// What a frame in hexadecimal starts with
    ///
    /// By default it is guessed between Ethernet and IP. A capture file says it by itself.
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["file", "numbers"])]
    pub(crate) link: Option<Link>,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Show reserved fields that are zero, and all bytes of payloads
    #[arg(long)]
    pub(crate) all: bool,
}

/// What a frame starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Link {
    /// Ethernet, from the destination address on
    Ethernet,
    /// IPv4 or IPv6
    Ip,
    /// Linux cooked capture, version 1
    Sll,
    /// Linux cooked capture, version 2
    Sll2,
    /// BSD loopback: an address family in the byte order of the machine
    Null,
    /// OpenBSD loopback: an address family in network byte order
    Loop,
    /// Endace's extensible record format
    Erf,
    /// InfiniBand, from the local route header on
    Infiniband,
}

impl Link {
    /// The number that capture files have for it.
    pub(crate) const fn link_type(self) -> LinkType {
        match self {
            Self::Ethernet => LinkType::ETHERNET,
            Self::Ip => LinkType::RAW,
            Self::Sll => LinkType::LINUX_SLL,
            Self::Sll2 => LinkType::LINUX_SLL2,
            Self::Null => LinkType::NULL,
            Self::Loop => LinkType::LOOP,
            Self::Erf => LinkType::ERF,
            Self::Infiniband => LinkType::INFINIBAND,
        }
    }
}

/// Arguments of `ferroce analyze`.
#[derive(Args, Debug)]
pub(crate) struct AnalyzeArgs {
    /// Capture files, pcap or pcapng; - is the standard input
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw a ladder diagram of each conversation, or of the one with this number
    #[arg(long, value_name = "CONVERSATION", num_args = 0..=1, require_equals = true)]
    pub(crate) ladder: Option<Option<u32>>,

    /// Longest ladder diagram, in packets
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub(crate) rows: usize,

    /// Fold and cut nothing: every row of every list, every packet of a ladder
    #[arg(long)]
    pub(crate) all: bool,

    /// List every anomaly
    #[arg(long)]
    pub(crate) anomalies: bool,

    /// List every message
    #[arg(long)]
    pub(crate) messages: bool,

    /// List every packet, with the verdict on its ICRC
    #[arg(long)]
    pub(crate) packets: bool,

    /// Keep to the conversation with this number
    #[arg(long, value_name = "N")]
    pub(crate) conversation: Option<u32>,

    /// Step of the traffic graph, such as 10ms or 1s; by default it fits the file
    #[arg(long, value_name = "TIME")]
    pub(crate) graph_interval: Option<Interval>,

    /// Draw with ASCII alone; by default where the locale is not UTF-8
    #[arg(long)]
    pub(crate) ascii: bool,

    /// No progress bar on long files
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Most messages listed; more are only counted
    #[arg(long, value_name = "N", default_value_t = 100_000, help_heading = "Limits")]
    pub(crate) max_messages: usize,

    /// Most anomalies listed
    #[arg(long, value_name = "N", default_value_t = 100_000, help_heading = "Limits")]
    pub(crate) max_anomalies: usize,

    /// Most packets listed
    #[arg(long, value_name = "N", default_value_t = 10_000, help_heading = "Limits")]
    pub(crate) max_packets: usize,

    /// Most conversations followed at once
    #[arg(long, value_name = "N", default_value_t = 65_536, help_heading = "Limits")]
    pub(crate) max_conversations: usize,
}

fn after(examples: &str) -> String {
    if examples.is_empty() {
        return EXIT_STATUS.to_owned();
    }
    format!("{examples}\n\n{EXIT_STATUS}")
}
