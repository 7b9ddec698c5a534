//! `ferroce analyze --live` and `ferroce decode -`: input that arrives slowly, filters, compressed input.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use ferroce_test_support::skip;
use serde_json::Value;

use crate::support::FERROCE;

fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/rxe").join(name)
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("live-{}-{name}", std::process::id()))
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(FERROCE);
    command.args(arguments).env("LC_ALL", "C.UTF-8").env_remove("COLUMNS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// The header and the records of a pcap file, each as its bytes.
fn records(name: &str) -> (Vec<u8>, Vec<Vec<u8>>) {
    let bytes = fs::read(capture(name)).unwrap();
    let (header, mut rest) = bytes.split_at(24);
    let mut records = Vec::new();
    while !rest.is_empty() {
        let len = 16 + u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        records.push(rest[..len].to_vec());
        rest = &rest[len..];
    }
    (header.to_vec(), records)
}

/// A running command whose output is read line by line.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Waits for the next line; notes below a packet are skipped.
    fn packet(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the command ended");
            if !line.starts_with("         ") {
                return line;
            }
        }
    }

    fn interrupt(&self) {
        ferroce_sys::signal::send(self.child.id(), 2);
    }

    /// Returns the rest of the output, standard error and the exit status.
    fn end(mut self) -> (String, String, Option<i32>) {
        drop(self.child.stdin.take());
        let (mut rest, mut errors) = (String::new(), String::new());
        self.lines.read_to_string(&mut rest).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (rest, errors, self.child.wait().unwrap().code())
    }
}

/// Each packet is shown before the next is written: the test waits for its line.
#[test]
fn packets_of_a_pipe_are_shown_as_they_arrive() {
    for arguments in [&["analyze", "--live", "-"][..], &["decode", "-"]] {
        let (header, records) = records("rnr.pcap");
        let mut running = Running::start(command(arguments).stdin(Stdio::piped()));
        let mut input = running.child.stdin.take().unwrap();
        input.write_all(&header).unwrap();
        for (at, record) in records.iter().enumerate() {
            // In two pieces: half a record must not confuse it.
            let (one, other) = record.split_at(record.len() / 2);
            input.write_all(one).unwrap();
            input.write_all(other).unwrap();
            let line = running.packet();
            assert_eq!(line.split_whitespace().next(), Some(&*(at + 1).to_string()), "{line}");
        }
        drop(input);
        let (rest, errors, status) = running.end();
        assert_eq!((errors.as_str(), status), ("", Some(0)));
        assert_eq!(rest.contains("Diagnosis"), arguments[0] == "analyze", "{rest}");
    }
}

#[test]
fn a_growing_file_is_followed_until_the_signal() {
    let path = scratch("growing.pcap");
    let (header, records) = records("rnr.pcap");
    let mut file = File::create(&path).unwrap();
    file.write_all(&header).unwrap();
    file.write_all(&records[0]).unwrap();
    let mut running = Running::start(&mut command(&["analyze", "--live", path.to_str().unwrap()]));
    assert!(running.packet().contains("RC SEND First"));
    for record in &records[1..] {
        file.write_all(record).unwrap();
        running.packet();
    }
    // Part of a record, as a writer with a buffer leaves it: not an error after Ctrl-C.
    file.write_all(&records[0][..20]).unwrap();
    running.interrupt();
    let (rest, errors, status) = running.end();
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let plain = run(&["analyze", capture("rnr.pcap").to_str().unwrap()]);
    let body = |text: &str| text[text.find("Diagnosis").unwrap()..].to_owned();
    assert_eq!(body(&rest), body(out(&plain)), "the report is that of the whole file");
    fs::remove_file(path).unwrap();
}

#[test]
fn a_signal_ends_a_pipe_that_stays_open() {
    let (header, records) = records("rnr.pcap");
    let mut running = Running::start(command(&["analyze", "--live", "-"]).stdin(Stdio::piped()));
    let mut input = running.child.stdin.take().unwrap();
    input.write_all(&header).unwrap();
    input.write_all(&records[0]).unwrap();
    running.packet();
    running.interrupt();
    let mut rest = String::new();
    running.lines.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("1 packet"), "{rest}");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    drop(input);
}

