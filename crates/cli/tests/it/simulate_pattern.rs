//! `ferroce simulate --pattern`: runs the binary.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn ferroce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ferroce")).arg("simulate").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A file in the directory of the tests.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn a_pattern_prints_its_results() {
    let output = ferroce(&["--pattern", "incast", "--hosts", "3", "--flow-size", "64K"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let text = stdout(&output);
    for row in [
        "  experiment       incast, 3 hosts, star, dcqcn, seed 0\n",
        "  flows            2 flows, 131 kB, all succeeded\n",
        "  completion time  p50 ",
        "  fairness         ",
        "  goodput          ",
        "  longest queue    max ",
        "  drops            0 (none)\n",
        "  retransmissions  0; 0 sequence NAKs, 0 timeouts\n",
        " ns each\n",
    ] {
        assert!(text.contains(row), "{row}: {text}");
    }
}

#[test]
fn a_seed_gives_the_same_json() {
    let arguments = |seed: &'static str| {
        let loss = ["--loss", "0.01", "--flow-size", "64K", "--seed", seed, "--json"];
        let network = ["--pattern", "permutation", "--topology", "leaf-spine", "--hosts", "20"];
        [&network[..], &loss[..]].concat()
    };
    let (first, second) = (ferroce(&arguments("7")), ferroce(&arguments("7")));
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    assert_eq!(stdout(&first), stdout(&second));
    assert_ne!(stdout(&first), stdout(&ferroce(&arguments("8"))));
}

