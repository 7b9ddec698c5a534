//! Programs that are given no device: on a host with Ethernet by its loopback address and by its own address, between
//! two hosts, and on a host with only a loopback.

use std::fs;
use std::process::Command;
use std::time::Instant;

use ferroce_tests::running::{Running, listens, turn};
use ferroce_tests::{capture, listening, perftest};

use super::hosts::{Hosts, ferroce, has, plain};
use super::pair::LIMIT;

/// Where server and client run, and which address the client uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Topology {
    /// One host, by 127.0.0.1.
    Loopback,
    /// One host, by its Ethernet address.
    Own,
    /// Two hosts.
    Between,
    /// A host with no other interface, by 127.0.0.1.
    LoopbackOnly,
}

/// How to detect that a server listens.
#[derive(Clone, Copy)]
enum Ready {
    Tcp(u16),
    /// With the connection manager.
    Cm(u16),
}

/// Checks the output of a program with this command line.
type Check = fn(&str, &str) -> Result<(), String>;

impl Topology {
    fn address(self) -> String {
        match self {
            Self::Loopback | Self::LoopbackOnly => "127.0.0.1".to_owned(),
            Self::Own | Self::Between => Hosts::address(0),
        }
    }

    fn device(self) -> &'static str {
        if self == Self::LoopbackOnly { "ferroce_lo" } else { "ferroce_eth0" }
    }

    /// The payload bytes of a packet: Ethernet's MTU is 1500, the loopback's 65536.
    fn path_mtu(self) -> usize {
        if self == Self::Between { 1024 } else { 4096 }
    }

    /// Returns a command under `ferroce run`, on the server's side or the client's.
    fn command(self, hosts: Option<&Hosts>, client: bool, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a program");
        let mut command = match hosts {
            Some(hosts) => hosts.program(usize::from(client && self == Self::Between), name),
            None => {
                let mut run = Command::new(ferroce());
                run.args(["run", "--", name]);
                plain(&mut run);
                run
            }
        };
        command.args(words);
        command
    }
}

/// Runs both sides and returns the client's output. Returns `None`, after a skip, if something is missing.
fn run(
    topology: Topology,
    ready: Ready,
    [server, client]: [&str; 2],
    change: impl Fn(&mut Command),
) -> Option<String> {
    let _turn = turn();
    let name = client.split(' ').next()?;
    if !has(name) {
        return None;
    }
    let hosts = match topology {
        Topology::LoopbackOnly => None,
        _ => Some(Hosts::new()?),
    };
    let until = Instant::now() + LIMIT;
    let ends = || {
        let mut command = topology.command(hosts.as_ref(), false, server);
        if let Ready::Cm(_) = ready {
            listening::announce(&mut command);
        }
        change(&mut command);
        let mut server = Running::start_group(command);
        let listening = |server: &Running| match ready {
            Ready::Tcp(port) => listens(server.id(), port),
            Ready::Cm(port) => listening::is_announced(server.id(), port),
        };
        server.wait_until(listening, until);
        let client = client.replace('@', &topology.address());
        let mut command = topology.command(hosts.as_ref(), true, &client);
        change(&mut command);
        perftest::both_ends(server, Running::start_group(command), until)
    };
    let [_, client] = perftest::calibrated(ends, |both: &[String; 2]| both.concat());
    Some(client)
}

/// A test per line: name, topology, when the server is ready, server, client, expected output.
macro_rules! programs {
    ($( $test:ident: $topology:ident $ready:expr, $server:literal | $client:literal => $check:expr; )+) => {$(
        #[test]
        fn $test() {
            let Some(said) = run(Topology::$topology, $ready, [$server, $client], |_| ()) else { return };
            let check: Check = $check;
            assert_eq!(check($client, &said), Ok(()), "{said}");
        }
    )+};
}

const PERFTEST: Ready = Ready::Tcp(18_515);
const RPING: Ready = Ready::Cm(7_174);
const FABRIC: Ready = Ready::Tcp(47_592);

fn measured(line: &str, said: &str) -> Result<(), String> {
    let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
    perftest::check(said, perftest::Table::of(program, arguments, 1024))
}

fn five_pings(_: &str, said: &str) -> Result<(), String> {
    said.contains("rdma-ping-4").then_some(()).ok_or_else(|| "no fifth ping".into())
}

/// 20 messages of 1 KiB, all acknowledged; the program compares their contents (`-c`).
fn acknowledged(_: &str, said: &str) -> Result<(), String> {
    let all = said.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.len() > 3 && words[..3] == ["1k", "20", "=20"]
    });
    all.then_some(()).ok_or_else(|| "no 20 messages of 1k".into())
}

