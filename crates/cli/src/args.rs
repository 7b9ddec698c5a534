//! The command line: the one definition that parsing, help, man pages and completions are generated from.

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

/// Part of every help text and man page.
const EXIT_STATUS: &str = "\
Exit status:
  0  success, and the input was valid
  1  failure: wrong usage, a file that cannot be opened, no such conversation,
     output that cannot be written, a violation in a simulation
  2  invalid input: a damaged or foreign file, a malformed packet, a wrong ICRC;
     everything readable was shown
  3  analyze found anomalies that --fail-on names
  If several apply, the smallest other than 0 is returned.";

const EXAMPLES: &str = "\
Examples:
  ferroce demo                         RDMA demonstrated: every step, every packet
  ferroce analyze capture.pcap         what happened in a capture
  ferroce decode capture.pcap          its frames, one line each
  ferroce decode capture.pcap 12       frame 12, field by field
  ferroce simulate --scenario hostile  connections over a faulty network
  ferroce devices                      the available devices";

const DEMO_EXAMPLES: &str = "\
Examples:
  ferroce demo                                 step by step, with the ladder and demo.pcapng
  ferroce demo --set-up exchange --address ::1
  ferroce demo --size 1M --capture big.pcapng && ferroce analyze big.pcapng
  ferroce demo --json | jq '.operations'";

const SERVER_EXAMPLES: &str = "\
Examples:
  ferroce server                               on all addresses of this machine, port 7471
  ferroce server --listen 192.0.2.1:9000       on one address
  ferroce server --memory 16G --capture server.pcapng";

const CLIENT_EXAMPLES: &str = "\
Examples:
  ferroce client 192.0.2.1                     WRITE 16 KiB, READ it back, compare
  ferroce client 192.0.2.1 imm --count 1000    batches with WRITE_WITH_IMM
  ferroce client 192.0.2.1:9000 bulk --size 1G --chunk 4M
  ferroce client 192.0.2.1 --capture client.pcapng && ferroce analyze --ladder client.pcapng";

const DECODE_EXAMPLES: &str = "\
Examples:
  ferroce decode capture.pcap                  list the frames, one line each
  ferroce decode capture.pcap 12               frame 12, field by field
  ferroce decode capture.pcap 3 7-9 20-        several frames; 20- is 20 and all following
  ferroce decode --json capture.pcap 12        the same as JSON
  ferroce decode 525400770011525400770012...   a frame in hexadecimal
  xxd -p frame.bin | ferroce decode -          the same from standard input
  tcpdump -w - udp port 4791 | ferroce decode - 1-10";

const ANALYZE_EXAMPLES: &str = "\
Examples:
  ferroce analyze capture.pcap                 conversations, latencies, anomalies, traffic graph
  ferroce analyze --ladder capture.pcap        with a ladder diagram of each conversation
  ferroce analyze --ladder=2 --rows 100 capture.pcap
  ferroce analyze --messages capture.pcap      every message: operation, size, packets, latency
  ferroce analyze --packets capture.pcap       every packet: ICRC verdict and summary
  ferroce analyze --fail-on warning test.pcap  for scripts: status 3 if anything had to be recovered
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
  ferroce devinfo ferroce_eth0                 one device, by its name or its interface (eth0)
  ferroce devinfo -v eth0                      with all limits and the GID table
  ferroce devinfo --json | jq '.devices[].ports[].gids'";

const DISCOVER_EXAMPLES: &str = "\
Examples:
  ferroce discover                             all hosts on our networks, by multicast
  ferroce discover 192.0.2.7 192.0.2.8         these hosts
  ferroce discover --timeout 3s --json | jq -r '.hosts[].address'
  ferroce discover --answer                    answer queries until interrupted
  ferroce discover --capture found.pcapng && ferroce analyze found.pcapng";

const RUN_EXAMPLES: &str = "\
Examples:
  ferroce run -- ibv_devinfo                   unmodified RDMA programs, unprivileged
  ferroce run --device eth1 -- ib_write_bw     with only one device
  ferroce run --name rxe%d -- ibv_devices      with devices called rxe0, rxe1, …
  ferroce run --capture %p.pcapng -- ./test.sh with a capture of each process
  ferroce run --sockets -- redis-server        TCP programs over RDMA, and over TCP for other clients
  ferroce run --trace -- rping -s              trace each library call
  ferroce run -v -- bash                       a shell, printing the variables that are set

Exit status:
  that of the command, or 128 plus the number of the signal that terminated it
  125  the command was not started: no such device, no libraries, no file for the capture
  126  it cannot be executed
  127  it was not found
  1    wrong usage";

const ENV_EXAMPLES: &str = "\
Examples:
  eval \"$(ferroce env)\"                       for this shell session
  eval \"$(ferroce env --device eth1)\"         with only one device";

/// RDMA over Converged Ethernet in user space: see every packet, explained.
#[derive(Debug, Parser)]
#[command(name = "ferroce", version, propagate_version = true, max_term_width = 100)]
#[command(arg_required_else_help = true, subcommand_required = true, after_help = after(EXAMPLES))]
pub(crate) struct Cli {
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", display_order = 100)]
    pub(crate) color: ColorChoice,

    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Demonstrate RDMA: a server and a client on this machine, every step and every packet
    ///
    /// A server process and a client process connect and perform every operation once: WRITE, READ, WRITE_WITH_IMM,
    /// SEND and RECV, compare-and-swap, fetch-and-add. Every byte is verified. A ladder diagram then shows the packets
    /// on the wire, which are also written to demo.pcapng. Needs no privilege, no hardware, and no network other than
    /// the loopback.
    #[command(after_help = after(DEMO_EXAMPLES))]
    Demo(DemoArgs),

