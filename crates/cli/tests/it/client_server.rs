//! `ferroce server` and `ferroce client`: runs the binary as two processes.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, failure, has_ipv6, success};
use crate::support::server::Server;
use ferroce_trace::analysis::{Options, analyze};
use serde_json::Value;

fn server(listen: &str) -> Server {
    Server::start(Command::new(FERROCE).args(["server", "--json", "--listen", listen]))
}

/// Every operation's rate follows from its bytes and its time, and bulk writes every byte once.
fn check_rates(json: &Value) {
    for one in json["operations"].as_array().unwrap() {
        let number = |key: &str| one[key].as_f64().unwrap();
        assert!(number("duration_ns") > 0.0, "{json}");
        let rate = number("bytes") / f64::from(1 << 20) / (number("duration_ns") / 1e9);
        assert!((number("mib_per_second") / rate - 1.0).abs() < 1e-6, "{json}");
    }
    if json["job"] == "bulk" {
        assert_eq!(json["operations"].as_array().unwrap().len(), 1, "{json}");
        assert_eq!(json["operations"][0]["bytes"], json["size"], "{json}");
    }
}

fn check_all_jobs(listen: &str) {
    let scratch = Scratch::new(&format!("jobs-{}", listen.len()));
    let mut server = server(listen);
    let address = server.address.clone();
    for (job, size, verified) in [
        (&["write-read", "--size", "100001"][..], 100_001, 100_001),
        (&["write-read", "--size", "1000", "--count", "5"], 1000, 5000),
        (&["imm", "--count", "10"], 4096, 40_960),
        // The last chunk is shorter than the others.
        (&["bulk", "--size", "20000001", "--chunk", "64K"], 20_000_001, 20_000_001),
        // Two batches, and a chunk that is longer than the whole.
        (&["bulk", "--size", "70000001", "--chunk", "8M"], 70_000_001, 70_000_001),
        (&["bulk", "--size", "5000"], 5000, 5000),
    ] {
        let capture = format!("{}.pcapng", job[0]);
        let mut arguments = vec!["client", &address];
        arguments.extend(job);
        arguments.extend(["--json", "--capture", &capture]);
        let json: Value = serde_json::from_str(&success(&scratch.ferroce(&arguments))).unwrap();
        assert_eq!((&json["job"], &json["size"]), (&job[0].into(), &size.into()), "{json}");
        assert_eq!(json["verified_bytes"], verified, "{json}");
        let count = job.iter().position(|word| *word == "--count").map_or("1", |at| job[at + 1]);
        assert_eq!(json["operations"][0]["count"].to_string(), count, "{json}");
        check_rates(&json);
        let file = fs::File::open(scratch.path(&capture)).unwrap();
        let report = analyze("capture", file, &Options::default(), &mut |_| {});
        assert_eq!((report.icrc.bad, &report.problems[..]), (0, &[][..]));
        assert!(report.packets > 10);
        assert_eq!(server.event("connected")["bytes"], size);
        let left = server.event("left");
        assert_eq!((&left["verified_bytes"], &left["failure"]), (&verified.into(), &Value::Null));
    }
    let out = success(&scratch.ferroce(&["client", &address]));
    assert!(out.contains("MiB/s") && out.contains("16 KiB, every byte"), "{out}");
    let greedy = failure(&scratch.ferroce(&["client", &address, "bulk", "--size", "100G"]));
    assert!(greedy.contains("the server refused the request: 100 GiB are more than"), "{greedy}");
    // The port is in use.
    let second = failure(&scratch.ferroce(&["server", "--listen", &address]));
    assert!(second.contains("another server listens"), "{second}");
}

#[test]
fn every_job_succeeds_over_ipv4() {
    check_all_jobs("127.0.0.1:0");
}

#[test]
fn every_job_succeeds_over_ipv6() {
    if has_ipv6() {
        check_all_jobs("[::1]:0");
    }
}

/// Requests `connections` connections of `size` bytes each and never confirms them (no RTU). They last until the result is
/// dropped.
fn unconfirmed(server: &str, connections: u32, size: u64) -> Vec<ferroce::cm::CmId> {
    use ferroce::cm::{CmId, ConnectParameters, EventChannel, EventKind, PortSpace};
    let channel = EventChannel::new().unwrap();
    let next = || channel.wait(None).unwrap().unwrap().kind;
    let timeout = Duration::from_secs(5);
    // "FeS" and the version, then the requested size.
    let request = [&0x4665_5301_u32.to_be_bytes()[..], &size.to_be_bytes()].concat();
    let connect = |number: u32| {
        let id = CmId::new(&channel, PortSpace::Tcp).unwrap();
        id.resolve_address(None, server.parse().unwrap(), timeout).unwrap();
        assert!(matches!(next(), EventKind::AddressResolved));
        id.resolve_route(timeout).unwrap();
        assert!(matches!(next(), EventKind::RouteResolved));
        let parameters = ConnectParameters {
            private_data: request.clone(),
            // A QPN that no QP has: the connection is never used.
            queue_pair: Some(ferroce::Qpn(0x1234 + number)),
            ..ConnectParameters::default()
        };
        id.connect(&parameters).unwrap();
        assert!(matches!(next(), EventKind::ConnectResponse(_)), "connection {number}");
        id
    };
    (0..connections).map(connect).collect()
}

