//! `ferroce demo`: runs the binary and checks its output and its capture.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, failure, has_ipv6, success, text};
use ferroce_test_support::skip;
use ferroce_trace::analysis::{Options, analyze};
use serde_json::Value;

/// Probes of a busy host, and their answers.
const PROBES: [&str; 3] = ["probe", "repeated_acknowledge", "repeated_response"];

/// Checks that every ICRC is right, every operation occurs, and `analyze` finds no problem and no anomaly but probes.
fn check_capture(path: &Path) {
    let report = analyze("demo", fs::File::open(path).unwrap(), &Options::default(), &mut |_| {});
    assert_eq!(report.icrc.bad, 0);
    assert_eq!(report.icrc.ok, report.packets);
    assert!(report.packets > 20, "{}", report.packets);
    assert_eq!(report.problems, []);
    let mut kinds = report.anomaly_counts.keys();
    assert!(kinds.all(|kind| PROBES.contains(kind)), "{:?}", report.anomalies);
    for operation in ["RDMA_WRITE", "RDMA_READ", "SEND", "COMPARE_SWAP", "FETCH_ADD"] {
        let found = report.opcodes.keys().any(|name| name.contains(&format!("RC_{operation}")));
        assert!(found, "no {operation} in {:?}", report.opcodes);
    }
}

#[test]
fn the_demo_prints_every_step() {
    let scratch = Scratch::new("steps");
    let Some(output) = scratch.in_namespace(FERROCE, &["demo"]) else { return };
    let out = success(&output);
    for part in [
        "A server and a client process on 127.0.0.1: 16 KiB, connected by the connection manager",
        "[client cm] ADDR_RESOLVED",
        "[client cm] ROUTE_RESOLVED",
        "[client dump_qp] QP dump: qpn=0x",
        " state=INIT mtu=- sq_psn=- rq_psn=- ",
        "[server dump_mr] MR(remote): addr=0x",
        "[client main] Got remote addr=0x",
        "SGE(RDMA_WRITE): addr=0x",
        "opcode=RDMA_WRITE signaled=1 num_sge=1 remote_addr=0x",
        "READ complete: 16384 of 16384 bytes match",
        "[server main] 16384 of 16384 bytes match the client's pattern",
        "[server main] RECV complete: 'client-sent-this'",
        "FETCH_ADD complete: original value 4791",
        "[client cm] DISCONNECTED",
        "│◀══ CM REP",
        "├─── RC RDMA READ request",
        "every ICRC right, no anomaly",
        "all 32,808 bytes verified",
    ] {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }
    assert!(!out.contains('\u{1b}'), "colour without a terminal");
    check_capture(&scratch.path("demo.pcapng"));
    // The ladder's title, its rows and the summary count the same packets.
    let counted = |before: &str| {
        let rest = out.split(before).nth(1).unwrap_or_else(|| panic!("no {before:?} in\n{out}"));
        rest.split_once(" packets").map(|(count, _)| count.to_owned())
    };
    let is_packet =
        |line: &&str| line.contains("├───") || line.contains("├═══") || line.contains("│◀");
    let rows = out.lines().filter(is_packet).count().to_string();
    assert_eq!(counted("On the wire, connection (RC): "), Some(rows.clone()));
    assert_eq!(counted("  demo.pcapng: "), Some(rows));
}