    /// Serve memory to clients on this host or other hosts
    #[command(after_help = after(SERVER_EXAMPLES))]
    Server(ServerArgs),

    /// Access a server's memory and verify every byte
    #[command(after_help = after(CLIENT_EXAMPLES))]
    Client(ClientArgs),

    /// Show a frame as an annotated tree
    ///
    /// Every field of every header, from the link layer to the ICRC and including CM messages: its offset in the frame,
    /// its bytes, its name, its value and the value's meaning. Frames are read from a capture file (pcap or pcapng) by
    /// number, or given in hexadecimal.
    #[command(after_help = after(DECODE_EXAMPLES))]
    Decode(DecodeArgs),

    /// Explain what happened in capture files
    ///
    /// Protocol hierarchy; conversations by queue pair, with both directions joined; messages with their sizes and
    /// latencies; every retransmission, duplicate, NAK, RNR, timeout and congestion notification, named and classified;
    /// a timeline of the connection manager; the ICRC of every packet; a traffic graph. If one file cannot be opened,
    /// the others are still analysed.
    #[command(after_help = after(ANALYZE_EXAMPLES))]
    Analyze(AnalyzeArgs),

    /// Run connections over a simulated faulty network
    ///
    /// Hosts in virtual time perform random SENDs, WRITEs, READs, atomics and datagrams over every service, and every
    /// byte is checked. The options and the seed determine the run completely. Anything that must never happen is
    /// reported as a violation, with the command that reproduces it and a ladder diagram of its connection.
    #[command(after_help = after(SIMULATE_EXAMPLES))]
    Simulate(SimulateArgs),

    /// List the devices: one per network interface with an address
    ///
    /// Every interface that is up and has an address is a device. Needs no privilege and no RDMA hardware.
    #[command(after_help = after(DEVICES_EXAMPLES))]
    Devices(DevicesArgs),

    /// Show the attributes of a device, as ibv_devinfo does
    #[command(after_help = after(DEVINFO_EXAMPLES))]
    Devinfo(DevinfoArgs),

    /// Find Ferroce hosts and their capabilities
    ///
    /// Sends the first message of the set-up exchange. A host answers while ferroce server, another server of the
    /// set-up exchange, or ferroce discover --answer runs on it. The exit status is 1 if no host answers.
    #[command(after_help = after(DISCOVER_EXAMPLES))]
    Discover(DiscoverArgs),

    /// Run a command on Ferroce's devices: unmodified programs that use libibverbs and librdmacm
    ///
    /// The command and its children load Ferroce's libibverbs and librdmacm, and see its devices in
    /// /sys/class/infiniband and /dev/infiniband instead of the kernel's. Needs no privilege. Has no effect on
    /// statically linked and set-user-ID programs. Signals are forwarded to the command.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),

    /// Print the variables that ferroce run sets, for a shell
    ///
    /// They affect programs that the shell starts. Patterns that the shell itself expands, such as
    /// /sys/class/infiniband/*, match nothing. The view of the devices exists until the session (such as the terminal)
    /// ends.
    #[command(after_help = after(ENV_EXAMPLES))]
    Env(EnvironmentArgs),

    /// Print completions for a shell
    ///
    /// For example, in bash: source <(ferroce completions bash)
    #[command(after_help = after(""))]
    Completions {
        /// The shell
        shell: Shell,
    },

    /// Write the man pages
    ///
    /// Without --dir, prints the page of ferroce itself: ferroce man | man -l -
    #[command(after_help = after(""))]
    Man {
        /// Write all pages to this directory, creating it if necessary
        #[arg(long, value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

/// Arguments of `ferroce decode`.
#[derive(Args, Debug)]
pub(crate) struct DecodeArgs {
    /// A frame in hexadecimal, or a capture file; - reads standard input
    ///
    /// Hexadecimal digits may be separated by spaces, colons, commas and newlines, and prefixed with 0x. Anything else
    /// is a file name, as is everything if frame numbers follow.
    #[arg(value_name = "HEX|FILE", required_unless_present = "file", value_hint = ValueHint::FilePath)]
    pub(crate) input: Option<String>,

    /// The numbers of the frames to show, from 1: N, N-M, or N- for N and all following
    ///
    /// Without numbers, all frames of the file are listed, one line each.
    #[arg(value_name = "N")]
    pub(crate) numbers: Vec<Numbers>,

    /// The capture file, for names that look like hexadecimal
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "numbers"], value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// A frame to show, with --file; can be repeated
    #[arg(long = "frame", value_name = "N", requires = "file")]
    pub(crate) frames: Vec<Numbers>,

    /// The link layer of a frame in hexadecimal
    ///
    /// By default Ethernet or IP is guessed. Capture files contain it.
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["file", "numbers"])]
    pub(crate) link: Option<Link>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Also show reserved fields that are zero, and complete payloads
    #[arg(long)]
    pub(crate) all: bool,
}

/// The link layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Link {
    /// Ethernet, starting with the destination address
    Ethernet,
    /// IPv4 or IPv6
    Ip,
    /// Linux cooked capture, version 1
    Sll,
    /// Linux cooked capture, version 2
    Sll2,
    /// BSD loopback: an address family in the machine's byte order
    Null,
    /// OpenBSD loopback: an address family in network byte order
    Loop,
    /// Endace extensible record format
    Erf,
    /// InfiniBand, starting with the local route header
    Infiniband,
}

impl Link {
    /// The link type number of capture files.
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
    /// Capture files, pcap or pcapng; - reads standard input
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,

    /// Print JSON
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
}

fn after(examples: &str) -> String {
    if examples.is_empty() {
        return EXIT_STATUS.to_owned();
    }
    format!("{examples}\n\n{EXIT_STATUS}")
}
