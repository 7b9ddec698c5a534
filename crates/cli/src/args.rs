//! The command line: the one definition that parsing, help, man pages and completions are generated from.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};
use clap_complete::Shell;

use crate::analyze::AnalyzeArgs;
use crate::capture::CaptureCommandArgs;
use crate::client::ClientArgs;
use crate::compare::{self, CompareArgs};
use crate::dashboard::{self, DashboardArgs};
use crate::decode::DecodeArgs;
use crate::demo::DemoArgs;
use crate::devices::DevicesArgs;
use crate::devinfo::DevinfoArgs;
use crate::discover::DiscoverArgs;
use crate::doctor::{self, DoctorArgs};
use crate::environment::EnvironmentArgs;
use crate::explain::{self, ExplainArgs};
use crate::perf::PerfArgs;
use crate::report::ReportArgs;
use crate::run::RunArgs;
use crate::server::ServerArgs;
use crate::simulate::SimulateArgs;
use crate::stat::{self, StatArgs};
use crate::style::ColorChoice;
use crate::top::{self, TopArgs};
use crate::workload::{self, WorkloadArgs};

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

const CAPTURE_EXAMPLES: &str = "\
Examples:
  ferroce capture -w all.pcapng                packets of all processes of this user, until Ctrl-C
  ferroce capture -w - | ferroce analyze -     into a pipe
  ferroce capture -w cm.pcapng --plane control --host 192.0.2.1
  ferroce capture -w q.pcapng --qp 0x012345 --op write,ack --snaplen 128
  ferroce capture -w ring.pcapng --rotate-size 100M --files 10
  ferroce capture -w fast.pcapng --capture-policy drop --duration 10s
  sudo ferroce capture -i eth0 -w eth0.pcapng  RoCE frames on an interface, whoever sends them";

const DECODE_EXAMPLES: &str = "\
Examples:
  ferroce decode capture.pcap                  list the frames, one line each
  ferroce decode capture.pcap 12               frame 12, field by field
  ferroce decode capture.pcap 3 7-9 20-        several frames; 20- is 20 and all following
  ferroce decode --json capture.pcap 12        the same as JSON
  ferroce decode 525400770011525400770012...   a frame in hexadecimal
  xxd -p frame.bin | ferroce decode -          the same from standard input
  tcpdump -w - udp port 4791 | ferroce decode - 1-10
  tcpdump -U -w - udp port 4791 | ferroce decode - --explain
  ferroce decode --plane control capture.pcap.gz
  ferroce decode --op write,nak --host 192.0.2.1 capture.pcap.zst";

const ANALYZE_EXAMPLES: &str = "\
Examples:
  ferroce analyze capture.pcap                 conversations, latencies, anomalies, traffic graph
  ferroce analyze --ladder capture.pcap        with a ladder diagram of each conversation
  ferroce analyze --ladder=2 --rows 100 capture.pcap
  ferroce analyze --messages capture.pcap      every message: operation, size, packets, latency
  ferroce analyze --packets capture.pcap       every packet: ICRC verdict and summary
  ferroce analyze --fail-on warning test.pcap  for scripts: status 3 if anything had to be recovered
  ferroce analyze --fail-on error,timeout,rnr_nak test.pcap > report.txt
  ferroce analyze --json *.pcapng | jq '.files[].icrc'
  ferroce analyze --qp 0x11 --op write,nak capture.pcap.zst
  ferroce analyze --live --explain growing.pcapng
  tcpdump -U -w - udp port 4791 | ferroce analyze --live -
  ferroce analyze --live --fail-on error --fail-fast -  for scripts: ends at the first error";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  ferroce simulate --scenario lossy:0.05 --seed 42
  ferroce simulate --scenario hostile --seeds 1000          seeds 0 to 999
  ferroce simulate --seeds 1000 --json | jq '.runs[] | select(.violations != []) | .command'
  ferroce simulate --scenario reordering --capture r.pcapng && ferroce analyze --ladder=1 r.pcapng
  ferroce simulate --service rc,ud --hosts 5 --set-up cm --congestion dcqcn
  ferroce simulate --pattern incast --hosts 9 --flow-size 4M --svg incast.svg
  ferroce simulate --pattern allreduce --topology leaf-spine --hosts 32 --link-speed 100G

