//! `ferroce analyze`: runs the binary on intact and damaged captures of rdma_rxe.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

mod docs;

const CAPTURES: &str = "tests/data/rxe";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the command, run in the project's root directory with a UTF-8 locale.
fn ferroce(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.arg("analyze").args(arguments).current_dir(root());
    command.env("LC_ALL", "C.UTF-8").env_remove("COLUMNS").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    ferroce(arguments).output().expect("start the command")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("UTF-8")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the paths of all captures, relative to the root.
fn captures() -> Vec<String> {
    let directory = fs::read_dir(root().join(CAPTURES)).expect("captures");
    let names =
        directory.map(|entry| entry.expect("entry").file_name().into_string().expect("name"));
    let mut paths: Vec<_> = names
        .filter(|name| name.ends_with(".pcap"))
        .map(|name| format!("{CAPTURES}/{name}"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 50, "{paths:?}");
    paths
}

/// Writes a temporary file and returns its path.
fn scratch(name: &str, content: &[u8]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("analyze-{name}"));
    fs::write(&path, content).expect("scratch file");
    path.to_str().expect("UTF-8").to_owned()
}

fn capture(name: &str) -> Vec<u8> {
    fs::read(root().join(CAPTURES).join(name)).expect("capture")
}

/// Analyzes all captures into one JSON document with all lists.
fn analyze_all() -> Value {
    let paths = captures();
    let mut arguments = vec!["--json", "--packets"];
    arguments.extend(paths.iter().map(String::as_str));
    let output = run(&arguments);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    json(&output)
}

#[test]
fn json_reports_every_capture() {
    let document = analyze_all();
    assert_eq!(document["schema"], "ferroce-analyze/1");
    let files = document["files"].as_array().expect("files");
    assert_eq!(files.len(), captures().len());
    for (file, path) in files.iter().zip(captures()) {
        assert_eq!(file["path"], path);
        let number = |name: &str| file[name].as_u64().unwrap_or_else(|| panic!("{path}: {name}"));
        let packets = number("packets");
        assert!(packets > 0 && number("roce_packets") == packets, "{path}");
        let icrc = &file["icrc"];
        assert_eq!(
            (icrc["ok"].as_u64(), icrc["bad"].as_u64(), icrc["unverifiable"].as_u64()),
            (Some(packets), Some(0), Some(0)),
            "{path}"
        );
        let opcodes = file["opcodes"].as_object().expect("opcodes");
        assert_eq!(opcodes.values().filter_map(Value::as_u64).sum::<u64>(), packets, "{path}");
        for list in ["conversations", "messages", "anomalies", "cm"] {
            assert!(file[list].is_array(), "{path}: {list}");
        }
        assert_eq!(file["packet_list"].as_array().map(Vec::len), Some(packets as usize), "{path}");
        assert!(!file["conversations"].as_array().expect("conversations").is_empty(), "{path}");
        assert_eq!(file["problems"], Value::Array(Vec::new()), "{path}");
        // The packets of all conversations and directions add up to the packets of the file.
        let sides = file["conversations"].as_array().into_iter().flatten();
        let sum: u64 = sides
            .flat_map(|it| [&it["a_to_b"]["packets"], &it["b_to_a"]["packets"]])
            .filter_map(Value::as_u64)
            .sum();
        assert_eq!(sum, packets, "{path}");
    }
}

#[test]
fn the_diagnosis_names_the_anomalies() {
    for (name, kinds) in [
        ("rnr", &["rnr_nak", "retransmission"][..]),
        ("rnr_exceeded", &["rnr_nak", "rnr_retry_exceeded"]),
        ("timeout", &["timeout", "retry_exceeded"]),
        ("bad_rkey_write", &["nak_remote_access"]),
        ("bad_rkey_read", &["nak_remote_access"]),
        ("out_of_bounds", &["nak_remote_access"]),
        ("invalidate", &["nak_remote_access"]),
        ("no_access", &["nak_invalid_request"]),
        ("op_error", &["nak_remote_operational"]),
        ("too_long", &["nak_remote_operational"]),
        ("cm_reject", &["cm_reject"]),
        ("loss_requests", &["missing_request", "nak_sequence", "retransmission"]),
        ("loss_responses", &["missing_response", "retransmission"]),
        ("reorder", &["reordered"]),
        ("duplicate", &["duplicate"]),
    ] {
        let path = format!("{CAPTURES}/{name}.pcap");
        let document = json(&run(&["--json", &path]));
        let counts = &document["files"][0]["anomaly_counts"];
        for kind in kinds {
            assert!(counts[kind].as_u64() > Some(0), "{name}: no {kind} in {counts}");
        }
        let output = run(&[&path]);
        let diagnosis = stdout(&output).split("\nDiagnosis\n").nth(1).expect("a diagnosis");
        assert!(!diagnosis.starts_with("  ✓"), "{name}: {diagnosis}");
    }
    for name in ["rping", "sizes", "psn_wrap", "ud_pingpong", "write_65536_mtu1024"] {
        let output = run(&[&format!("{CAPTURES}/{name}.pcap")]);
        assert!(stdout(&output).contains("✓ no anomalies"), "{name}");
    }
}

#[test]
fn reports_fit_their_width_in_unicode_and_ascii() {
    for path in captures() {
        let arguments = ["--ladder", "--messages", "--packets", "--all", &path];
        let output = run(&arguments);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{path}");
        let text = stdout(&output);
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{path}: {line}");
            assert_eq!(line, line.trim_end(), "{path}: trailing blanks");
        }
        let output = run(&["--ladder", "--messages", "--packets", "--all", "--ascii", &path]);
        let plain = stdout(&output);
        assert!(plain.is_ascii(), "{path}");
        assert!(
            text.lines().map(|line| line.chars().count()).eq(plain.lines().map(str::len)),
            "{path}: other columns in ASCII"
        );
        assert!(
            !plain.contains('?') || text.contains('?'),
            "{path}: a character has no ASCII replacement"
        );
    }
}

