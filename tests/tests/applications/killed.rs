//! One side is killed with SIGKILL: the others exit with an error, and do not wait forever.

use std::process::Command;
use std::time::Instant;

use super::hosts::{Hosts, has};
use super::mpi;
use super::pair::{Client, Program, Server};
use ferroce_tests::running::{Running, turn};

use super::pair::LIMIT;

/// The last rank kills itself, and mpirun ends the others: none hangs in our libraries.
fn rank(command: Command) {
    let (status, said) = Running::start_group(command).end(Instant::now() + LIMIT);
    let failed = status.is_some_and(|status| !status.success());
    assert!(failed, "{status:?} (None means the deadline passed) {said}");
    assert!(said.contains("signal 9"), "{said}");
}

#[test]
fn a_killed_rank_on_one_host_ends_the_job() {
    let _turn = turn();
    let Some(hosts) = Some(()).filter(|()| mpi::is_there()).and_then(|()| Hosts::new()) else {
        return;
    };
    rank(mpi::one_host(&hosts, 4, &["kill"]));
}

#[test]
fn a_killed_rank_on_two_hosts_ends_the_job() {
    let _turn = turn();
    if mpi::is_there() && Hosts::new().is_some() {
        rank(mpi::two_hosts(4, &["kill"]));
    }
}

/// The client is not notified: it detects this when its packets are not acknowledged (IBA 9.9.2.4.1, transport retry).
#[test]
fn a_client_of_a_killed_server_fails() {
    let _turn = turn();
    let Some(hosts) = Some(()).filter(|()| has("ucx_perftest")).and_then(|()| Hosts::new()) else {
        return;
    };
    let program = Program {
        name: "ucx_perftest",
        server: "",
        client: "-t tag_bw -n 1000000000 -w 20",
        // 100 ms: 0.8 s for UCX's eight attempts instead of 8 s. UCX's own flow control is off: a client that has used
        // up its credits has nothing in flight, and waits for a grant of the server forever.
        variables: "UCX_TLS=rc_v,self UCX_RC_TIMEOUT=100ms UCX_RC_FC_ENABLE=n UCX_HANDLE_ERRORS=none",
        port: 13_337,
        end: Server::Waits,
    };
    let until = Instant::now() + LIMIT;
    let [mut server, mut client] = program.start(&hosts, Client::Other, until);
    // It prints a line every second while it sends.
    client.wait_for(|line| line.starts_with("[thread"), until);
    server.kill();
    let (status, said) = client.end(until);
    assert!(
        status.is_some_and(|status| !status.success()),
        "{status:?} (None means the deadline passed) {said}"
    );
    assert!(said.contains("transport retry counter exceeded"), "{said}");
}
