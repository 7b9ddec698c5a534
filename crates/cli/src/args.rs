//! The command line: the one definition from which parsing, help, man pages and completions come.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use ferroce_trace::link::LinkType;

use crate::analyze::fail_on::{self, FailOn};
use crate::client::ClientArgs;
use crate::decode::numbers::Numbers;
use crate::demo::DemoArgs;
use crate::devices::DevicesArgs;
use crate::devinfo::DevinfoArgs;
use crate::discover::DiscoverArgs;
use crate::duration::Interval;
use crate::environment::EnvironmentArgs;
use crate::run::RunArgs;
use crate::server::ServerArgs;
use crate::simulate::SimulateArgs;
use crate::style::ColorChoice;

/// Said in every help text and man page.
const EXIT_STATUS: &str = "\
Exit status:
  0  done, and nothing was wrong with the input
  1  not done, or failed: wrong usage, a file that cannot be opened, no such conversation,
     output that cannot be written, a violation in a simulation
  2  bad input was met: a damaged or foreign file, a malformed packet, a wrong ICRC;
     whatever was readable was shown
  3  analyze found anomalies that --fail-on names
  Of several, the smallest that is not 0 counts.";

const EXAMPLES: &str = "\
Examples:
  ferroce demo                         RDMA at work, every step and every packet
  ferroce analyze capture.pcap         what happened in a capture
  ferroce decode capture.pcap          its frames, one line each
  ferroce decode capture.pcap 12       frame 12, field by field
  ferroce simulate --scenario hostile  connections over a network that breaks
  ferroce devices                      the devices that there are";

const DEMO_EXAMPLES: &str = "\
Examples:
  ferroce demo                                 step by step, with the ladder and demo.pcapng
  ferroce demo --set-up exchange --address ::1
  ferroce demo --size 1M --capture big.pcapng && ferroce analyze big.pcapng
  ferroce demo --json | jq '.operations'";

const SERVER_EXAMPLES: &str = "\
Examples:
  ferroce server                               at all addresses of this machine, port 7471
  ferroce server --listen 192.0.2.1:9000       at one address
  ferroce server --memory 16G --capture server.pcapng";

const CLIENT_EXAMPLES: &str = "\
Examples:
  ferroce client 192.0.2.1                     WRITE 16 KiB, READ them back, compare
  ferroce client 192.0.2.1 imm --count 1000    batches with WRITE_WITH_IMM
  ferroce client 192.0.2.1:9000 bulk --size 1G --chunk 4M
  ferroce client 192.0.2.1 --capture client.pcapng && ferroce analyze --ladder client.pcapng";

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
  ferroce analyze --fail-on warning test.pcap  for scripts: status 3 if anything had to be repaired
  ferroce analyze --fail-on error,timeout,rnr_nak test.pcap > report.txt
  ferroce analyze --json *.pcapng | jq '.files[].icrc'";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  ferroce simulate --scenario lossy:0.05 --seed 42
  ferroce simulate --scenario hostile --seeds 1000          seeds 0 to 999
  ferroce simulate --seeds 1000 --json | jq '.runs[] | select(.violations != []) | .command'
  ferroce simulate --scenario reordering --capture r.pcapng && ferroce analyze --ladder=1 r.pcapng
  ferroce simulate --service rc,ud --hosts 5 --set-up cm --congestion dcqcn

Scenarios:
  clean, lossy:SHARE, bursty, reordering, duplicating, corrupting, congested, partitioned, pausing,
  crashing, crash, hostile";

const DEVICES_EXAMPLES: &str = "\
Examples:
  ferroce devices                              name, interface, state, MTU, GUID, addresses
  ferroce devices --json | jq -r '.devices[].name'";

const DEVINFO_EXAMPLES: &str = "\
Examples:
  ferroce devinfo                              every device
  ferroce devinfo ferroce_eth0                 one; the interface's name, eth0, does as well
  ferroce devinfo -v eth0                      with all limits and the GID table
  ferroce devinfo --json | jq '.devices[].ports[].gids'";

const DISCOVER_EXAMPLES: &str = "\
Examples:
  ferroce discover                             everybody on our networks, by multicast
  ferroce discover 192.0.2.7 192.0.2.8         these hosts
  ferroce discover --timeout 3s --json | jq -r '.hosts[].address'
  ferroce discover --answer                    be found, until interrupted
  ferroce discover --capture found.pcapng && ferroce analyze found.pcapng";