#[test]
fn columns_sets_the_width_of_reports() {
    let widest = |columns: &str, path: &str| {
        let mut command = ferroce(&["--ladder", "--messages", "--packets", path]);
        let output = command.env("COLUMNS", columns).output().expect("runs");
        stdout(&output).lines().map(|line| line.chars().count()).max().expect("lines")
    };
    for path in captures() {
        for columns in [60, 80] {
            let widest = widest(&columns.to_string(), &path);
            assert!(widest <= columns, "{path}: {widest} of {columns}");
        }
    }
    let path = format!("{CAPTURES}/rnr.pcap");
    assert!((101..=140).contains(&widest("140", &path)), "{}", widest("140", &path));
    for nonsense in ["0", "-1", "wide", ""] {
        assert!((90..=100).contains(&widest(nonsense, &path)), "{nonsense:?}");
    }
}

#[test]
fn color_needs_the_option_without_a_terminal() {
    let path = format!("{CAPTURES}/rnr.pcap");
    let coloured = run(&["--color", "always", &path]);
    assert!(stdout(&coloured).contains("\x1b["));
    assert!(!stdout(&run(&[&path])).contains('\x1b'));
}

#[test]
fn a_locale_that_is_not_utf8_gets_ascii() {
    let path = format!("{CAPTURES}/rnr.pcap");
    let output = ferroce(&["--ladder", &path]).env("LC_ALL", "C").output().expect("runs");
    assert!(output.stdout.is_ascii());
}

