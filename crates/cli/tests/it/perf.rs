//! `ferroce perf`: runs the binary as client and server. Speed is not judged.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, failure, success, text};
use crate::support::server::Server;
use serde_json::Value;

/// The operations of each transport.
const POSSIBLE: [(&str, &[&str]); 4] = [
    ("rc", &["write", "read", "send", "atomic"]),
    ("uc", &["write", "send"]),
    ("ud", &["send"]),
    ("xrc", &["write", "read", "send", "atomic"]),
];

fn perf(scratch: &Scratch, arguments: &[&str]) -> Value {
    let arguments = [&["perf", "--json"], arguments].concat();
    serde_json::from_str(&success(&scratch.ferroce(&arguments))).unwrap()
}

/// Runs a command that chooses its link itself, whatever the tests around it use.
fn on_any_link(scratch: &Scratch, arguments: &[&str]) -> Output {
    scratch.command(FERROCE, arguments).env_remove("FERROCE_LOCAL").output().unwrap()
}

/// Checks what every result has.
fn check(json: &Value) {
    for key in ["operation", "test", "transport", "server", "own_server", "link"] {
        assert!(!json[key].is_null(), "no {key} in {json}");
    }
    for key in ["amount", "qps", "threads", "bidirectional", "events", "verify", "tx_depth"] {
        assert!(!json["parameters"][key].is_null(), "no {key} in {json}");
    }
    let results = json["results"].as_array().unwrap();
    assert!(!results.is_empty(), "{json}");
    for row in results {
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"));
        assert!(number("seconds") > 0.0 && number("messages") > 0.0, "{row}");
        assert_eq!(number("bytes"), number("messages") * number("size"), "{row}");
        assert!(number("lost") >= 0.0 && number("verified_bytes") >= 0.0, "{row}");
        match json["test"].as_str().unwrap() {
            "lat" => check_latency(row),
            _ => check_rates(row, json["parameters"]["bidirectional"] == true),
        }
    }
}

/// The percentiles are in order, and there is a sample for every message.
fn check_latency(row: &Value) {
    let latency = &row["latency"];
    let of = |key: &str| latency[key].as_u64().unwrap_or_else(|| panic!("no {key} in {row}"));
    let keys = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns"];
    let values = keys.map(of);
    assert!(values.is_sorted() && values[0] > 0, "{row}");
    assert_eq!(of("samples"), row["messages"].as_u64().unwrap(), "{row}");
    let mean = latency["mean_ns"].as_f64().unwrap();
    assert!((values[0] as f64..=values[5] as f64).contains(&mean), "{row}");
    assert!(latency["stdev_ns"].as_f64().unwrap() >= 0.0 && row["bandwidth"].is_null(), "{row}");
}

/// The rates are the same rate in different units.
fn check_rates(row: &Value, bidirectional: bool) {
    let of = |key: &str| row["bandwidth"][key].as_f64().unwrap();
    let bytes = of("gb_per_second") * 1e9;
    let near = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-6;
    assert!(near(of("gbit_per_second") * 1e9 / 8.0, bytes), "{row}");
    assert!(near(of("mib_per_second") * f64::from(1 << 20), bytes), "{row}");
    let size = row["size"].as_f64().unwrap();
    assert!(near(of("million_messages_per_second") * 1e6 * size, bytes), "{row}");
    if !bidirectional {
        let rate = row["bytes"].as_f64().unwrap() / row["seconds"].as_f64().unwrap();
        assert!(near(rate, bytes), "{row}");
    }
    assert!(row["latency"].is_null(), "{row}");
}

