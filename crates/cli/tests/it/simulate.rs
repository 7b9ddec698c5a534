//! `ferroce simulate`, and `ferroce analyze` on the capture it writes: runs the binary.

use std::io::Read;
use std::process::{Command, Output, Stdio};

use ferroce_test_support::skip;
use serde_json::Value;

fn ferroce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ferroce")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_output() {
    let arguments = ["simulate", "--scenario", "lossy:0.05", "--seed", "7"];
    let (first, second) = (ferroce(&arguments), ferroce(&arguments));
    assert_eq!(first.status.code(), Some(0));
    assert_eq!(stdout(&first), stdout(&second));
    assert!(stdout(&first).starts_with("ferroce simulate --scenario lossy:0.05 --seed 7\n"));
    assert!(stdout(&first).contains("violations     0"), "{}", stdout(&first));
}

/// The command that a run of processes on machines prints repeats it.
#[test]
fn processes_of_machines_are_simulated_and_repeated() {
    let arguments = ["simulate", "--scenario", "machines", "--seed", "3", "--hosts", "3"];
    let first = ferroce(&arguments);
    let text = stdout(&first);
    assert_eq!(first.status.code(), Some(0), "{text}");
    assert!(text.contains(" through transmit queues, "), "{text}");
    let command = text.lines().next().unwrap();
    assert_eq!(command, format!("ferroce {}", arguments.join(" ")));
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    assert_eq!(stdout(&ferroce(&words)), text);
}

#[test]
fn several_seeds_end_with_a_summary() {
    let output = ferroce(&["simulate", "--scenario", "clean", "--seed", "5", "--seeds", "20"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output).lines().last(), Some("20 seeds ran, 0 failed"));
    assert!(stdout(&output).contains("work requests succeeded"), "{}", stdout(&output));
}

/// One request of the workload is refused, which flushes the others of its connection: it was not the loss.
#[test]
fn a_request_that_is_invalid_on_purpose_is_named() {
    let text = stdout(&ferroce(&["simulate", "--scenario", "clean", "--seed", "8"]));
    let refused = "1 invalid on purpose, and refused as it should be: RemoteInvalidRequest\n";
    assert!(text.contains(refused), "{text}");
    assert!(text.contains("12 flushed because of such a request\n"), "{text}");
    assert!(!text.contains("ended with"), "{text}");
}

#[test]
fn counts_of_one_are_singular() {
    let output =
        ferroce(&["simulate", "--scenario", "clean", "--connections", "1", "--service", "rc"]);
    assert!(stdout(&output).contains("2 hosts, 1 connection of rc\n"), "{}", stdout(&output));
}

#[test]
fn json_reports_every_run_and_the_totals() {
    let arguments = ["simulate", "--scenario", "lossy:0.05", "--seed", "5", "--seeds", "3"];
    let output = ferroce(&[&arguments[..], &["--json"]].concat());
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "ferroce-simulate/1");
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for (run, seed) in runs.iter().zip(5..) {
        assert_eq!(run["command"], format!("ferroce simulate --scenario lossy:0.05 --seed {seed}"));
        assert_eq!((&run["seed"], &run["violations"]), (&seed.into(), &serde_json::json!([])));
        assert_eq!(run["workload"]["connections"], 4);
        assert!(run["frames"]["dropped"]["lost"].as_u64().unwrap() > 0, "{run}");
    }
    let sum = |name: &str| runs.iter().map(|run| run[name].as_u64().unwrap()).sum::<u64>();
    let totals = &document["totals"];
    assert_eq!((&totals["runs"], &totals["failed"]), (&3.into(), &0.into()));
    assert_eq!(totals["requests"], sum("requests"));
    assert_eq!(totals["succeeded"], sum("succeeded"));

    // The same run as text.
    let text = stdout(&ferroce(&["simulate", "--scenario", "lossy:0.05", "--seed", "5"]));
    let hash = runs[0]["hash"].as_str().unwrap();
    assert!(text.contains(&format!("  hash           {hash}\n")), "{text}");
}

#[test]
fn json_is_valid_when_the_capture_cannot_be_written() {
    let output = ferroce(&["simulate", "--json", "--capture", "/no/such/directory/x.pcapng"]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&document["runs"], &document["totals"]["runs"]),
        (&serde_json::json!([]), &0.into())
    );
}

/// Runs seeds without end on a terminal and waits for the progress bar, so that slow machines pass too.
#[test]
fn several_seeds_show_progress_on_a_terminal() {
    if Command::new("script").arg("--version").output().is_err() {
        return skip("script(1) is not installed");
    }
    let ferroce = env!("CARGO_BIN_EXE_ferroce");
    // Standard output is redirected: the progress bar goes to standard error, the terminal.
    let command = format!("exec {ferroce} simulate --scenario clean --seeds 99999999 > /dev/null");
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut terminal = child.stdout.take().unwrap();
    let (mut terminal_output, mut block) = (String::new(), [0; 1024]);
    while !terminal_output.contains(" left") {
        let count = terminal.read(&mut block).unwrap();
        assert!(count > 0, "it ended: {terminal_output}");
        terminal_output.push_str(&String::from_utf8_lossy(&block[..count]));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        terminal_output.contains("seeds  ") && terminal_output.contains(" of 99,999,999  "),
        "{terminal_output}"
    );
}

const SEED: &str = "10";

#[test]
fn the_replay_command_includes_every_option() {
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
        "--posting",
        "lists",
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
fn analyze_diagnoses_the_capture() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    for (scenario, expected) in [
        ("clean", &[][..]),
        ("lossy:0.03", &["retransmission"][..]),
        ("duplicating", &["duplicate"][..]),
    ] {
        let path = format!("{directory}/simulated-{}.pcapng", scenario.replace([':', '.'], "-"));
        // This seed has no invalid request.
        let mut arguments = vec!["simulate", "--scenario", scenario, "--seed", SEED];
        arguments.extend(["--service", "rc", "--capture", &path]);
        let output = ferroce(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        let output = ferroce(&["analyze", "--json", &path]);
        assert_eq!(output.status.code(), Some(0));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
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
fn bad_arguments_are_named_in_the_error() {
    let output = ferroce(&["simulate", "--scenario", "stormy"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("stormy"));
    for (option, value) in [
        ("--service", "rd"),
        ("--set-up", "magic"),
        ("--congestion", "prayer"),
        ("--posting", "never"),
    ] {
        let output = ferroce(&["simulate", option, value]);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(value));
    }
    let output = ferroce(&["simulate", "--capture", "/no/such/directory/x.pcapng"]);
    assert_eq!(output.status.code(), Some(1));
}
