//! `ferroce compare`: runs both sides with small sizes. Speed is never judged.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, failure, has_ipv6, success, text};
use crate::support::server::Server;
use ferroce_test_support::skip;
use serde_json::Value;

const SMALL: [&str; 7] = ["compare", "--size", "1000003", "--chunk", "64K", "--rounds", "2"];
const SIZE: u64 = 1_000_003;
const CHUNKS: u64 = 16;

/// Runs a comparison of all links, whatever the tests around it use.
fn compare(scratch: &Scratch, arguments: &[&str]) -> Output {
    scratch.command(FERROCE, arguments).env_remove("FERROCE_LOCAL").output().unwrap()
}

fn json(scratch: &Scratch, more: &[&str]) -> Value {
    let arguments = [&SMALL[..], &["--json"], more].concat();
    serde_json::from_str(&success(&compare(scratch, &arguments))).unwrap()
}

fn names(json: &Value) -> Vec<&str> {
    let methods = json["methods"].as_array().unwrap();
    methods.iter().map(|method| method["method"].as_str().unwrap()).collect()
}

fn positive(value: &Value) {
    assert!(value.as_f64().is_some_and(|number| number > 0.0), "{value}");
}

fn check_spread(spread: &Value) {
    let number = |name: &str| spread[name].as_f64().unwrap();
    assert!(number("min") <= number("median") && number("median") <= number("max"), "{spread}");
}