const RUN_EXAMPLES: &str = "\
Examples:
  ferroce run -- ibv_devinfo                   RDMA programs as they are, unprivileged
  ferroce run --device eth1 -- ib_write_bw     with one device of several
  ferroce run --name rxe%d -- ibv_devices      with devices called rxe0, rxe1, …
  ferroce run --capture %p.pcapng -- ./test.sh with a capture of each process
  ferroce run --sockets -- redis-server        TCP programs over RDMA, and over TCP for other clients
  ferroce run --trace -- rping -s              each call of the libraries, said
  ferroce run -v -- bash                       a shell, and what is set for it

Exit status:
  that of the command, or 128 and the number of the signal that ended it
  125  the command was not started: no such device, no libraries, no file for the capture
  126  it cannot be executed
  127  it was not found
  1    wrong usage";

const ENV_EXAMPLES: &str = "\
Examples:
  eval \"$(ferroce env)\"                       for the rest of this shell
  eval \"$(ferroce env --device eth1)\"         with one device of several";

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
    /// Show RDMA at work: a server and a client on this machine, every step, every packet
    ///
    /// A server process and a client process connect and do every operation once: WRITE, READ, WRITE_WITH_IMM, SEND
    /// and RECV, compare-and-swap, fetch-and-add. Every byte is verified. Then comes the ladder of what was on the wire,
    /// which is in demo.pcapng as well. No privilege is needed, no hardware, and no network but the loopback.
    #[command(after_help = after(DEMO_EXAMPLES))]
    Demo(DemoArgs),

    /// Offer memory to clients on other hosts, or on this one
    #[command(after_help = after(SERVER_EXAMPLES))]
    Server(ServerArgs),

    /// Work on a server's memory, with every byte verified
    #[command(after_help = after(CLIENT_EXAMPLES))]
    Client(ClientArgs),

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

    /// Run connections over a simulated network that breaks
    ///
    /// Hosts in virtual time do random SENDs, WRITEs, READs, atomics and datagrams over every service, and every byte
    /// is checked. All of it follows from the options and the seed: the same ones give the same run. What should never
    /// happen is a violation, shown with the command that brings it back and the ladder of its connection.
    #[command(after_help = after(SIMULATE_EXAMPLES))]
    Simulate(SimulateArgs),

    /// List the devices: one for each network interface with an address
    ///
    /// No privilege is needed, and no RDMA hardware: an interface that is up and has an address is a device.
    #[command(after_help = after(DEVICES_EXAMPLES))]
    Devices(DevicesArgs),

    /// Show what a device is and allows, as ibv_devinfo does
    #[command(after_help = after(DEVINFO_EXAMPLES))]
    Devinfo(DevinfoArgs),

    /// Find the Ferroce hosts that answer, and what they can do
    ///
    /// Asks by the first message of the set-up exchange. A host answers while ferroce server, another server of the set-up
    /// exchange, or ferroce discover --answer runs there. Nobody answering is exit status 1.
    #[command(after_help = after(DISCOVER_EXAMPLES))]
    Discover(DiscoverArgs),

    /// Run a command that finds Ferroce's devices: unchanged programs of libibverbs and librdmacm
    ///
    /// For the command and its children, libibverbs and librdmacm are Ferroce's, and /sys/class/infiniband and
    /// /dev/infiniband have its devices instead of the kernel's. No privilege is needed. Programs that are linked
    /// statically, or that run with another user's rights, do not notice. Signals are passed on.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),

    /// Write the variables that ferroce run sets, for a shell
    ///
    /// They are for what the shell starts; patterns that it expands itself, such as /sys/class/infiniband/*, find nothing.
    /// The view of the devices that they name stays until the session, such as a terminal's, has ended.
    #[command(after_help = after(ENV_EXAMPLES))]
    Env(EnvironmentArgs),

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

    /// End with exit status 3 if there are such anomalies: error, warning, info, or kinds such as retransmission
    ///
    /// With commas between. error is what failed for good; warning also has what the protocol had to repair; info is
    /// any anomaly. With --conversation, those of that conversation count.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = fail_on::parser(), hide_possible_values = true)]
    pub(crate) fail_on: Vec<FailOn>,

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