/// Runs all tests of a transport with `--verify`.
fn check_transport(transport: &str) {
    let scratch = Scratch::new(&format!("perf-{transport}"));
    let operations = POSSIBLE.iter().find(|(name, _)| *name == transport).unwrap().1;
    for operation in operations {
        for test in ["bw", "lat", "rate"] {
            // Two packets, and no multiple of anything.
            let size = match (*operation, transport) {
                ("atomic", _) => "8",
                (_, "ud") => "3001",
                _ => "5001",
            };
            let json = perf(
                &scratch,
                &[operation, test, "-c", transport, "-n", "60", "--verify", "--size", size],
            );
            check(&json);
            let row = &json["results"][0];
            let of = |key: &str| row[key].as_u64().unwrap();
            // The warm-up is verified too.
            let (sent, lost) = (60 + 60, of("lost"));
            if test == "lat" {
                assert_eq!(of("messages"), 60, "{json}");
                let both = if ["write", "send"].contains(operation) { 2 } else { 1 };
                let least = both * sent * of("size");
                // Unreliable messages are repeated if no answer comes, as on a busy machine.
                let exact = !["uc", "ud"].contains(&transport);
                assert!(of("verified_bytes") >= least, "{json}");
                assert!(!exact || of("verified_bytes") == least, "{json}");
            } else {
                assert_eq!(of("messages"), 60 - lost, "{json}");
                assert!(lost == 0 || ["uc", "ud"].contains(&transport), "{json}");
                let least = (sent - lost) * of("size");
                // The server also checks the sum of atomics.
                let exact = *operation != "atomic";
                assert!(of("verified_bytes") >= least, "{json}");
                assert!(!exact || of("verified_bytes") == least, "{json}");
            }
        }
    }
}

#[test]
fn every_test_over_rc_is_verified() {
    check_transport("rc");
}

#[test]
fn every_test_over_uc_is_verified() {
    check_transport("uc");
}

#[test]
fn every_test_over_ud_is_verified() {
    check_transport("ud");
}

#[test]
fn every_test_over_xrc_is_verified() {
    check_transport("xrc");
}

#[test]
fn many_qps_threads_and_both_directions_are_verified() {
    let scratch = Scratch::new("perf-many");
    for (operation, more) in [
        ("write", &["--qps", "3", "--threads", "2"][..]),
        ("read", &["--qps", "2", "--bidirectional"]),
        ("send", &["--qps", "3", "--threads", "2", "--bidirectional", "--events"]),
        ("send", &["--transport", "xrc", "--bidirectional", "--post-list", "7"]),
        ("atomic", &["--bidirectional", "--atomic", "compare-swap", "--tx-depth", "5"]),
    ] {
        let fixed = [operation, "bw", "-n", "100", "--verify"];
        let size: &[&str] = if operation == "atomic" { &[] } else { &["--size", "5001"] };
        let json = perf(&scratch, &[&fixed[..], size, more].concat());
        check(&json);
        let directions = if json["parameters"]["bidirectional"] == true { 2 } else { 1 };
        let qps = json["parameters"]["qps"].as_u64().unwrap();
        assert_eq!(json["results"][0]["messages"], 100 * qps * directions, "{json}");
        assert!(json["results"][0]["verified_bytes"].as_u64().unwrap() > 0, "{json}");
    }
    for more in [&["--events"][..], &["--qps", "3", "--threads", "2"]] {
        let json = perf(&scratch, &[&["send", "lat", "-n", "50", "--verify"], more].concat());
        check(&json);
    }
}

#[test]
fn the_link_is_chosen_and_named() {
    let scratch = Scratch::new("perf-link");
    let ud = ["--transport", "ud"];
    for (more, link) in [
        (&[][..], "shared_memory"),
        (&["--wire"], "sockets"),
        (&ud, "shared_memory"),
        (&["--wire", "--transport", "ud"], "sockets"),
    ] {
        let arguments = [&["perf", "--json", "send", "lat", "-n", "20"], more].concat();
        let output = on_any_link(&scratch, &arguments);
        let json: Value = serde_json::from_str(&success(&output)).unwrap();
        assert_eq!((&json["link"], &json["own_server"]), (&link.into(), &true.into()), "{json}");
    }
}

