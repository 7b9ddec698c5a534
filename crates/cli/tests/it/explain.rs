//! `ferroce explain`: runs the binary. Unit tests check the example of every topic.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::FERROCE;

fn explain(arguments: &[&str]) -> Output {
    let mut command = Command::new(FERROCE);
    command.arg("explain").args(arguments).env("LC_ALL", "C.UTF-8").env("COLUMNS", "100");
    command.env_remove("FERROCE_CAPTURE").env_remove("FERROCE_FAULTS").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&explain(arguments))).unwrap()
}

#[test]
fn a_status_is_provoked_by_its_number() {
    let out = stdout(&explain(&["status", "12"]));
    for part in [
        "IBV_WC_RETRY_EXC_ERR (12): transport retry counter exceeded  (completion status)",
        "Specified in: IBA 11.6.2",
        "A completes RDMA_WRITE: IBV_WC_RETRY_EXC_ERR (12)",
        "RC RDMA WRITE Only",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    // The request and two retries.
    assert!(out.matches("RDMA WRITE Only").count() >= 3, "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
}

#[test]
fn a_wrong_rkey_leads_to_a_nak() {
    let out = stdout(&explain(&["rkey"]));
    for part in ["RC NAK", "remote access error", "IBV_WC_REM_ACCESS_ERR (10)"] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn a_header_is_shown_with_the_bytes_of_a_packet() {
    let out = stdout(&explain(&["bth"]));
    assert!(out.contains("RC_RDMA_WRITE_ONLY") && out.contains("0x001000"), "{out}");
    let report = json(&["--json", "reth"]);
    let layer = &report["example"]["header"]["layers"][0];
    assert_eq!((&layer["name"], &layer["length"]), (&"RETH".into(), &16.into()));
}

#[test]
fn an_opcode_names_its_operation_and_headers() {
    let out = stdout(&explain(&["--no-example", "0x0a"]));
    assert!(out.contains("Opcode 0x0a is RC_RDMA_WRITE_ONLY; behind the BTH: RETH."), "{out}");
    assert!(out.contains("RDMA WRITE") && !out.contains("Example"), "{out}");
}

#[test]
fn json_has_the_completions_packets_and_counters() {
    let report = json(&["--json", "packet_seq_err"]);
    assert_eq!(report["schema"], "ferroce-explain-1");
    assert_eq!((&report["topic"], &report["group"]), (&"packet_seq_err".into(), &"counter".into()));
    let example = &report["example"];
    let counter = &example["counter"];
    assert_eq!((&counter["name"], &counter["before"]), (&"packet_seq_err".into(), &0.into()));
    assert!(counter["after"].as_u64().unwrap() >= 1, "{report}");
    assert_eq!(example["completions"][0]["name"], "IBV_WC_SUCCESS");
    let packets = example["packets"].as_array().unwrap();
    let nak = |packet: &&Value| packet["summary"].as_str().unwrap().contains("PSN sequence error");
    assert_eq!(packets.iter().filter(nak).count(), 1, "{report}");
}

#[test]
fn topics_are_listed_by_group() {
    let out = stdout(&explain(&[]));
    for part in ["Operations\n", "Completion statuses\n", "retry_exc_err", "QP states\n", "rkey"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(json(&["--json"])["topics"].as_array().unwrap().len() > 100);
}

#[test]
fn near_misses_are_suggested() {
    let output = explain(&["wirte"]);
    assert_eq!(output.status.code(), Some(1));
    let out = text(&output.stderr);
    assert!(out.contains("\"wirte\"") && out.contains("did you mean write"), "{out}");
}

#[test]
fn statuses_that_cannot_occur_say_why() {
    let out = stdout(&explain(&["IBV_WC_LOC_EEC_OP_ERR"]));
    assert!(out.contains("No example: it belongs to the reliable datagram service"), "{out}");
}

#[test]
fn without_a_device_the_text_is_still_printed() {
    let _taken = std::net::UdpSocket::bind("127.0.0.1:4791").unwrap();
    let output = explain(&["write"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("RDMA WRITE  (operation)"));
    let errors = text(&output.stderr);
    assert!(errors.contains("ferroce doctor"), "{errors}");
}
