//! rstream with Linux's `rdma_rxe` as the peer, as server and as client.

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use ferroce_tests::peer::{self, OUR_V4, OUR_V6, Options, Peer};
use ferroce_tests::running::Running;
use ferroce_tests::{libraries, listening};

/// For a machine in software emulation.
const LIMIT: Duration = Duration::from_secs(60);
const PORT: u16 = 7471;

/// The common arguments, with sizes that fill buffers often and seldom, all data verified; and how our side waits.
/// rdma-core's must not use poll: it treats a shutdown that arrives with the last bytes as a failure.
const WORK: [(&str, &str); 4] = [
    ("-S 64 -I 100 -C 1 -T v", ""),
    ("-S 2000 -I 3 -C 20 -T v", "-T b"),
    ("-S 70000 -I 2 -C 10 -T v", "-T a"),
    ("-S 5000 -I 1 -C 50 -T v", "-T n"),
];

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv6() { "-f ipv6" } else { "-f ip" }
}

fn ours(peer: &Peer, line: &str) -> Command {
    let mut command = peer.command_here("rstream");
    libraries::give(&mut command).args(line.split_whitespace());
    listening::announce(&mut command);
    command
}

fn assert_result(said: &str, what: &str) {
    assert!(said.lines().any(|line| line.starts_with("custom")), "{what} said:\n{said}");
}

fn our_client(peer: &Peer, to: IpAddr, (work, waits): (&str, &str)) {
    let line = format!("rstream {} -b {to} {work}", family(to));
    let serving = peer.spawn(&line).expect("a server");
    peer.machine(1).wait_for_cm(PORT, LIMIT).expect("a server that listens");
    let asking = Running::start(ours(peer, &format!("{} -s {to} {work} {waits}", family(to))));
    assert_result(&asking.finish(Instant::now() + LIMIT), work);
    let served = serving.wait().and_then(peer::Output::success).expect("a server that succeeds");
    assert_result(&served, work);
}

fn our_server(peer: &Peer, at: IpAddr, (work, waits): (&str, &str)) {
    let until = Instant::now() + LIMIT;
    let serving = Running::start(ours(peer, &format!("{} -b {at} {work} {waits}", family(at))));
    let listens = peer.wait_for_text_here("unix", &listening::entry(PORT), LIMIT, || false);
    listens.expect("a server that listens");
    let asking = format!("rstream {} -s {at} {work}", family(at));
    let asked = peer.run(&asking).and_then(peer::Output::success).expect("a client that succeeds");
    assert_result(&asked, work);
    assert_result(&serving.finish(until), work);
}

#[test]
fn rxe_v4() {
    with_rxe(OUR_V4.into(), |peer| peer.address_v4().into());
}

mod full {
    use super::*;

    #[test]
    fn rxe_v6() {
        with_rxe(OUR_V6.into(), |peer| peer.address_v6().into());
    }
}

fn with_rxe(here: IpAddr, there: fn(&Peer) -> IpAddr) {
    if libraries::program("rstream").is_none() {
        return;
    }
    let Some(peer) = Peer::start(Options::default()).expect("a peer") else { return };
    for work in WORK {
        our_client(&peer, there(&peer), work);
        our_server(&peer, here, work);
    }
}