#[test]
fn a_truncated_file_is_reported_up_to_the_damage() {
    let whole = capture("rnr.pcap");
    let mut packets_seen = BTreeSet::new();
    for cut in (1..whole.len()).step_by(97) {
        let path = scratch("cut.pcap", &whole[..cut]);
        let output = run(&["--json", &path]);
        let file = &json(&output)["files"][0];
        // A file cut between two packets is valid.
        if file["problems_total"] == 0 {
            assert_eq!(output.status.code(), Some(0));
            continue;
        }
        assert_eq!(output.status.code(), Some(2), "cut at {cut}");
        assert!(stderr(&output).contains(&format!("{path}: byte ")), "{}", stderr(&output));
        let offset = file["problems"][0]["offset"].as_u64().expect("offset");
        assert!(offset <= cut as u64, "cut at {cut}: {offset}");
        packets_seen.insert(file["packets"].as_u64());
    }
    assert!(packets_seen.len() > 10, "{packets_seen:?}");

    let path = scratch("cut-text.pcap", &whole[..whole.len() - 3]);
    let output = run(&[&path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("20 packets"), "{}", stdout(&output));
    assert!(stdout(&output).contains("\nProblems\n"), "{}", stdout(&output));
    assert!(
        stderr(&output).starts_with(&format!("ferroce: {path}: byte 11")),
        "{}",
        stderr(&output)
    );
}

#[test]
fn files_that_are_not_captures_are_reported_by_name() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let missing = format!("{directory}/no-such-file.pcap");
    for (path, says, status) in [
        (scratch("foreign.pcap", b"#!/bin/sh\necho hello\n"), "not a pcap or pcapng file", 2),
        (scratch("empty.pcap", b""), "empty", 2),
        (missing, "No such file", 1),
        (directory.to_owned(), "directory", 2),
    ] {
        for arguments in [&[path.as_str()][..], &["--json", &path]] {
            let output = run(arguments);
            assert_eq!(output.status.code(), Some(status), "{path}: {}", stderr(&output));
            let complaint = stderr(&output);
            assert!(complaint.starts_with(&format!("ferroce: {path}: ")), "{complaint}");
            assert!(complaint.contains(says) && complaint.lines().count() == 1, "{complaint}");
        }
        let document = json(&run(&["--json", &path]));
        assert_eq!(document["files"][0]["problems_total"], 1, "{path}");
    }
    // The size is reported although the file cannot be parsed.
    let path = scratch("foreign-2000.pcap", &[b'x'; 2000]);
    assert!(stdout(&run(&[&path])).starts_with(&format!("{path}  not a capture file, 2,000 B\n")));
    assert_eq!(json(&run(&["--json", &path]))["files"][0]["file_bytes"], 2000);
}

