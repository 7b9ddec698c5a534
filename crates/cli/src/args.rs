//! The command line: the one definition that parsing, help, man pages and completions are generated from.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};
use clap_complete::Shell;

use crate::analyze::AnalyzeArgs;
use crate::client::ClientArgs;
use crate::decode::DecodeArgs;
use crate::demo::DemoArgs;
use crate::devices::DevicesArgs;
use crate::devinfo::DevinfoArgs;
use crate::discover::DiscoverArgs;
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

fn after(examples: &str) -> String {
    if examples.is_empty() {
        return EXIT_STATUS.to_owned();
    }
    format!("{examples}\n\n{EXIT_STATUS}")
}
