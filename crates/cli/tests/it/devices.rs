//! `ferroce devices`, `devinfo` and `discover`: runs the binary.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, success};

fn ferroce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ferroce")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&ferroce(arguments))).unwrap()
}

#[test]
fn the_loopback_is_listed_as_a_device() {
    let text = stdout(&ferroce(&["devices"]));
    let line = text.lines().find(|line| line.starts_with("ferroce_lo ")).unwrap();
    for part in [" lo ", " active ", " 4096 ", "127.0.0.1"] {
        assert!(line.contains(part), "{text}");
    }
    let devices = json(&["devices", "--json"]);
    let lo = &devices["devices"][0];
    assert_eq!((&lo["name"], &lo["interface"]), (&"ferroce_lo".into(), &"lo".into()));
    assert_eq!(lo["gids"][0]["gid"], "::ffff:127.0.0.1");
}

#[test]
fn devinfo_has_the_fields_of_ibv_devinfo() {
    let text = stdout(&ferroce(&["devinfo", "lo"]));
    for line in [
        "hca_id: ferroce_lo",
        "transport: InfiniBand (0)",
        "phys_port_cnt: 1",
        "state: PORT_ACTIVE (4)",
        "max_mtu: 4096 (5)",
        "active_mtu: 4096 (5)",
        "sm_lid: 0",
        "port_lid: 1",
        "port_lmc: 0x00",
        "link_layer: Ethernet",
    ] {
        let found = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ") == line;
        assert!(text.lines().any(found), "{line}: {text}");
    }
    for field in ["fw_ver:", "node_guid:", "sys_image_guid:", "vendor_id:", "vendor_part_id:"] {
        assert!(text.contains(field), "{field}: {text}");
    }
    assert!(!text.contains("GID["), "{text}");
    let verbose = stdout(&ferroce(&["devinfo", "-v", "ferroce_lo"]));
    for part in ["max_qp:", "max_mr_size:", "max_cqe:", "GID[  0]:", "::ffff:127.0.0.1, RoCE v2"] {
        assert!(verbose.contains(part), "{part}: {verbose}");
    }
}

#[test]
fn devinfo_reports_json() {
    let all = json(&["devinfo", "--json"]);
    let one = json(&["devinfo", "--json", "lo"]);
    assert_eq!(all["devices"][0], one["devices"][0]);
    let lo = &one["devices"][0];
    assert_eq!(lo["hca_id"], "ferroce_lo");
    assert!(lo["limits"]["max_qp"].as_u64().unwrap() > 1000);
    assert_eq!(lo["ports"][0]["gids"][0]["gid"], "::ffff:127.0.0.1");
}

#[test]
fn a_missing_device_names_the_remedy() {
    let output = ferroce(&["devinfo", "nowhere0"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("nowhere0") && text.contains("ferroce devices"), "{text}");
}

#[test]
fn discover_finds_a_responding_host() {
    let port = (10_000 + std::process::id() % 10_000).to_string();
    let capture = std::env::temp_dir().join(format!("ferroce-discover-{port}.pcapng"));
    let mut responder = Command::new(env!("CARGO_BIN_EXE_ferroce"))
        .args(["discover", "--answer", "--timeout", "60s", "--port", &port, "--capture"])
        .arg(&capture)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(responder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("answering on "), "{line}");
    let text = stdout(&ferroce(&["discover", "127.0.0.1", "--port", &port]));
    let found = json(&["discover", "--json", "--timeout", "500ms", "--port", &port, "127.0.0.1"]);
    responder.kill().unwrap();
    responder.wait().unwrap();
    // The capture is complete although the process was killed.
    let captured = json(&["analyze", "--json", capture.to_str().unwrap()]);
    std::fs::remove_file(capture).unwrap();
    assert!(captured["files"][0]["packets"].as_u64().unwrap() >= 2, "{captured}");
    assert!(text.contains("127.0.0.1  ferroce_lo "), "{text}");
    assert!(text.contains("RC UC UD XRC"), "{text}");
    let host = &found["hosts"][0];
    assert_eq!(host["address"], "127.0.0.1");
    assert_eq!(host["transports"], serde_json::json!(["RC", "UC", "UD", "XRC"]));
    assert_eq!(host["id"], responder.id());
    assert!(host["round_trip_ns"].as_u64().unwrap() > 0);
}

/// A host with an Ethernet interface. `ferroce perf` and `workload` set up queue pairs without the connection manager.
const BESIDE_ETHERNET: &str = r#"
    set -e
    ip link add eth0 type veth peer name other || exit 77
    ip link set eth0 addrgenmode none up
    ip link set other addrgenmode none up
    ip address add 192.0.2.1/24 dev eth0
    "$1" devices
    "$1" demo --capture cm.pcapng
    "$1" demo --set-up exchange --capture exchange.pcapng
    "$1" perf write bw --duration 60min >perf.txt &
    perf=$!
    trap "kill $perf" EXIT
    until "$1" stat --json --pid $perf | tee stat.json | grep -q '"queue_pairs": \[$'; do :; done
    "$1" top --once --interval 10ms --pid $perf
    "$1" devinfo
"#;

#[test]
fn all_commands_have_one_device_for_the_loopback_addresses() {
    let scratch = Scratch::new("one-device");
    let arguments = ["-c", BESIDE_ETHERNET, "sh", FERROCE];
    let Some(output) = scratch.in_namespace("sh", &arguments) else { return };
    if output.status.code() == Some(77) {
        return ferroce_test_support::skip("cannot create a veth pair");
    }
    let text = success(&output);
    let published = std::fs::read_to_string(scratch.path("stat.json")).unwrap();
    assert!(!text.contains("ferroce_lo") && !published.contains("ferroce_lo"), "{text}{published}");
    for part in [
        "127.0.0.1 and ::1 belong to ferroce_eth0.",
        "ADDR_RESOLVED: routed through ferroce_eth0",
        "Open ferroce_eth0",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(published.contains("ferroce_eth0"), "{published}");
    for capture in ["cm.pcapng", "exchange.pcapng"] {
        let bytes = std::fs::read(scratch.path(capture)).unwrap();
        let names = |name: &[u8]| bytes.windows(name.len()).any(|found| found == name);
        assert!(names(b"ferroce_eth0") && !names(b"ferroce_lo"), "{capture}");
    }
}
