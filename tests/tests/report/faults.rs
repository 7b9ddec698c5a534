//! Injected faults are each named, with packets that open; runs without faults raise no alarm.

use std::fs::File;
use std::path::{Path, PathBuf};

use ferroce_test_support::browser::Browser;
use ferroce_trace::file::{CaptureReader, Direction};
use serde_json::json;

use crate::{Scratch, no_complaint, rxe};

/// Runs a simulation and returns its capture.
fn simulated(scratch: &Scratch, scenario: &str, seed: &str) -> PathBuf {
    simulated_service(scratch, scenario, seed, "rc")
}

fn simulated_service(scratch: &Scratch, scenario: &str, seed: &str, service: &str) -> PathBuf {
    let name = format!("{}-{service}-{seed}.pcapng", scenario.replace(':', "-"));
    let options = ["--scenario", scenario, "--seed", seed, "--service", service];
    scratch.ferroce(&[&["simulate", "--capture", &name], &options[..]].concat());
    scratch.path(&name)
}

/// Statements about the network. Simulated programs make mistakes of their own, whatever the network does.
const NETWORK: [&str; 6] =
    ["loss", "duplicate", "reordering", "corruption", "congestion", "nak_sequence"];

/// Runs of which the capture does not show the fault, though it happened: by scenario, service and seed. They must not
/// name it.
const INVISIBLE: &[(&str, &str, &[u32])] = &[
    // No datagram to the capturing host was lost, or it was the first or last one of its sender.
    ("lossy:0.02", "ud", &[1, 4, 7, 8, 10]),
];

/// Whether the capture has a packet that was received with this fault, according to the simulator's comment.
fn is_received_with(capture: &Path, fault: &str) -> bool {
    let mut reader = CaptureReader::new(File::open(capture).expect("the capture")).expect("a file");
    let mut found = false;
    while let Some(record) = reader.next_record().expect("a record") {
        let comment = record.comment.unwrap_or_default();
        found |= record.direction == Some(Direction::Inbound) && comment.contains(fault);
    }
    found
}

/// Runs a scenario with these seeds. Each run whose capture shows the fault must name it, and no run any fault of the
/// network but that and `also`.
fn seeds_name(
    seeds: std::ops::RangeInclusive<u32>,
    scenario: &str,
    services: &[&str],
    wanted: Option<&str>,
    also: &[&str],
) {
    let mut named = 0;
    let scratch = Scratch::new(&format!("seeds-{}", scenario.replace(':', "-")));
    for (service, seed) in services.iter().flat_map(|it| seeds.clone().map(move |seed| (it, seed)))
    {
        let capture = simulated_service(&scratch, scenario, &seed.to_string(), service);
        let data = scratch.data(&capture);
        let topics = data["topics"].as_array().expect("topics").iter();
        let topics: Vec<_> = topics.filter_map(|topic| topic["id"].as_str()).collect();
        let run = format!("--scenario {scenario} --seed {seed} --service {service}: {topics:?}");
        let is_shown = match wanted {
            Some("corruption") => is_received_with(&capture, "corrupted"),
            Some("congestion") => is_received_with(&capture, "marked CE"),
            Some(_) => !INVISIBLE.iter().any(|(other, with, seeds)| {
                (*other, with) == (scenario, service) && seeds.contains(&seed)
            }),
            None => false,
        };
        if let Some(wanted) = wanted {
            assert_eq!(topics.contains(&wanted), is_shown, "{wanted} in {run}");
        }
        named += u32::from(is_shown);
        let allowed = |topic: &&str| Some(*topic) == wanted || also.contains(topic);
        let network = topics.iter().filter(|topic| NETWORK.contains(topic));
        let foreign: Vec<_> = network.filter(|topic| !allowed(topic)).collect();
        assert!(foreign.is_empty(), "{foreign:?} in {run}");
        std::fs::remove_file(capture).expect("the capture");
    }
    assert_eq!(named > 0, wanted.is_some(), "{scenario}");
}

/// The faults that a capture at one host can show, for many seeds.
fn faults_are_named(seeds: std::ops::RangeInclusive<u32>) {
    let all = &["rc", "uc", "ud", "xrc"];
    let recovery = &["nak_sequence"];
    seeds_name(seeds.clone(), "clean", all, None, &[]);
    seeds_name(seeds.clone(), "lossy:0.02", &["rc", "uc", "xrc"], Some("loss"), recovery);
    seeds_name(1..=10, "lossy:0.02", &["ud"], Some("loss"), &[]);
    seeds_name(seeds.clone(), "duplicating", &["rc", "uc", "xrc"], Some("duplicate"), &[]);
    seeds_name(seeds.clone(), "reordering", &["uc", "ud"], Some("reordering"), &[]);
    // A reliable connection sends a packet that is late again, and both arrive.
    let again = &["nak_sequence", "duplicate"];
    seeds_name(seeds.clone(), "reordering", &["rc", "xrc"], Some("reordering"), again);
    let dropped = &["loss", "nak_sequence"];
    seeds_name(seeds.clone(), "corrupting", all, Some("corruption"), dropped);
    seeds_name(seeds, "congested", &["uc"], Some("congestion"), &["loss"]);
}

#[test]
fn faults_of_two_seeds_are_named() {
    faults_are_named(1..=2);
}