#[test]
fn json_has_the_documented_fields() {
    let output = ferroce(&[
        "--pattern",
        "incast",
        "--hosts",
        "5",
        "--congestion",
        "none",
        "--buffer",
        "32K",
        "--flow-size",
        "128K",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "ferroce-simulate-pattern/1");
    let experiment = &document["experiment"];
    assert_eq!(experiment["pattern"], "incast");
    assert_eq!((&experiment["hosts"], &experiment["buffer"]), (&5.into(), &32_768.into()));
    assert_eq!((&document["flow_count"], &document["failed"]), (&4.into(), &0.into()));
    assert_eq!(document["flows"].as_array().unwrap().len(), 4);
    assert_eq!(document["flows"][0]["status"], "Success");
    for field in ["time_ns", "events", "retransmitted"] {
        assert!(document[field].as_u64().unwrap() > 0, "{field}");
    }
    for field in ["fairness", "goodput_bps", "amplification"] {
        assert!(document[field].as_f64().unwrap() > 0.0, "{field}");
    }
    let time = |name: &str| document["completion_ns"][name].as_u64().unwrap();
    assert!(time("p50") <= time("p99") && time("p99") <= time("max"));
    assert_eq!(document["queue"]["port"], "switch to host0");
    assert!(document["queue"]["max_bytes"].as_u64().unwrap() <= 32_768);
    assert!(document["packets"]["dropped"]["queue full"].as_u64().unwrap() > 0);
    let documentation = include_str!("../../../../docs/simulator.md");
    for field in document.as_object().unwrap().keys() {
        assert!(documentation.contains(&format!("`{field}`")), "{field} is not documented");
    }
}

#[test]
fn failed_flows_are_a_failure() {
    let arguments = ["--pattern", "incast", "--hosts", "2", "--loss", "1", "--flow-size", "1K"];
    let output = ferroce(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("1 flow, 1,024 B, 1 failed\n"), "{}", stdout(&output));
}

#[test]
fn charts_and_captures_are_written() {
    let (svg, capture) = (file("pattern.svg"), file("pattern.pcapng"));
    let (svg, capture) = (svg.to_str().unwrap(), capture.to_str().unwrap());
    let output = ferroce(&[
        "--pattern",
        "storage",
        "--hosts",
        "4",
        "--flow-size",
        "16K",
        "--svg",
        svg,
        "--capture",
        capture,
        "--capture-link",
        "host1",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let chart = fs::read_to_string(svg).unwrap();
    assert!(chart.starts_with("<svg ") && chart.contains("longest queue"), "{chart}");
    let analyze = [&["analyze", "--json", capture][..]].concat();
    let output = Command::new(env!("CARGO_BIN_EXE_ferroce")).args(analyze).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let icrc = &report["files"][0]["icrc"];
    assert!(icrc["ok"].as_u64().unwrap() > 100, "{icrc}");
    assert_eq!(icrc["bad"], 0, "{icrc}");
}

/// What leaves one leaf for the only spine comes from its hosts, and what comes back goes to them.
#[test]
fn a_link_between_switches_is_captured() {
    let capture = file("trunk.pcapng");
    let capture = capture.to_str().unwrap();
    let network = ["--topology", "leaf-spine", "--hosts", "8", "--hosts-per-leaf", "4"];
    let pattern =
        ["--pattern", "all-to-all", "--flow-size", "16K", "--spines", "1", "--ecn", "off"];
    let link = ["--capture", capture, "--capture-link", "leaf1-spine0"];
    let output = ferroce(&[&pattern[..], &network, &link].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut analyze = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    let output = analyze.args(["analyze", "--json", capture]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = &report["files"][0];
    assert_eq!((&file["icrc"]["bad"], &file["anomalies"]), (&0.into(), &Value::Array(vec![])));
    // Four hosts on each side, so 16 pairs use the link, and none of the others.
    assert_eq!(file["conversations_total"], 16, "{file}");
    let missing = ferroce(
        &[&pattern[..], &network, &["--capture", capture, "--capture-link", "leaf2-spine0"]]
            .concat(),
    );
    let said = stderr(&missing);
    assert!(said.contains("the last leaf is 1, the last spine 0"), "{said}");
}

#[test]
fn a_file_describes_an_experiment() {
    let path = file("experiment.toml");
    let text = "pattern = \"permutation\"\ntopology = \"leaf-spine\"\nhosts = 12\nspines = 2\n\
                link-speed = \"100G\"\nloss = 0.001\nflow-size = \"32K\"\ncongestion = \"window\"\n";
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    // Options have precedence.
    let output = ferroce(&["--experiment", path, "--hosts", "10", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let experiment = &document["experiment"];
    assert_eq!((&experiment["hosts"], &experiment["spines"]), (&10.into(), &2.into()));
    assert_eq!(experiment["link_speed_bps"], 100_000_000_000_u64);
    assert_eq!((&experiment["loss"], &experiment["congestion"]), (&0.001.into(), &"window".into()));
}

#[test]
fn errors_in_a_file_name_line_and_column() {
    for (name, text, problem) in [
        ("speed", "pattern = \"incast\"\nlink-speed = \"fast\"\n", "line 2, column 14"),
        ("key", "pattern = \"incast\"\nhosts = 4\nhots = 4\n", "line 3, column 1"),
        ("syntax", "pattern = \n", "line 1, column"),
        ("name", "pattern = \"in-cast\"\n", "choose one of incast"),
        ("none", "hosts = 4\n", "there is no pattern"),
        ("range", "pattern = \"incast\"\nhosts = 1\n", "hosts: must be from 2 to 1024"),
    ] {
        let path = file(&format!("wrong-{name}.toml"));
        fs::write(&path, text).unwrap();
        let output = ferroce(&["--experiment", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let message = stderr(&output);
        assert!(message.contains(problem), "{name}: {message}");
        assert!(message.contains(&format!("wrong-{name}.toml: ")), "{message}");
    }
}

#[test]
fn wrong_arguments_are_explained() {
    for (arguments, problem) in [
        (&["--pattern", "in-cast"][..], "\"in-cast\" is not a pattern; choose one of incast, "),
        (&["--pattern", "incast", "--scenario", "clean"], "cannot be used with"),
        (&["--pattern", "incast", "--seeds", "2"], "cannot be used with"),
        (&["--spines", "3"], "--pattern <NAME>|--experiment <FILE>"),
        (&["--pattern", "incast", "--topology", "ring"], "choose one of pair, star, leaf-spine"),
        (&["--pattern", "incast", "--topology", "pair", "--hosts", "5"], "a pair has 2 hosts"),
        (&["--pattern", "incast", "--mtu", "1500"], "mtu: must be 256, 512, 1024, 2048 or 4096"),
        (&["--pattern", "incast", "--buffer", "1K"], "buffer: must hold a packet"),
        (&["--pattern", "incast", "--ecn", "9K:1K:0.1"], "KMIN must not exceed KMAX"),
        (&["--pattern", "incast", "--link-speed", "40"], "such as 100G or 2500M"),
        (&["--pattern", "incast", "--loss", "2"], "not a probability from 0 to 1"),
        (&["--experiment", "/no/such/file.toml"], "/no/such/file.toml: No such file"),
        (
            &["--pattern", "incast", "--capture", "x.pcapng", "--capture-link", "host9"],
            "there is no host 9; the last is 8",
        ),
        (
            &["--pattern", "incast", "--capture", "x.pcapng", "--capture-link", "leaf0-spine0"],
            "only leaf-spine has such a link",
        ),
        (
            &["--pattern", "incast", "--capture", "x.pcapng", "--capture-link", "spine0"],
            "such as host3 or leaf0-spine1",
        ),
    ] {
        let output = ferroce(arguments);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert!(stderr(&output).contains(problem), "{arguments:?}: {}", stderr(&output));
    }
}