#[test]
fn one_bad_file_does_not_hide_the_others() {
    let bad = scratch("bad-of-two.pcap", b"");
    let good = format!("{CAPTURES}/atomic.pcap");
    let output = run(&[&bad, &good]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stdout(&output).contains("\n\ntests/data/rxe/atomic.pcap  pcap"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn only_the_first_ten_problems_are_printed() {
    // The IPv4 total length of every packet exceeds its captured length.
    let mut bytes = capture("sizes.pcap");
    let mut at = 24;
    while at + 16 <= bytes.len() {
        let length =
            u32::from_le_bytes([bytes[at + 8], bytes[at + 9], bytes[at + 10], bytes[at + 11]]);
        bytes[at + 16 + 16..at + 16 + 18].copy_from_slice(&[0xff, 0xff]);
        at += 16 + length as usize;
    }
    let path = scratch("lying.pcap", &bytes);
    let output = run(&[&path]);
    assert_eq!(output.status.code(), Some(2));
    let complaints: Vec<_> = stderr(&output).lines().collect();
    assert_eq!(complaints.len(), 11, "{}", stderr(&output));
    assert!(complaints[0].starts_with(&format!("ferroce: {path}: frame 1 (byte ")));
    assert_eq!(complaints[10], format!("ferroce: {path}: 89 more problems"));
}

#[test]
fn a_capture_is_read_from_standard_input() {
    let mut child = ferroce(&["-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the command");
    child.stdin.take().expect("stdin").write_all(&capture("rnr.pcap")).expect("written");
    let output = child.wait_with_output().expect("output");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let from_file = run(&[&format!("{CAPTURES}/rnr.pcap")]);
    let (piped, named) = (stdout(&output), stdout(&from_file));
    assert!(piped.lines().skip(1).eq(named.lines().skip(1)), "{piped}");
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    for argument in ["--json", "--packets"] {
        let path = format!("{CAPTURES}/write_65536_mtu1024.pcap");
        let mut child = ferroce(&[argument, &path, &path, &path])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start the command");
        drop(child.stdout.take());
        let mut complaint = String::new();
        child.stderr.take().expect("stderr").read_to_string(&mut complaint).expect("read");
        let status = child.wait().expect("status");
        assert_eq!((status.code(), complaint.as_str()), (Some(0), ""));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_output_device_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let path = format!("{CAPTURES}/rnr.pcap");
    let output = ferroce(&[&path]).stdout(full).output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write the output"), "{}", stderr(&output));
}

#[test]
fn conversation_limits_the_report_to_one_conversation() {
    let path = format!("{CAPTURES}/rping.pcap");
    let document = json(&run(&["--json", "--conversation", "2", "--packets", &path]));
    let file = &document["files"][0];
    assert_eq!(file["conversations"].as_array().map(Vec::len), Some(1));
    for list in ["messages", "packet_list"] {
        let rows = file[list].as_array().expect("list");
        assert!(!rows.is_empty() && rows.iter().all(|row| row["conversation"] == 2), "{list}");
    }
    let output = run(&["--ladder=2", &path]);
    assert_eq!(stdout(&output).matches("\nLadder of conversation").count(), 1);
    assert!(stdout(&output).contains("CM REQ"), "the handshake is part of it");
}

#[test]
fn a_missing_conversation_is_an_error() {
    let path = format!("{CAPTURES}/rping.pcap");
    let output = run(&["--conversation", "9", &path]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    let complaint =
        format!("ferroce: {path}: no conversation 9: the file has conversations 1 to 2\n");
    assert_eq!(stderr(&output), complaint);
    let output = run(&["--json", "--conversation", "9", &path]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), complaint.as_str()));
    assert_eq!(json(&output)["files"][0]["conversations_total"], 2);
    // The rest of the report is printed nevertheless.
    let output = run(&["--ladder=9", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("\nConversations\n"));
    assert!(stderr(&output).contains(": no ladder of conversation 9: the file has"));
    let output = run(&["--conversation=2", "--ladder=1", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).ends_with(": --conversation selects 2\n"), "{}", stderr(&output));
    for sound in [&["--conversation", "2", "--ladder"][..], &["--conversation=2", "--ladder=2"]] {
        assert_eq!(run(&[sound, &[path.as_str()]].concat()).status.code(), Some(0));
    }
}

#[test]
fn fail_on_sets_the_exit_status() {
    let path = |name: &str| format!("{CAPTURES}/{name}.pcap");
    let status = |what: &str, name: &str| {
        let output = run(&["--fail-on", what, &path(name)]);
        assert!(stdout(&output).contains("\nDiagnosis\n"), "the report is printed nevertheless");
        (output.status.code(), stderr(&output).to_owned())
    };
    let silent = |code| (Some(code), String::new());
    for what in ["error", "warning", "info", "retransmission,timeout"] {
        assert_eq!(status(what, "rping"), silent(0), "{what}");
    }
    assert_eq!(status("error", "rnr"), silent(0));
    assert_eq!(status("timeout", "rnr"), silent(0));
    let (code, said) = status("warning", "rnr");
    assert_eq!(code, Some(3));
    let found = "anomalies named by --fail-on: 9 retransmission, 3 nak_sequence, 3 rnr_nak";
    assert_eq!(said, format!("ferroce: {}: {found}\n", path("rnr")));
    assert_eq!(status("timeout,rnr_nak", "rnr").0, Some(3));
    assert_eq!(status("error", "bad_rkey_write").0, Some(3));

    // One of several files; JSON; a damaged file takes precedence; an unknown name is a usage error.
    let several = run(&["--fail-on", "error", &path("op_error"), &path("rping")]);
    assert_eq!(several.status.code(), Some(3));
    let document = run(&["--json", "--fail-on", "error", &path("op_error")]);
    assert_eq!(document.status.code(), Some(3));
    assert_eq!(json(&document)["files"][0]["anomaly_counts"]["nak_remote_operational"], 1);
    let bad = scratch("fail-on-cut.pcap", &capture("rnr.pcap")[..1000]);
    assert_eq!(run(&["--fail-on", "info", &bad]).status.code(), Some(2));
    let wrong = run(&["--fail-on", "nonsense", &path("rping")]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("nonsense"), "{}", stderr(&wrong));
}

#[test]
fn help_documents_the_exit_statuses() {
    let output = run(&["--help"]);
    for part in ["--fail-on", "Exit status:", "  3  analyze found anomalies that --fail-on names"] {
        assert!(stdout(&output).contains(part), "{part}: {}", stdout(&output));
    }
    // Completions are generated from the same definition.
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    let output = command.args(["completions", "bash"]).output().expect("runs");
    assert!(stdout(&output).contains("rnr_nak"), "--fail-on is completed");
}