mod full {
    #[test]
    fn faults_of_ten_seeds_are_named() {
        super::faults_are_named(1..=10);
    }
}

/// Every capture of another implementation gives a report without an error; of faults only where there were some.
#[test]
fn every_foreign_capture_gives_a_report() {
    let scratch = Scratch::new("foreign-data");
    for capture in ferroce_tests::capture::rxe() {
        let data = scratch.data(&capture);
        assert_eq!(data["problems_total"], 0, "{}: {}", capture.display(), data["problems"]);
        assert_eq!(data["icrc"]["bad"], 0, "{}", capture.display());
        assert!(data["packets"].as_u64() > Some(0), "{}", capture.display());
    }
}

#[test]
fn every_injected_fault_is_named() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("faults");
    let cases: &[(PathBuf, &[&str])] = &[
        (rxe("loss_requests"), &["loss", "retransmission", "nak_sequence"]),
        (rxe("loss_responses"), &["loss", "retransmission"]),
        (simulated(&scratch, "lossy:0.05", "1"), &["loss", "retransmission"]),
        (rxe("rnr"), &["rnr"]),
        (rxe("rnr_exceeded"), &["rnr_exceeded"]),
        (rxe("bad_rkey_write"), &["access"]),
        (rxe("bad_rkey_read"), &["access"]),
        (rxe("op_error"), &["operational"]),
        (rxe("no_access"), &["invalid_request"]),
        (rxe("timeout"), &["timeout", "retry_exceeded"]),
        (rxe("cm_reject"), &["cm_reject"]),
        (simulated(&scratch, "corrupting", "2"), &["corruption"]),
        (rxe("duplicate"), &["duplicate"]),
        (rxe("reorder"), &["reordering"]),
        (simulated(&scratch, "reordering", "1"), &["reordering"]),
        (simulated(&scratch, "congested", "2"), &["congestion"]),
    ];
    for (capture, topics) in cases {
        scratch.open(&browser, &[capture]);
        for topic in *topics {
            assert_eq!(
                browser.count(&format!("#topic-{topic}")),
                1,
                "{}: {topic}",
                capture.display()
            );
            // Each statement names packets, all of which the page has.
            let shown = "const file = JSON.parse(document.getElementById('data').textContent).files[0]; \
                 const keys = new Set(file.shown.map(it => it.s ? `${it.f}.${it.s}` : `${it.f}`)); \
                 return [...document.querySelectorAll(`#topic-${arguments[0]} .evidence a`)].map(a => keys.has(a.hash.slice(8)))";
            let shown = browser.execute(shown, json!([topic]));
            let shown = shown.as_array().expect("links");
            assert!(!shown.is_empty(), "{}: {topic}", capture.display());
            assert!(shown.iter().all(|it| *it == true), "{}: {topic}", capture.display());
            browser.value(&format!("document.querySelector('#topic-{topic}').open = true"));
            browser.click(&format!("#topic-{topic} .evidence a"));
            browser.wait_until("return document.querySelector('aside .bytes')");
            browser.click("#close");
        }
        no_complaint(&browser);
    }
}

#[test]
fn runs_without_faults_raise_no_alarm() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("clean");
    scratch.ferroce(&["demo", "--capture", "demo.pcapng", "--json"]);
    let mut captures = vec![scratch.path("demo.pcapng")];
    let names = [
        "rping",
        "rping_v6",
        "sizes",
        "psn_wrap",
        "ud_pingpong",
        "uc_pingpong",
        "rstream",
        "srq_pingpong",
        "atomic",
        "imm",
        "write_65536_mtu1024",
        "read_65536_mtu1024",
    ];
    captures.extend(names.map(rxe));
    for capture in &captures {
        let data = scratch.data(capture);
        let alarms = data["topics"].as_array().expect("topics").iter();
        let alarms: Vec<_> = alarms.filter(|topic| topic["severity"] != "info").collect();
        assert!(alarms.is_empty(), "{}: {alarms:?}", capture.display());
    }
    scratch.open(&browser, &[&captures[0]]);
    assert_eq!(browser.text("#summary .verdict strong"), "No problems found");
    assert_eq!(browser.count(".topic.warning, .topic.error"), 0);
    no_complaint(&browser);
}

/// Every capture of another implementation gives a page without errors of the script, with its ladders unfolded.
#[test]
fn every_foreign_capture_gives_a_page() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("foreign");
    let all = ferroce_tests::capture::rxe();
    let all: Vec<&Path> = all.iter().map(PathBuf::as_path).collect();
    scratch.open(&browser, &all);
    let tabs = browser.count(".files button");
    assert_eq!(tabs, all.len());
    for at in 1..=tabs {
        browser.execute(
            "document.querySelector(`.files button:nth-child(${arguments[0]})`).click()",
            json!([at]),
        );
        let script = "for (const one of document.querySelectorAll('.ladder')) one.open = true; return document.querySelectorAll('.ladder').length";
        let ladders = browser.value(script).as_u64().expect("a number");
        let drawn =
            format!("return document.querySelectorAll('.ladder .rows').length >= {ladders}");
        assert!(ladders > 0, "{}", all[at - 1].display());
        browser.wait_until(&drawn);
        no_complaint(&browser);
    }
}