/// Every figure of every method is there and consistent.
fn check_figures(json: &Value, rounds: u64) {
    assert_eq!((&json["size"], &json["rounds"]), (&SIZE.into(), &rounds.into()));
    for method in json["methods"].as_array().unwrap() {
        for name in ["seconds", "mib_per_second"] {
            check_spread(&method[name]);
            positive(&method[name]["min"]);
        }
        for side in ["client", "server"] {
            check_spread(&method[format!("{side}_cpu_seconds_per_gb")]);
        }
        assert_eq!(method["chunk"]["count"], rounds * CHUNKS, "{method}");
        positive(&method["chunk"]["p50_ns"]);
        assert!(method["chunk"]["p99_ns"].as_u64() >= method["chunk"]["p50_ns"].as_u64());
        // A busy host may cause some.
        assert!(method["retransmissions"].is_u64(), "{method}");
        assert_eq!(method["rounds"].as_array().unwrap().len() as u64, rounds);
        for round in method["rounds"].as_array().unwrap() {
            let seconds = round["seconds"].as_f64().unwrap();
            let rate = SIZE as f64 / f64::from(1 << 20) / seconds;
            assert!((round["mib_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-6);
            assert!(
                round["client_cpu"]["user_ns"].is_u64()
                    && round["server_cpu"]["system_ns"].is_u64()
            );
        }
    }
    for verdict in json["verdicts"].as_array().unwrap() {
        assert_eq!(verdict["against"], "tcp");
        positive(&verdict["throughput_ratio"]);
        assert!(verdict["text"].as_str().unwrap().contains("throughput"), "{verdict}");
    }
}

#[test]
fn one_host_compares_both_links_with_tcp_and_verifies() {
    let scratch = Scratch::new("compare");
    let json = json(&scratch, &["--verify"]);
    assert_eq!(names(&json), ["rdma_shared_memory", "rdma_wire", "tcp", "tcp_discard"]);
    check_figures(&json, 2);
    assert_eq!((&json["verified"], &json["own_server"]), (&true.into(), &true.into()));
    for method in json["methods"].as_array().unwrap() {
        let stored = method["method"] != "tcp_discard";
        assert_eq!(method["verified_bytes"], if stored { 2 * SIZE } else { 0 }, "{method}");
        let rdma = method["method"].as_str().unwrap().starts_with("rdma");
        assert_eq!(method["recoveries"].is_u64(), rdma, "{method}");
        assert_eq!(method["hw_counters"].is_object(), rdma, "{method}");
    }
    assert_eq!(json["verdicts"].as_array().unwrap().len(), 2);
}

#[test]
fn the_links_are_selectable_and_named() {
    let scratch = Scratch::new("compare-wire");
    let wire = ["rdma_wire", "tcp", "tcp_discard"];
    assert_eq!(names(&json(&scratch, &["--wire"])), wire);
    let mut command = scratch.command(FERROCE, &SMALL);
    let output = command.arg("--json").env("FERROCE_LOCAL", "sockets").output().unwrap();
    let json: Value = serde_json::from_str(&success(&output)).unwrap();
    assert_eq!(names(&json), wire);
    assert_eq!(json["verified"], false);
    assert!(json["methods"].as_array().unwrap().iter().all(|one| one["verified_bytes"] == 0));
    let out = success(&compare(&scratch, &SMALL));
    for words in [
        "1000003 bytes in chunks of 64 KiB, 2 rounds",
        "RDMA WRITE (shared memory)",
        "RDMA WRITE (wire)",
        "TCP (discarded)",
        "MiB/s",
        "CPU s per GB",
        "nothing, neither RDMA nor TCP",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
}

#[test]
fn ipv6_works() {
    if has_ipv6() {
        let scratch = Scratch::new("compare-ipv6");
        let json = json(&scratch, &["--address", "::1", "--verify"]);
        check_figures(&json, 2);
        assert!(json["server"].as_str().unwrap().starts_with("[::1]:"), "{json}");
    }
}

fn server(more: &[&str]) -> Server {
    let mut command = Command::new(FERROCE);
    command.args(["compare", "--server", "--json", "--listen", "127.0.0.1:0"]).args(more);
    command.env_remove("FERROCE_LOCAL");
    Server::start(&mut command)
}

#[test]
fn a_server_serves_clients_one_after_another() {
    let scratch = Scratch::new("compare-server");
    let mut server = server(&["--memory", "2M"]);
    let address = server.address.clone();
    for _ in 0..2 {
        let json = json(&scratch, &[&address, "--verify"]);
        check_figures(&json, 2);
        assert_eq!(
            (&json["own_server"], &json["server"]),
            (&false.into(), &address.as_str().into())
        );
        assert_eq!(server.event("connected")["size"], SIZE);
        let left = server.event("left");
        // Two rounds and the warm-up by four methods.
        assert_eq!((&left["bytes"], &left["failure"]), (&(12 * SIZE).into(), &Value::Null));
    }
    let greedy = failure(&scratch.ferroce(&["compare", &address, "--size", "4M"]));
    assert!(
        greedy.contains("refused the request: 4 MiB are more than its limit of 2 MiB"),
        "{greedy}"
    );
    server.event("refused");
    let second = failure(&scratch.ferroce(&["compare", "--server", "--listen", &address]));
    assert!(second.contains("cannot listen on TCP") && second.contains("--listen"), "{second}");
}

#[test]
fn two_clients_at_once_take_turns() {
    let scratch = Scratch::new("compare-turns");
    let server = server(&[]);
    let client = || {
        let mut command = scratch.command(FERROCE, &SMALL);
        command.args([&server.address, "--json", "--verify"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let clients = [client(), client(), client()];
    for client in clients {
        let output = client.wait_with_output().unwrap();
        check_figures(&serde_json::from_str(&success(&output)).unwrap(), 2);
    }
}

#[test]
fn figures_and_pages_are_written_and_self_contained() {
    let scratch = Scratch::new("compare-files");
    let more = ["--svg", "chart.svg", "--html", "page.html"];
    success(&scratch.ferroce(&[&SMALL[..], &more].concat()));
    let read = |name: &str| fs::read_to_string(scratch.path(name)).unwrap();
    let (svg, html) = (read("chart.svg"), read("page.html"));
    assert!(svg.starts_with("<svg") && svg.contains("prefers-color-scheme"), "{svg}");
    for words in ["RDMA WRITE (wire)", "TCP", "MiB/s"] {
        assert!(svg.contains(words) && html.contains(words), "{words}");
    }
    assert_eq!(html.matches("<svg").count(), 3);
    assert!(html.contains("default-src &#39;none&#39;") || html.contains("default-src 'none'"));
    // Nothing is loaded from elsewhere.
    for reference in ["<script", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(reference), "{reference}");
    }
    let error = failure(&scratch.ferroce(&["compare", "--html", "nowhere/page.html"]));
    assert!(error.contains("nowhere is not a directory"), "{error}");
}

#[test]
fn invalid_arguments_are_refused_before_connecting() {
    let scratch = Scratch::new("compare-arguments");
    for (arguments, words) in [
        (&["--size", "1M", "--chunk", "4M"][..], "longer than the whole transfer of 1 MiB"),
        (&["--chunk", "1000"], "not a multiple of 4 KiB"),
        (&["--size", "8G", "--chunk", "4G"], "limited to 2 GiB"),
        (&["--rounds", "0"], "--rounds"),
        (&["--depth", "65"], "--depth"),
        (&["--server", "--size", "1M"], "cannot be used with"),
        (&["--listen", "127.0.0.1:0"], "--server"),
        (&["--size", "1000000G"], "choose a smaller --size"),
        (&["127.0.0.1:1"], "start `ferroce compare --server --listen 127.0.0.1:1` there first"),
        (&["--address", "192.0.2.1"], "192.0.2.1"),
    ] {
        let error = failure(&scratch.ferroce(&[&["compare"], arguments].concat()));
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
}

#[test]
fn a_foreign_server_is_not_trusted() {
    let scratch = Scratch::new("compare-foreign");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let foreign = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
        // Closing with unread bytes would reset the connection before the client reads ours.
        BufReader::new(stream).read_line(&mut String::new()).unwrap();
    });
    let arguments = ["compare", &address, "--size", "1M", "--chunk", "64K"];
    let error = failure(&scratch.ferroce(&arguments));
    assert!(error.contains("not a compatible `ferroce`"), "{error}");
    foreign.join().unwrap();
}

/// Kills the server in the middle of the rounds.
#[test]
fn the_client_fails_if_the_server_is_killed() {
    let mut server = server(&[]);
    let mut client = Command::new(FERROCE);
    client.args(["compare", &server.address, "--size", "64M", "--chunk", "1M", "--rounds", "1000"]);
    let client = client.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    server.event("connected");
    // The client has its connections once the server has used CPU time for transfers.
    while cpu_ticks(server.child.id()) < 20 {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.child.kill().unwrap();
    let error = failure(&client.wait_with_output().unwrap());
    assert!(error.contains("round") || error.contains("warm-up"), "{error}");
}

/// The CPU time of a process in clock ticks (proc_pid_stat(5), fields 14 and 15).
fn cpu_ticks(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().unwrap()).sum()
}

/// An interrupted client says so, and its server process ends with it.
#[test]
fn an_interrupted_client_leaves_nothing_behind() {
    let scratch = Scratch::new("compare-interrupt");
    let mut command = scratch.command(FERROCE, &["compare", "--size", "64M", "--rounds", "1000"]);
    let client = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", client.id());
    let server: u32 = loop {
        let found = fs::read_to_string(&children).unwrap();
        if let Some(server) = found.split_whitespace().next() {
            break server.parse().unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    while cpu_ticks(client.id()) < 20 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let process = client.id().to_string();
    assert!(Command::new("kill").args(["-INT", &process]).status().unwrap().success());
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("interrupted: there is no result"));
    // Its standard input has ended.
    while fs::read_to_string(format!("/proc/{server}/cmdline"))
        .is_ok_and(|line| line.contains("--child"))
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_server_on_another_host_is_reached_by_the_wire_only() {
    let scratch = Scratch::new("compare-hosts");
    let client = "ferroce compare 10.7.0.2 --size 1000003 --chunk 64K --rounds 2 --verify --json";
    let Some(output) = scratch.between_hosts("compare --server --json", client) else { return };
    let json: Value = serde_json::from_str(&success(&output)).unwrap();
    assert_eq!(names(&json), ["rdma_wire", "tcp", "tcp_discard"]);
    assert_eq!(json["server"], "10.7.0.2:7471");
    check_figures(&json, 2);
}

/// Analyzes a capture by `ferroce analyze --json`.
fn analyzed(scratch: &Scratch, name: &str) -> Value {
    let output = scratch.ferroce(&["analyze", "--json", name]);
    let analysis: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    analysis["files"][0].clone()
}

/// The capture holds the CM exchange and one transfer of every byte.
#[test]
fn the_capture_of_rdma_holds_one_transfer() {
    let scratch = Scratch::new("compare-capture");
    let json = json(&scratch, &["--capture", "run"]);
    let capture = &json["captures"][0];
    assert_eq!((&capture["method"], &capture["dropped"]), (&"rdma_wire".into(), &0.into()));
    assert_eq!(capture["path"], "run-rdma.pcapng");
    let file = analyzed(&scratch, "run-rdma.pcapng");
    assert_eq!(file["packets"], capture["packets"], "{file}");
    assert_eq!(file["icrc"]["bad"], 0, "{file}");
    let conversations = file["conversations"].as_array().unwrap();
    let bytes = |one: &Value| one["operations"]["RDMA_WRITE"]["bytes"].as_u64().unwrap_or(0);
    assert_eq!(conversations.iter().map(bytes).sum::<u64>(), SIZE, "{file}");
}

/// Without CAP_NET_RAW the result says what to do; with it, the file holds every byte of the connection.
#[test]
fn the_capture_of_tcp_holds_one_transfer_or_says_what_it_needs() {
    let scratch = Scratch::new("compare-tcp-capture");
    let json = json(&scratch, &["--capture", "run"]);
    let capture = &json["captures"][1];
    assert_eq!(capture["method"], "tcp");
    if capture["path"].is_null() {
        let note = capture["note"].as_str().unwrap();
        assert!(note.contains("CAP_NET_RAW") && note.contains("setcap"), "{note}");
        assert!(!scratch.path("run-tcp.pcapng").exists());
        return skip(note);
    }
    assert_eq!(capture["path"], "run-tcp.pcapng");
    let file = fs::File::open(scratch.path("run-tcp.pcapng")).unwrap();
    let mut reader = ferroce_trace::file::CaptureReader::new(file).unwrap();
    let server: std::net::SocketAddr = json["server"].as_str().unwrap().parse().unwrap();
    let (mut packets, mut bytes, mut syns) = (0, 0, 0);
    while let Some(record) = reader.next_record().unwrap() {
        packets += 1;
        // Ethernet and IPv4; the loopback has neither tags nor options.
        let (ip, tcp) = (&record.data[14..], &record.data[34..]);
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        if tcp[2..4] == server.port().to_be_bytes() {
            bytes += total - 20 - usize::from(tcp[12] >> 4) * 4;
            syns += u32::from(tcp[13] & 2 != 0);
        }
    }
    assert_eq!((capture["packets"].as_u64(), syns), (Some(packets), 1));
    if capture["dropped"] == 0 {
        // And the line that introduces the connection. A retransmission would be counted twice.
        let line = "{\"request\":\"data\",\"token\":".len();
        assert!(bytes > SIZE as usize + line, "{bytes}");
    }
}