Scenarios:
  clean, lossy:SHARE, bursty, reordering, duplicating, corrupting, congested, partitioned, pausing,
  crashing, crash, hostile
  churn      programs that create, connect, reset and destroy objects while traffic runs
  machines   the same in processes that share machines: transmit queues between them, packets
             that reach the wrong process";

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

    /// Measure bandwidth, latency and message rate of every operation and transport
    ///
    /// Without HOST, a server process on this host is the other side; otherwise `ferroce perf --server` runs there. Both
    /// ends of a host use shared memory where the transport allows it, and sockets with --wire. The semantics and units
    /// are those of perftest (ib_write_bw and the like).
    #[command(after_help = after(crate::perf::EXAMPLES))]
    Perf(PerfArgs),

    /// Measure RDMA WRITE against TCP: the same bytes into the receiver's memory
    ///
    /// Transfers --size bytes by RDMA WRITE and by TCP, round after round, and prints throughput, CPU time of both
    /// sides, times of a chunk and retransmissions of each, and which of them wins. Without HOST it starts a server
    /// process on this host; then RDMA is measured through shared memory and through sockets.
    #[command(after_help = after(compare::EXAMPLES))]
    Compare(Box<CompareArgs>),

    /// Run what RDMA is used for: distributed work of several processes, over RDMA and over TCP
    ///
    /// Starts processes (ranks) that connect to each other and do the work of NAME, by RDMA through shared memory and
    /// through sockets, and by TCP. Every result is verified. Prints throughput, latencies and CPU time of each in one
    /// table. A rank that ends, stops or is late is reported by its number, and ends the command with status 1.
    #[command(after_help = after(workload::EXAMPLES))]
    Workload(Box<WorkloadArgs>),

    /// Capture the packets of all processes live
    ///
    /// Collects the packets of every Ferroce process of this user on this host, those that run and those that start
    /// later, into one pcapng file in the order of time. A packet between two of them is recorded once, as sent. With
    /// --interface it also captures RoCE frames of other programs and kernels. Lost packets are reported at once, at the
    /// end and in the file. A signal ends the capture and leaves a valid file.
    #[command(after_help = after(CAPTURE_EXAMPLES))]
    Capture(CaptureCommandArgs),

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

    /// Write a capture as a web page: diagnosis, charts, ladders, every byte explained
    ///
    /// One self-contained HTML file that loads nothing from the network: summary; diagnosis with the packets that show
    /// it; timeline; traffic over time, and RDMA against TCP if the captures contain both; conversations; latency; bytes
    /// in flight and PSN progress; a searchable ladder of each connection; the bytes of packets with every field
    /// explained. Works with captures of any RoCE or InfiniBand device.
    #[command(after_help = after(crate::report::EXAMPLES))]
    Report(ReportArgs),

    /// Show the RDMA activity of this host in a browser
    ///
    /// Live charts, tables of processes, queue pairs, completion queues and memory regions, and every anomaly explained,
    /// for all processes of this user that have a device open (for root, of all users). Reads counters that the processes
    /// publish, which does not disturb them. /metrics serves the same counters for Prometheus. The printed address
    /// contains a token; without it, nothing can be read.
    #[command(after_help = after(dashboard::EXAMPLES))]
    Dashboard(DashboardArgs),

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
    ///
    /// The loopback addresses belong to the first device. The loopback interface is a device only if there is no other, or
    /// if FERROCE_DEVICES names it. The path MTU follows the MTU of the interface, and is the port's active MTU, which programs
    /// without the connection manager use. Between processes of one host, the connection manager uses 4096.
    #[command(after_help = after(DEVICES_EXAMPLES))]
    Devices(DevicesArgs),

    /// Show the attributes of a device, as ibv_devinfo does
    ///
    /// active_mtu is the path MTU to other hosts. Programs without the connection manager, such as ibv_rc_pingpong and
    /// perftest, read it and use it within one host, too, where the connection manager uses 4096.
    #[command(after_help = after(DEVINFO_EXAMPLES))]
    Devinfo(DevinfoArgs),

    /// Find Ferroce hosts and their capabilities
    ///
    /// Sends the first message of the set-up exchange. A host answers while ferroce server, another server of the
    /// set-up exchange, or ferroce discover --answer runs on it. The exit status is 1 if no host answers.
    #[command(after_help = after(DISCOVER_EXAMPLES))]
    Discover(DiscoverArgs),

    /// Check this host: what works, what does not, and how to fix it
    ///
    /// Devices and addresses, UDP port 4791, the MTU, socket buffers, kernel features, namespaces, limits, and variables
    /// that keep programs from using Ferroce; then a connection over each device, with every byte verified. With a
    /// program, also whether `ferroce run` can give it Ferroce's libraries. Needs no privilege.
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(DoctorArgs),
    /// Show the counters and objects of all processes that have a device open
    ///
    /// Processes, devices, queue pairs, completion queues, memory regions: states, traffic by operation, requests in
    /// flight, retransmissions, NAKs, latencies, as rdma stat and rdma resource show for hardware. Every program on
    /// Ferroce's devices publishes them in memory; reading them does not slow it down, and also works while it is
    /// stopped. Shows the processes of the same user, and all of them to root.
    #[command(after_help = after(stat::EXAMPLES))]
    Stat(StatArgs),

    /// Watch the counters and objects of all processes, on a full screen
    ///
    /// What ferroce stat shows, updated continuously: processes with their devices, queue pairs with states, peers, rates
    /// and latencies, completion queues and memory regions, with sparklines; rows can be sorted and searched, and a queue
    /// pair opened in detail.
    #[command(after_help = after(top::EXAMPLES))]
    Top(TopArgs),

    /// Explain a term, a header, an operation, a status, a state or a counter, with a real example
    ///
    /// The example is run on the spot between two queue pairs on the loopback: an operation or a term is shown with its
    /// packets, a header with the bytes of a packet, an error status by provoking it, a counter before and after. Without a
    /// topic, lists all topics. Names of libibverbs, numbers of completion statuses and opcodes (0x0a) are accepted.
    #[command(after_help = after(explain::EXAMPLES))]
    Explain(ExplainArgs),

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