#[rustfmt::skip]
programs! {
    write_bw_loopback:      Loopback     PERFTEST, "ib_write_bw -F -n 200"          | "ib_write_bw -F -n 200 @"         => measured;
    write_bw_between:       Between      PERFTEST, "ib_write_bw -F -n 200"          | "ib_write_bw -F -n 200 @"         => measured;
    rping_loopback:         Loopback     RPING,    "rping -s -C 5 -a 127.0.0.1"     | "rping -c -v -V -C 5 -a @"        => five_pings;
    fabric_msg_loopback:    Loopback     FABRIC,   "fi_pingpong -p verbs -e msg -I 20 -c" | "fi_pingpong -p verbs -e msg -I 20 -c @" => acknowledged;
    fabric_rdm_loopback:    Loopback     FABRIC,   "fi_pingpong -p verbs;ofi_rxm -e rdm -I 20 -c" | "fi_pingpong -p verbs;ofi_rxm -e rdm -I 20 -c @" => acknowledged;
}

/// UCX uses our device and, as the capture shows, the available path MTU.
fn ucx(topology: Topology) {
    let folder = std::env::temp_dir().join(format!("ferroce-ucx-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder for captures");
    let change = |command: &mut Command| {
        command.env("FERROCE_CAPTURE", folder.join("%p.pcapng")).env("UCX_LOG_LEVEL", "info");
    };
    let lines = ["ucx_perftest", "ucx_perftest -f -n 50 -w 5 -t tag_bw -s 300000 @"];
    let said = run(topology, Ready::Tcp(13_337), lines, change);
    let files = folder.read_dir().expect("a folder").flatten().map(|entry| entry.path());
    let packets: Vec<_> = files.flat_map(|file| capture::read(&file)).collect();
    fs::remove_dir_all(&folder).expect("it is ours");
    let Some(said) = said else { return };
    let device = format!("rc_verbs/{}:1", topology.device());
    assert!(said.contains(&device) && !said.contains("ERROR"), "no {device}: {said}");
    let largest = packets.iter().map(|packet| packet.original_len).max().unwrap_or(0);
    let headers = largest.saturating_sub(topology.path_mtu());
    assert!((1..128).contains(&headers), "packets of up to {largest} bytes: {said}");
}

#[test]
fn ucx_loopback() {
    ucx(Topology::Loopback);
}

mod full {
    use super::*;

    #[rustfmt::skip]
    programs! {
        write_bw_own:           Own          PERFTEST, "ib_write_bw -F -n 200"          | "ib_write_bw -F -n 200 @"         => measured;
        write_bw_loopback_only: LoopbackOnly PERFTEST, "ib_write_bw -F -n 200"          | "ib_write_bw -F -n 200 @"         => measured;
        send_bw_ud_loopback:    Loopback     PERFTEST, "ib_send_bw -F -c UD -n 100"     | "ib_send_bw -F -c UD -n 100 @"    => measured;
        read_lat_between:       Between      PERFTEST, "ib_read_lat -F -n 100"          | "ib_read_lat -F -n 100 @"         => measured;
        rping_any_loopback:     Loopback     RPING,    "rping -s -C 5"                  | "rping -c -v -V -C 5 -a @"        => five_pings;
        rping_own:              Own          RPING,    "rping -s -C 5"                  | "rping -c -v -V -C 5 -a @"        => five_pings;
        rping_between:          Between      RPING,    "rping -s -C 5"                  | "rping -c -v -V -C 5 -a @"        => five_pings;
        rping_own_pair:         Loopback     RPING,    "rping -s -q -C 5"               | "rping -c -q -v -V -C 5 -a @"     => five_pings;
        rping_debian_name:      Loopback     RPING,    "rping -s -C 5"                  | "rping -c -v -V -C 5 -a 127.0.1.1" => five_pings;
        fabric_msg_between:     Between      FABRIC,   "fi_pingpong -p verbs -e msg -I 20 -c" | "fi_pingpong -p verbs -e msg -I 20 -c @" => acknowledged;
        fabric_rdm_between:     Between      FABRIC,   "fi_pingpong -p verbs;ofi_rxm -e rdm -I 20 -c" | "fi_pingpong -p verbs;ofi_rxm -e rdm -I 20 -c @" => acknowledged;
        fabric_dgram_loopback:  Loopback     FABRIC,   "fi_pingpong -p verbs -e dgram -I 20 -c" | "fi_pingpong -p verbs -e dgram -I 20 -c @" => acknowledged;
        // For other endpoint types, libfabric ignores every interface named lo.
        fabric_loopback_only:   LoopbackOnly FABRIC,   "fi_pingpong -p verbs -e dgram -I 20 -c" | "fi_pingpong -p verbs -e dgram -I 20 -c @" => acknowledged;
    }

    #[test]
    fn ucx_own() {
        ucx(Topology::Own);
    }

    #[test]
    fn ucx_between() {
        ucx(Topology::Between);
    }

    #[test]
    fn ucx_loopback_only() {
        ucx(Topology::LoopbackOnly);
    }
}
