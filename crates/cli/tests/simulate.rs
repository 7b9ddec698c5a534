//! `ferroce simulate` with the real binary, and `ferroce analyze` on what it wrote.

use std::process::{Command, Output};

fn ferroce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ferroce")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_seed_runs_the_same_each_time() {
    let arguments = ["simulate", "--scenario", "lossy:0.05", "--seed", "7"];
    let (first, second) = (ferroce(&arguments), ferroce(&arguments));
    assert_eq!(first.status.code(), Some(0));
    assert_eq!(stdout(&first), stdout(&second));
    assert!(stdout(&first).starts_with("ferroce simulate --scenario lossy:0.05 --seed 7\n"));
    assert!(stdout(&first).contains("violations     0"), "{}", stdout(&first));
}

#[test]
fn many_seeds_end_with_their_number() {
    let output = ferroce(&["simulate", "--scenario", "clean", "--seed", "5", "--seeds", "20"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output).lines().last(), Some("20 seeds ran, 0 failed"));
    assert!(stdout(&output).contains("work requests succeeded"), "{}", stdout(&output));
}

const SEED: &str = "10";

#[test]
fn every_choice_is_in_the_line_that_repeats_it() {
    let options = [
        "--hosts",
        "3",
        "--connections",
        "5",
        "--requests",
        "6",
        "--service",
        "rc,ud",
        "--set-up",
        "cm",
        "--congestion",
        "dcqcn",
    ];
    let mut arguments = vec!["simulate", "--scenario", "crash", "--seed", "9"];
    arguments.extend(options);
    let output = ferroce(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let text = stdout(&output);
    assert_eq!(text.lines().next(), Some(&*format!("ferroce {}", arguments.join(" "))));
    assert!(text.contains("3 hosts, 5 connections of rc,ud"), "{text}");
    assert!(text.contains("set up: cm, congestion control: dcqcn"), "{text}");
}

#[test]
fn what_it_writes_is_diagnosed() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    for (scenario, expected) in [
        ("clean", &[][..]),
        ("lossy:0.03", &["retransmission"][..]),
        ("duplicating", &["duplicate"][..]),
    ] {
        let path = format!("{directory}/simulated-{}.pcapng", scenario.replace([':', '.'], "-"));
        // None of this seed's requests is one that must be refused.
        let mut arguments = vec!["simulate", "--scenario", scenario, "--seed", SEED];
        arguments.extend(["--service", "rc", "--capture", &path]);
        let output = ferroce(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        let output = ferroce(&["analyze", "--json", &path]);
        assert_eq!(output.status.code(), Some(0));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let file = &report["files"][0];
        assert_eq!(file["icrc"]["ok"], file["packets"], "{scenario}");
        assert_eq!(file["conversations"].as_array().unwrap().len(), 4, "{scenario}");
        let found = file["anomaly_counts"].as_object().unwrap();
        for kind in expected {
            assert!(found.contains_key(*kind), "{scenario}: {found:?}");
        }
        if expected.is_empty() {
            assert!(found.is_empty(), "{scenario}: {found:?}");
        }
    }
}

#[test]
fn bad_arguments_are_named() {
    let output = ferroce(&["simulate", "--scenario", "stormy"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("stormy"));
    for (option, value) in [("--service", "rd"), ("--set-up", "magic"), ("--congestion", "prayer")]
    {
        let output = ferroce(&["simulate", option, value]);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(value));
    }
    let output = ferroce(&["simulate", "--capture", "/no/such/directory/x.pcapng"]);
    assert_eq!(output.status.code(), Some(1));
}