#[test]
fn an_unconfirmed_request_allocates_no_memory() {
    let scratch = Scratch::new("unconfirmed");
    let mut server = server("127.0.0.1:0");
    // 4 GiB less 16 bytes: nearly the server's whole memory limit.
    let _greedy = unconfirmed(&server.address, 1, 0xffff_fff0);
    success(&scratch.ferroce(&["client", &server.address, "write-read", "--size", "1M"]));
    assert_eq!(server.event("connected")["bytes"], 1 << 20);
    server.event("left");
}

#[test]
fn unconfirmed_connections_do_not_lock_out_other_clients() {
    let scratch = Scratch::new("flood");
    let mut server = server("[::]:0");
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    // Fills the server's limit of unconfirmed connections from one address.
    let _flood = unconfirmed(&format!("[::1]:{port}"), 128, 1 << 20);
    let other = format!("127.0.0.1:{port}");
    success(&scratch.ferroce(&["client", &other, "write-read", "--size", "1M"]));
    // The server drops the oldest one to accept the client.
    for event in ["refused", "connected", "left"] {
        server.event(event);
    }
}

/// Drops received packets at the client, so that its transport counters are not zero.
#[test]
fn the_client_reports_its_hw_counters() {
    let scratch = Scratch::new("counters");
    let server = server("127.0.0.1:0");
    let client = |more: &[&str]| {
        let mut command = Command::new(FERROCE);
        command.args(["client", &server.address, "write-read", "--size", "300K"]).args(more);
        let output = command.env("FERROCE_FAULTS", "loss=20%,seed=3").current_dir(&scratch.0);
        success(&output.output().unwrap())
    };
    let json: Value = serde_json::from_str(&client(&["--json"])).unwrap();
    let counters = json["hw_counters"].as_object().unwrap();
    assert_eq!(counters.len(), 11, "{json}");
    // 20 % of the READ responses are lost.
    assert!(counters["implied_nak_seq_err"].as_u64().unwrap() > 0, "{json}");
    assert_eq!(counters["np_cnp_sent"], 0, "{json}");
    let out = client(&[]);
    assert!(out.contains("  counters ") && out.contains("implied_nak_seq_err"), "{out}");
    assert!(!out.contains("np_cnp_sent"), "{out}");
}

#[test]
fn a_client_reaches_a_server_on_another_host() {
    let scratch = Scratch::new("hosts");
    let script = "ferroce discover --json > found.txt; \
                  ferroce client 10.7.0.2 bulk --size 10M --json; wait $server";
    let Some(output) = scratch.between_hosts("server --json --once", script) else { return };
    let json: Value = serde_json::from_str(&success(&output)).unwrap();
    assert_eq!(json["verified_bytes"], 10 << 20);
    assert_eq!(json["server"], "10.7.0.2:7471");
    let server = fs::read_to_string(scratch.path("server.txt")).unwrap();
    let left: Value = serde_json::from_str(server.lines().last().unwrap()).unwrap();
    assert_eq!((&left["verified_bytes"], &left["failure"]), (&(10 << 20).into(), &Value::Null));
    // `ferroce discover` finds the server by multicast.
    let found = fs::read_to_string(scratch.path("found.txt")).unwrap();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["hosts"][0]["device"], "ferroce_here", "{found}");
}

#[test]
fn connecting_without_a_server_names_the_remedy() {
    let scratch = Scratch::new("port");
    let error = failure(&scratch.ferroce(&["client", "127.0.0.1:9"]));
    assert!(error.contains("no server listens on 127.0.0.1:9"), "{error}");
    assert!(error.contains("start `ferroce server --listen 127.0.0.1:9`"), "{error}");
    let error = failure(&scratch.ferroce(&["server", "--listen", "192.0.2.1:7471"]));
    assert!(error.contains("no interface of this machine has the address 192.0.2.1"), "{error}");
}

#[test]
fn invalid_client_options_are_refused_before_connecting() {
    let scratch = Scratch::new("client-options");
    let chunk = failure(&scratch.ferroce(&["client", "127.0.0.1", "bulk", "--chunk", "1000"]));
    assert!(chunk.contains("not a multiple of 4 KiB"), "{chunk}");
    for (job, option) in [("bulk", "--count"), ("write-read", "--chunk"), ("imm", "--chunk")] {
        let refused = failure(&scratch.ferroce(&["client", "127.0.0.1", job, option, "4096"]));
        assert!(refused.contains(&format!("{option} does not apply to {job}: ")), "{refused}");
    }
}

fn resident_pages(process: &Child) -> u64 {
    let memory = fs::read_to_string(format!("/proc/{}/statm", process.id())).unwrap();
    memory.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_client_fails_if_the_server_is_killed() {
    let mut server = server("127.0.0.1:0");
    let mut client = Command::new(FERROCE);
    client.args(["client", &server.address, "bulk", "--size", "3G", "--chunk", "1M"]);
    let client = client.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    server.event("connected");
    // Kills the server in the middle of the transfer: its resident memory grows with the bytes received.
    while resident_pages(&server.child) < (64 << 20) / 4096 {
        std::thread::yield_now();
    }
    server.child.kill().unwrap();
    let start = Instant::now();
    let output = client.wait_with_output().unwrap();
    let error = failure(&output);
    assert!(
        error.contains("not acknowledged") || error.contains("closed the connection"),
        "{error}"
    );
    // Takes 4 s on an idle machine; the rest allows for load.
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}