#[test]
fn the_demo_reports_json() {
    let scratch = Scratch::new("json");
    let arguments = ["demo", "--json", "--size", "100000", "--capture", "here.pcapng"];
    let Some(output) = scratch.in_namespace(FERROCE, &arguments) else { return };
    let json: Value = serde_json::from_str(&success(&output)).unwrap();
    assert_eq!(json["schema"], "ferroce-demo-1");
    assert_eq!(json["verified"], true);
    assert_eq!(json["verified_bytes"], 200_040);
    assert_eq!(json["operations"].as_array().unwrap().len(), 7);
    assert!(json["steps"].as_array().unwrap().len() > 50);
    let capture = &json["capture"];
    assert_eq!((&capture["path"], &capture["icrc_bad"]), (&"here.pcapng".into(), &0.into()));
    check_capture(&scratch.path("here.pcapng"));
    // The capture contains payload and keys: only the owner may read it.
    let mode = fs::metadata(scratch.path("here.pcapng")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// An address has one set-up exchange server across all processes; the namespace keeps other tests away from it.
#[test]
fn the_set_up_exchange_reports_the_duration_of_each_phase() {
    let scratch = Scratch::new("exchange");
    let run = |more: &[&str]| {
        let arguments = [&["demo", "--set-up", "exchange"], more].concat();
        scratch.in_namespace(FERROCE, &arguments).map(|output| success(&output))
    };
    let Some(out) = run(&[]) else { return };
    for part in [
        "[client setup] DEVICE_DISCOVERY_REQ to 127.0.0.1",
        "│◀── DEVICE_DISCOVERY_RESP",
        "├─── CONNECTION_CONFIRM",
        "phase 4 Connection",
        "all 32,808 bytes verified",
    ] {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }
    let json: Value = serde_json::from_str(&run(&["--json"]).unwrap()).unwrap();
    assert_eq!((&json["set_up"], &json["verified"]), (&"exchange".into(), &true.into()));
    let phases = json["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 4, "{phases:?}");
    assert!(phases.iter().all(|phase| phase["duration_ns"].as_u64().unwrap() > 0));
}

#[test]
fn the_demo_runs_over_ipv6() {
    if has_ipv6() {
        let scratch = Scratch::new("ipv6");
        let Some(output) = scratch.in_namespace(FERROCE, &["demo", "--address", "::1"]) else {
            return;
        };
        let out = success(&output);
        assert!(out.contains("all 32,808 bytes verified"), "{out}");
        check_capture(&scratch.path("demo.pcapng"));
    }
}

#[test]
fn the_demo_writes_its_capture_elsewhere_if_the_directory_is_not_writable() {
    let scratch = Scratch::new("unwritable");
    // A directory of this name stops even root from creating the file.
    fs::create_dir(scratch.path("demo.pcapng")).unwrap();
    let Some(output) = scratch.in_namespace(FERROCE, &["demo"]) else { return };
    assert!(success(&output).contains("all 32,808 bytes verified"));
    let note = text(&output.stderr);
    assert!(note.contains("cannot write demo.pcapng here"), "{note}");
    let elsewhere = PathBuf::from(note.trim_end().rsplit(' ').next().unwrap());
    check_capture(&elsewhere);
    fs::remove_file(elsewhere).unwrap();
}

/// A device file can neither be read back nor be removed. The test names a link to it, so that a failure removes only the
/// link.
#[test]
fn a_capture_path_that_is_not_a_regular_file_is_kept() {
    let scratch = Scratch::new("null");
    let link = scratch.path("null");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    let out = success(&scratch.ferroce(&["demo", "--capture", "null"]));
    assert!(out.contains("all 32,808 bytes verified"), "{out}");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("/dev/null"));
}

#[test]
fn invalid_demo_options_are_refused_before_connecting() {
    let scratch = Scratch::new("errors");
    let nowhere = failure(&scratch.ferroce(&["demo", "--capture", "nowhere/demo.pcapng"]));
    assert!(nowhere.contains("cannot write the capture nowhere/demo.pcapng"), "{nowhere}");
    fs::write(scratch.path("demo.pcapng"), "the capture of an earlier run").unwrap();
    let output = scratch.ferroce(&["demo", "--address", "192.0.2.1"]);
    assert_eq!(text(&output.stdout), "");
    let foreign = failure(&output);
    assert!(foreign.contains("no interface of this machine has the address"), "{foreign}");
    let left = fs::read(scratch.path("demo.pcapng")).unwrap();
    assert_eq!(text(&left), "the capture of an earlier run");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    let large = failure(&scratch.ferroce(&["demo", "--size", "2G"]));
    assert!(large.contains("limited to 1 GiB"), "{large}");
}

/// Shares the loopback with the processes of other tests and users, which start and exit meanwhile.
#[test]
fn the_demo_runs_on_a_shared_loopback() {
    let scratch = Scratch::new("shared");
    let out = success(&scratch.ferroce(&["demo"]));
    assert!(out.contains("all 32,808 bytes verified"), "{out}");
    assert!(out.contains("every ICRC right"), "{out}");
}

/// In a namespace, because processes of root may hold the port on the shared loopback.
#[test]
fn the_demo_runs_without_privileges() {
    let scratch = Scratch::new("nobody");
    // The user `nobody` may not have access to cargo's target directory.
    let program = scratch.path("ferroce");
    fs::copy(FERROCE, &program).unwrap();
    let program = program.to_str().unwrap();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
    let mut arguments: Vec<&str> = nobody.into();
    arguments.extend([program, "demo"]);
    if !scratch.run("setpriv", &[&nobody[..], &["true"]].concat()).status.success() {
        return skip("not allowed to become another user");
    }
    let Some(output) = scratch.in_namespace("setpriv", &arguments) else { return };
    let out = success(&output);
    assert!(out.contains("all 32,808 bytes verified"), "{out}");
    check_capture(&scratch.path("demo.pcapng"));
}

#[test]
fn wireshark_dissects_the_capture() {
    let scratch = Scratch::new("tshark");
    success(&scratch.ferroce(&["demo"]));
    let read = |filter: &str| {
        let output = Command::new("tshark")
            .args(["-r", "demo.pcapng", "-Y", filter])
            .current_dir(&scratch.0)
            .output();
        output.ok().map(|output| success(&output))
    };
    let Some(malformed) = read("_ws.malformed") else {
        return skip("tshark is not installed: run `make setup`");
    };
    assert_eq!(malformed, "");
    let all = read("infiniband").unwrap();
    assert!(all.lines().count() > 20, "{all}");
    assert!(all.contains("CM: ConnectRequest") && all.contains("RDMA Write"), "{all}");
}

#[test]
fn a_loopback_that_is_down_is_reported() {
    let scratch = Scratch::new("down");
    for (command, wanted) in
        [(&["demo"][..], "`ip link set lo up`"), (&["discover"], "no network interface is up")]
    {
        // A nested namespace, whose loopback is still down.
        let arguments = [&["-n", FERROCE], command].concat();
        let Some(output) = scratch.in_namespace("unshare", &arguments) else { return };
        let error = text(&output.stderr);
        assert!(error.contains(wanted), "{command:?}: {error}");
    }
}