#[test]
fn wrong_combinations_are_refused() {
    let scratch = Scratch::new("perf-refused");
    for (arguments, why) in [
        (&["write", "bw", "-c", "ud"][..], "UD has no write, only send"),
        (&["atomic", "lat", "-c", "ud"], "UD has no atomic, only send"),
        (&["read", "bw", "-c", "uc"], "UC has no read, only write and send"),
        (&["atomic", "rate", "-c", "uc"], "UC has no atomic, only write and send"),
        (&["atomic", "bw", "--size", "16"], "atomic operations are of 8 bytes"),
        (&["send", "bw", "-c", "ud", "--size", "8K"], "does not fit in a UD packet"),
        (&["send", "lat", "--bidirectional"], "--bidirectional does not apply to lat"),
        (&["write", "lat", "--events"], "write lat polls memory"),
        (&["write", "bw", "--threads", "2", "--qps", "1"], "every thread needs a QP"),
        (&["write", "bw", "--qps", "0"], "--qps must be greater than zero"),
        (&["write", "bw", "--qps", "5000"], "above the limit"),
        (&["write", "bw", "-n", "0"], "must be greater than zero"),
        (&["write", "bw", "--post-list", "200"], "above the limit of 128"),
        (&["write", "bw", "--size", "2G"], "1 byte to 1 GiB"),
        (&["write", "bw", "--size", "1G", "--qps", "8"], "of memory on each side"),
        (&["write", "bw", "--size", "1", "--all"], "cannot be used with"),
        (&["write"], "required"),
        (&["--server", "write", "bw"], "cannot be used with"),
    ] {
        let output = scratch.ferroce(&[&["perf"], arguments].concat());
        let complaint = failure(&output);
        assert!(complaint.contains(why), "{arguments:?}: {complaint}");
    }
}

#[test]
fn all_sizes_make_a_table_and_a_chart() {
    let scratch = Scratch::new("perf-all");
    let arguments = ["perf", "send", "lat", "-c", "ud", "--all", "-n", "5", "--svg", "lat.svg"];
    let out = success(&on_any_link(&scratch, &arguments));
    for part in ["send latency over UD", "link    shared memory", "p99.9"] {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }
    let first = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.first()?.parse::<u64>().ok().filter(|_| words.get(1) == Some(&"5"))
    };
    let sizes: Vec<_> = out.lines().filter_map(first).collect();
    assert_eq!(sizes, (1..=12).map(|shift| 1 << shift).collect::<Vec<_>>(), "{out}");
    let chart = fs::read_to_string(scratch.path("lat.svg")).unwrap();
    assert!(chart.starts_with("<svg") && chart.contains("p99.9"), "{chart}");
    let arguments = ["perf", "write", "bw", "-n", "10", "--svg", "bw.svg"];
    let out = success(&on_any_link(&scratch, &arguments));
    for part in ["MiB/s", "GB/s", "Mpps", "link    shared memory", "  65536 ", "████"] {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }
    assert!(fs::read_to_string(scratch.path("bw.svg")).unwrap().contains("64 KiB"));
    let unwritable = scratch.ferroce(&["perf", "read", "lat", "-n", "5", "--svg", "no/such.svg"]);
    assert!(failure(&unwritable).contains("cannot write the chart no/such.svg"));
}

fn server() -> Server {
    let arguments = ["perf", "--server", "--json", "--listen", "127.0.0.1:0"];
    Server::start(Command::new(FERROCE).args(arguments))
}

