//! udpong with Linux's `rdma_rxe` as the peer, as server and as client: rdma-core's datagram rsockets.
//!
//! By themselves they do not run on RoCE, for the reason in `own_address.c`. With it preloaded they do, and their
//! messages are unchanged.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ferroce_tests::peer::{self, OUR_V4, OUR_V6, Options, Peer};
use ferroce_tests::running::Running;
use ferroce_tests::{c, libraries};

use super::direct;
use super::table::transfers;

/// For a machine in software emulation.
const LIMIT: Duration = Duration::from_secs(60);
/// udpong's port, as in the tables of `/proc/net`.
const PORT: &str = ":1C06 ";
/// The path of the preloaded library in the machine.
const OWN_ADDRESS: &str = "/tmp/own_address.so";

/// The clients' arguments, and the range of transfers they must report: all that are echoed, and some of those only
/// sent.
const WORK: [(&str, std::ops::RangeInclusive<u32>); 4] = [
    ("-S 100 -C 10", 1..=10),
    ("-S 1000 -C 100 -T b", 1..=100),
    ("-S 2000 -C 50 -T a", 1..=50),
    ("-S 700 -C 5 -T e -T b", 10..=10),
];

/// Bytes of udpong's control messages, and of echoed ones.
const CONTROL: usize = 16;
const ECHOED: usize = 700;

/// The addresses of both sides, and the index of the peer's address in its GID table.
#[derive(Clone, Copy)]
struct Family {
    here: IpAddr,
    there: IpAddr,
    index: u8,
    table: &'static str,
}

impl Family {
    /// Returns the command line of rdma-core's program, with the library preloaded.
    fn theirs(self, line: &str) -> String {
        format!("OWN_GID_INDEX={} LD_PRELOAD={OWN_ADDRESS} udpong {line}", self.index)
    }
}

fn ours(peer: &Peer, line: &str) -> Command {
    let mut command = peer.command_here("udpong");
    libraries::give(&mut command).args(line.split_whitespace());
    command
}

fn assert_result(said: &str, (work, wanted): &(&str, std::ops::RangeInclusive<u32>)) {
    let told = transfers(said).is_some_and(|count| wanted.contains(&count));
    assert!(told, "{work} said:\n{said}");
}

fn our_client(peer: &Peer, family: Family) {
    let serving = peer.spawn(&family.theirs(&format!("-b {} -T b", family.there)));
    let _serving = serving.expect("a server");
    let has_port = format!("grep -q '{PORT}' /proc/net/{}", family.table);
    peer.machine(1).wait_until(&has_port, LIMIT).expect("a server with its port");
    for work in &WORK {
        let asking = Running::start(ours(peer, &format!("-s {} {}", family.there, work.0)));
        assert_result(&asking.finish(Instant::now() + LIMIT), work);
    }
}

fn our_server(peer: &Peer, family: Family) {
    let mut serving = Running::start(ours(peer, &format!("-b {} -T b", family.here)));
    let ended = || serving.status().is_some();
    peer.wait_for_text_here(family.table, PORT, LIMIT, ended).expect("a server with its port");
    for work in &WORK {
        let asked = peer.run(&family.theirs(&format!("-s {} {}", family.here, work.0)));
        let said = asked.and_then(peer::Output::success).expect("a client that succeeds");
        assert_result(&said, work);
    }
    // Without the library it fails. Once it succeeds, `own_address.c` is no longer needed.
    let alone = peer.run(&format!("timeout 20 udpong -s {} -C 1", family.here));
    alone.and_then(peer::Output::success).expect_err("rdma-core's has no address of its own");
}

mod full {
    use super::*;

    #[test]
    fn udpong_rxe_v4() {
        with_rxe("udpong-v4", |peer| Family {
            here: OUR_V4.into(),
            there: peer.address_v4().into(),
            index: 1,
            table: "udp",
        });
    }
}

#[test]
fn udpong_rxe_v6() {
    with_rxe("udpong-v6", |peer| Family {
        here: OUR_V6.into(),
        there: peer.address_v6().into(),
        index: 2,
        table: "udp6",
    });
}

fn with_rxe(name: &str, family: fn(&Peer) -> Family) {
    if libraries::program("udpong").is_none() {
        return;
    }
    let Some(peer) = Peer::start(Options::default()).expect("a peer") else { return };
    let helper = c::preload("own_address", "tests/rsocket_programs/own_address.c");
    let helper = fs::read(helper).expect("the library");
    peer.machine(1).write(OWN_ADDRESS, &helper).expect("the library there");
    let family = family(&peer);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.pcap"));
    let capture = peer.capture(&path).expect("a capture");
    our_client(&peer, family);
    our_server(&peer, family);
    capture.finish().expect("the capture");
    let all = direct::datagrams(&path);
    for host in [family.here, family.there] {
        let sent: Vec<_> = all.iter().filter(|one| one.sender == host).collect();
        assert!(sent.iter().all(|one| one.source.ip() == host && one.source.port() != 0));
        // A client's first datagram announces its queue pair, so that a server's responses go there: to login, start
        // and end of each. Others may go by UDP until the response to the first has arrived.
        let answers = sent.iter().filter(|one| one.bytes == CONTROL).count();
        assert!(
            answers >= 3 * WORK.len(),
            "{host} sent {answers} answers, and {} in all",
            sent.len()
        );
        // Echoes take the same path.
        assert!(sent.iter().filter(|one| one.bytes == ECHOED).count() >= 5, "{host}");
    }
    let _ = fs::remove_file(path);
}