/// `| head` ends the command quietly, even while it waits for input.
#[test]
fn a_closed_output_ends_it_quietly() {
    let (header, records) = records("rnr.pcap");
    let mut running = Running::start(command(&["analyze", "--live", "-"]).stdin(Stdio::piped()));
    let mut input = running.child.stdin.take().unwrap();
    input.write_all(&header).unwrap();
    input.write_all(&records[0]).unwrap();
    running.packet();
    drop(running.lines);
    let mut errors = String::new();
    running.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((errors.as_str(), running.child.wait().unwrap().code()), ("", Some(0)));
    drop(input);
}

#[test]
fn anomalies_and_explanations_are_below_their_packet() {
    let path = capture("rnr.pcap");
    let (header, records) = records("rnr.pcap");
    let bytes = [vec![header], records].concat().concat();
    let mut child =
        command(&["analyze", "--live", "--explain", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let lines: Vec<_> = out(&output).lines().collect();
    let at = lines.iter().position(|line| line.contains("RC RNR NAK")).unwrap();
    assert!(lines[at + 1].starts_with("         Receiver not ready"), "{}", lines[at + 1]);
    assert!(lines[at + 2].starts_with("         ! rnr_nak: no receive"), "{}", lines[at + 2]);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/analyze.md");
    let docs = fs::read_to_string(docs).unwrap();
    let start = docs.find("```text\n     4 ").expect("the example") + "```text\n".len();
    let example = docs[start..].split("```").next().unwrap();
    assert!(out(&output).contains(example), "docs/analyze.md shows other lines");
    let explained = run(&["decode", "--explain", path.to_str().unwrap()]);
    assert_eq!(out(&explained).lines().count(), 2 * 21);
    assert!(out(&explained).contains("\n         First part of a SEND"));
}

#[test]
fn live_json_is_one_object_per_line() {
    let bytes = fs::read(capture("rnr.pcap")).unwrap();
    let mut child =
        command(&["analyze", "--live", "--json", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let events: Vec<Value> =
        out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 22);
    assert!(events[..21].iter().all(|event| event["event"] == "packet"));
    assert_eq!(events[3]["anomalies"][0]["kind"], "rnr_nak");
    assert_eq!(events[21]["files"][0]["packets"], 21);
}

#[test]
fn fail_on_sets_the_status_of_live_analysis() {
    let (header, records) = records("rnr.pcap");
    let feed = |arguments: &[&str]| {
        let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let bytes = [vec![header.clone()], records.clone()].concat().concat();
        // With --fail-fast the command ends before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(&bytes);
        child.wait_with_output().unwrap()
    };
    let all = feed(&["analyze", "--live", "--fail-on", "warning", "-"]);
    assert_eq!(all.status.code(), Some(3));
    assert!(err(&all).contains("3 rnr_nak"), "{}", err(&all));
    assert_eq!(feed(&["analyze", "--live", "--fail-on", "error", "-"]).status.code(), Some(0));
    let fast = feed(&["analyze", "--live", "--fail-on", "rnr_nak", "--fail-fast", "-"]);
    assert_eq!(fast.status.code(), Some(3));
    assert!(out(&fast).contains("\n  4 packets"), "{}", out(&fast));
    // An anomaly at a packet that the filter excludes does not count.
    let sends = feed(&["analyze", "--live", "--fail-on", "rnr_nak", "--op", "send", "-"]);
    assert_eq!(sends.status.code(), Some(0), "{}", err(&sends));
}

/// The numbers of the frames that tshark selects. `None`, after a skip, without tshark.
fn tshark(path: &Path, filter: &str) -> Option<Vec<u64>> {
    let output = Command::new("tshark")
        .args(["-r", path.to_str().unwrap(), "-Y", filter, "-T", "fields", "-e", "frame.number"])
        .output();
    let Ok(output) = output else {
        skip("tshark is not installed");
        return None;
    };
    assert!(output.status.success(), "{filter}: {}", err(&output));
    Some(out(&output).lines().map(|line| line.parse().unwrap()).collect())
}

/// The numbers of the frames that `ferroce decode` lists.
fn decoded(path: &Path, filter: &[&str]) -> Vec<u64> {
    let arguments = [&["decode", "--json"], filter, &[path.to_str().unwrap()]].concat();
    let output = run(&arguments);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let frames = value["frames"].as_array().unwrap().iter();
    frames.map(|frame| frame["number"].as_u64().unwrap()).collect()
}

#[test]
fn filters_select_the_frames_that_tshark_selects() {
    let read = "infiniband.bth.opcode in {12, 13, 14, 15, 16}";
    for (name, ours, theirs) in [
        ("rping.pcap", &["--plane", "control"][..], "infiniband.bth.destqp == 1"),
        ("rping.pcap", &["--plane", "data"], "infiniband.bth && infiniband.bth.destqp != 1"),
        ("rping.pcap", &["--op", "read"], read),
        ("rping.pcap", &["--op", "write"], "infiniband.bth.opcode in {6..11}"),
        ("rping.pcap", &["--op", "cm"], "infiniband.mad.mgmtclass == 7"),
        ("rping.pcap", &["--host", "10.77.0.11"], "ip.addr == 10.77.0.11"),
        ("rnr.pcap", &["--qp", "0x3c"], "infiniband.bth.destqp == 0x3c"),
        ("rnr.pcap", &["--qp", "60,61"], "infiniband.bth"),
        ("rnr.pcap", &["--op", "rnr"], "infiniband.aeth.syndrome.opcode == 1"),
        ("rnr.pcap", &["--op", "nak"], "infiniband.aeth.syndrome.opcode in {1, 3}"),
        ("atomic.pcap", &["--op", "atomic"], "infiniband.bth.opcode in {18, 19, 20}"),
        ("ud_pingpong.pcap", &["--op", "send"], "infiniband.bth.opcode in {100, 101}"),
    ] {
        let path = capture(name);
        let Some(expected) = tshark(&path, theirs) else { return };
        assert!(!expected.is_empty(), "{name}: {theirs}");
        assert_eq!(decoded(&path, ours), expected, "{name}: {ours:?}");
    }
}

/// Returns the report of one file as JSON.
fn analyzed(arguments: &[&str]) -> Value {
    let output = run(&[&["analyze", "--json", "--packets"], arguments].concat());
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    value["files"][0].clone()
}

/// `--qp` selects both directions of a connection: in a file, also the packets before the one that matches the directions.
#[test]
fn an_analysis_selects_both_directions_of_a_queue_pair() {
    let path = capture("rnr.pcap");
    let bytes = fs::read(&path).unwrap();
    let path = path.to_str().unwrap();
    let frames = |report: &Value| -> Vec<u64> {
        let listed = report["packet_list"].as_array().unwrap().iter();
        listed.map(|row| row["frame"].as_u64().unwrap()).collect()
    };
    // 0x3d is the requester; its packets carry only 0x3c. The first response, frame 4, names it.
    let requester = analyzed(&["--qp", "0x3d", path]);
    assert_eq!(frames(&requester), (1..=21).collect::<Vec<_>>());
    assert_eq!((&requester["packets"], &requester["excluded_packets"]), (&21.into(), &Value::Null));
    // A pipe can be read only once.
    let mut command = Command::new(FERROCE);
    command.args(["analyze", "--json", "--packets", "--qp", "0x3d", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(frames(&value["files"][0]), (4..=21).collect::<Vec<_>>());
    assert_eq!(value["files"][0]["excluded_packets"], 3);
    // The responder: every packet of the requester, and every response.
    let responder = analyzed(&["--qp", "0x3c", path]);
    assert_eq!(responder["packets"], 21);
    assert_eq!(responder["excluded_packets"], Value::Null);
    let neither = analyzed(&["--qp", "0x99", path]);
    assert_eq!((&neither["packets"], &neither["excluded_packets"]), (&0.into(), &21.into()));
    assert_eq!(neither["conversations"].as_array().unwrap().len(), 0);
    assert_eq!(neither["anomalies"].as_array().unwrap().len(), 0);
}

#[test]
fn an_analysis_reports_what_the_filter_selects() {
    let path = capture("rping.pcap");
    let path = path.to_str().unwrap();
    let all = analyzed(&[path]);
    let (control, data) =
        (analyzed(&["--plane", "control", path]), analyzed(&["--plane", "data", path]));
    let sum = |key: &str| control[key].as_u64().unwrap() + data[key].as_u64().unwrap();
    for key in ["packets", "roce_packets", "messages_total"] {
        assert_eq!(sum(key), all[key].as_u64().unwrap(), "{key}");
    }
    assert_eq!(control["cm"], all["cm"]);
    assert_eq!(data["cm"], Value::Array(Vec::new()));
    let writes = analyzed(&["--op", "write", path]);
    let operations = |report: &Value| -> Vec<String> {
        let conversations = report["conversations"].as_array().unwrap().iter();
        conversations
            .flat_map(|it| {
                it["operations"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
            })
            .collect()
    };
    assert_eq!(operations(&writes), ["RDMA_WRITE"]);
    // Nothing is missing because acknowledgements are not selected.
    assert_eq!(writes["anomaly_counts"], Value::Object(Default::default()));
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zstd(data: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn compressed_captures_are_read_like_plain_ones() {
    let plain = fs::read(capture("rping.pcap")).unwrap();
    let path = scratch("compressed");
    let text = |arguments: &[&str]| {
        let output = run(arguments);
        assert_eq!((err(&output), output.status.code()), ("", Some(0)));
        out(&output).to_owned()
    };
    let path = path.to_str().unwrap();
    fs::write(path, &plain).unwrap();
    let expected = (text(&["analyze", path]), text(&["decode", path]));
    for compressed in [gzip(&plain), zstd(&plain)] {
        fs::write(path, &compressed).unwrap();
        assert_eq!((text(&["analyze", path]), text(&["decode", path])), expected);
    }
    // As the program compresses it, with long matches.
    let program =
        Command::new("zstd").args(["-19", "-c", "-q"]).arg(capture("rping.pcap")).output();
    match program {
        Ok(output) => {
            fs::write(path, &output.stdout).unwrap();
            assert_eq!(text(&["analyze", path]), expected.0);
        }
        Err(_) => skip("zstd is not installed"),
    }
    fs::remove_file(path).unwrap();
}

#[test]
fn truncated_compressed_input_shows_what_is_readable() {
    let plain = fs::read(capture("rping.pcap")).unwrap();
    for (name, compressed) in [("gzip", gzip(&plain)), ("zstd", zstd(&plain))] {
        let path = scratch(&format!("cut-{name}"));
        let half = &compressed[..compressed.len() * 9 / 10];
        fs::write(&path, half).unwrap();
        let decoded = run(&["decode", path.to_str().unwrap()]);
        assert_eq!(decoded.status.code(), Some(2), "{}", err(&decoded));
        assert!(
            err(&decoded).contains(&format!("the {name} data is cut short after")),
            "{decoded:?}"
        );
        if name == "gzip" {
            assert!(out(&decoded).lines().count() > 20, "{}", out(&decoded));
        }
        let analyzed = run(&["analyze", path.to_str().unwrap()]);
        assert_eq!(analyzed.status.code(), Some(2));
        assert!(err(&analyzed).contains("is cut short after"), "{}", err(&analyzed));
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn live_takes_one_file() {
    let path = capture("rnr.pcap");
    let path = path.to_str().unwrap();
    let output = run(&["analyze", "--live", path, path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("--live shows one file"), "{}", err(&output));
    let missing = run(&["analyze", "--live", "/nonexistent/x.pcap"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(err(&missing).contains("cannot open it"), "{}", err(&missing));
}