/// A client that runs until it is interrupted.
fn endless(address: &str) -> Child {
    let mut command = Command::new(FERROCE);
    command.args(["perf", "send", "lat", address, "--duration", "60min", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_server_serves_clients_at_once_and_one_after_another() {
    let scratch = Scratch::new("perf-clients");
    let mut server = server();
    let mut long = endless(&server.address);
    assert_eq!(server.event("started")["test"]["measure"], "lat");
    for test in ["bw", "lat"] {
        let json = perf(&scratch, &["write", test, &server.address, "-n", "50", "--verify"]);
        check(&json);
        assert_eq!(json["own_server"], false);
        assert_eq!(server.event("started")["test"]["operation"], "write");
        assert_eq!(server.event("finished")["sizes"], 1);
    }
    // The first one still runs. Interrupted, it reports what it has measured so far.
    assert!(long.try_wait().unwrap().is_none());
    let pid = long.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = long.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["interrupted"], 2, "{json}");
    server.event("finished");
}

/// Over IPv4 and IPv6, with messages of every size up to 8 MiB.
#[test]
fn a_server_on_another_host_is_measured() {
    let scratch = Scratch::new("perf-hosts");
    let script = "ferroce perf write bw 10.7.0.2 --all -n 2 --verify --json > all.json; \
                  ferroce perf send lat '[fd07::2]:7471' -n 20 --verify --json > v6.json; kill $server";
    let Some(output) = scratch.between_hosts("perf --server --json", script) else { return };
    success(&output);
    let read = |name: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(scratch.path(name)).unwrap()).unwrap()
    };
    let (all, v6) = (read("all.json"), read("v6.json"));
    check(&all);
    check(&v6);
    assert_eq!(
        (&all["server"], &v6["server"]),
        (&"10.7.0.2:7471".into(), &"[fd07::2]:7471".into())
    );
    assert_eq!((&all["link"], &v6["link"]), (&"sockets".into(), &"sockets".into()));
    let sizes: Vec<_> = all["results"].as_array().unwrap().iter().map(|row| &row["size"]).collect();
    assert_eq!((sizes.len(), sizes.last().unwrap().as_u64()), (23, Some(8 << 20)), "{sizes:?}");
}

#[test]
fn a_client_reports_that_the_server_was_killed() {
    let mut server = server();
    let client = endless(&server.address);
    server.event("started");
    server.child.kill().unwrap();
    let output = client.wait_with_output().unwrap();
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("the peer closed the control connection"), "{complaint}");
}

#[test]
fn a_server_survives_clients_that_are_killed_or_speak_something_else() {
    let scratch = Scratch::new("perf-foreign");
    let mut server = server();
    let mut killed = endless(&server.address);
    server.event("started");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut line = String::new();
    let mut next = |server: &mut Server| {
        line = server.lines.next().unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["event"].clone()
    };
    // It may have been killed before the test began.
    let event = next(&mut server);
    assert!(event == "failed" || event == "finished", "{event}");
    let version = br#"{"type":"hello","protocol":"ferroce-perf","version":99}"#;
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\xff\xff\n", version] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(bytes).unwrap();
        stream.write_all(b"\n").unwrap();
        // The server closes the connection.
        let _ = stream.read_to_end(&mut Vec::new());
        assert_eq!(next(&mut server), "failed");
    }
    check(&perf(&scratch, &["read", "lat", &server.address, "-n", "10", "--verify"]));
    let second = scratch.ferroce(&["perf", "--server", "--listen", &server.address]);
    assert!(failure(&second).contains("is in use"));
}

#[test]
fn a_client_explains_that_no_server_listens() {
    let scratch = Scratch::new("perf-nobody");
    let complaint = failure(&scratch.ferroce(&["perf", "write", "bw", "127.0.0.1:1"]));
    assert!(complaint.contains("no perf server listens on 127.0.0.1:1"), "{complaint}");
    assert!(complaint.contains("ferroce perf --server"), "{complaint}");
}

#[test]
fn losses_of_unreliable_services_are_counted_and_those_of_reliable_ones_repaired() {
    let scratch = Scratch::new("perf-loss");
    for (operation, test, transport, lossy) in [
        ("send", "bw", "ud", true),
        ("send", "lat", "ud", true),
        ("write", "lat", "uc", true),
        ("write", "bw", "rc", false),
        ("send", "bw", "xrc", false),
    ] {
        let arguments =
            ["perf", operation, test, "--json", "-c", transport, "-n", "200", "--verify"];
        let size: &[&str] = if test == "bw" { &["--size", "2000"] } else { &[] };
        let mut command = scratch.command(FERROCE, &[&arguments[..], size].concat());
        let output = command.env("FERROCE_FAULTS", "loss=2%,seed=7").output().unwrap();
        let json: Value = serde_json::from_str(&success(&output)).unwrap();
        check(&json);
        let row = &json["results"][0];
        let of = |key: &str| row[key].as_u64().unwrap();
        assert_eq!(of("lost") > 0, lossy, "{json}");
        if test == "bw" {
            assert_eq!(of("verified_bytes"), (328 - of("lost")) * 2000, "{json}");
        }
    }
}
