//! `--capture`: the content of the file after a command succeeded, failed or was interrupted.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, success, text};
use crate::support::server::Server;
use ferroce_trace::analysis::{Options, analyze};
use serde_json::Value;

const EARLIER: &[u8] = b"the capture of an earlier run";

/// Starts a server that writes a capture.
fn server(scratch: &Scratch, more: &[&str]) -> Server {
    let arguments = ["server", "--json", "--listen", "127.0.0.1:0", "--capture", "server.pcapng"];
    Server::start(&mut scratch.command(FERROCE, &[&arguments[..], more].concat()))
}

fn send_signal(server: &Server, signal: &str) {
    let kill = Command::new("kill").args([signal, &server.child.id().to_string()]).status();
    assert!(kill.unwrap().success());
}

/// Checks the capture event of a server against its file.
fn check_capture(scratch: &Scratch, event: &Value) {
    let report = scratch.report("server.pcapng");
    assert_eq!(event["path"], "server.pcapng");
    assert_eq!(event["packets"], report.packets, "{event}");
    assert_eq!((&event["dropped"], report.dropped), (&0.into(), 0), "{event}");
    assert_eq!(event["complaint"], Value::Null);
    assert!(report.packets > 10, "{}", report.packets);
    assert_eq!((report.icrc.ok, &report.problems[..]), (report.packets, &[][..]));
}

#[test]
fn the_capture_of_an_interrupted_server_is_complete() {
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let scratch = Scratch::new(&signal[1..]);
        let mut server = server(&scratch, &[]);
        success(&scratch.ferroce(&["client", &server.address, "imm", "--count", "5"]));
        server.event("connected");
        server.event("left");
        send_signal(&server, signal);
        // The signal arrives before the periodic write of the capture: its handler must write the rest.
        let event = server.event("capture");
        assert_eq!(server.child.wait().unwrap().code(), Some(128 + number));
        check_capture(&scratch, &event);
    }
}

#[test]
fn a_server_reports_its_capture_on_exit() {
    let scratch = Scratch::new("once");
    let mut server = server(&scratch, &["--once"]);
    success(&scratch.ferroce(&["client", &server.address, "write-read"]));
    server.event("connected");
    server.event("left");
    let event = server.event("capture");
    assert!(server.child.wait().unwrap().success());
    check_capture(&scratch, &event);
}

#[test]
fn a_failed_command_keeps_the_earlier_capture() {
    let scratch = Scratch::new("fails");
    fs::write(scratch.path("kept.pcapng"), EARLIER).unwrap();
    let server = server(&scratch, &[]);
    let listen = server.address.clone();
    for arguments in [
        &["demo", "--address", "192.0.2.1"][..],
        // The port is in use by another process.
        &["server", "--listen", &listen],
        &["client", "203.0.113.1"],
    ] {
        let output = scratch.ferroce(&[arguments, &["--capture", "kept.pcapng"]].concat());
        assert!(!output.status.success(), "{arguments:?}");
        let left = fs::read(scratch.path("kept.pcapng")).unwrap();
        assert_eq!(text(&left), text(EARLIER), "{arguments:?}");
        assert_eq!(scratch.files(), ["kept.pcapng", "server.pcapng"], "{arguments:?}");
    }
}

/// Keeps the packets of the failed run and those of the run before.
#[test]
fn a_demo_that_fails_midway_keeps_both_captures() {
    let scratch = Scratch::new("half");
    fs::write(scratch.path("kept.pcapng"), EARLIER).unwrap();
    // Exceeds the memory limit of the process, after the connection is established.
    let limited = "ulimit -v 700000; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, "sh", FERROCE, "demo", "--size", "1G"]);
    command.args(["--capture", "kept.pcapng"]).current_dir(&scratch.0).stdin(Stdio::null());
    let output = command.env_remove("FERROCE_CAPTURE").output().unwrap();
    assert!(!output.status.success(), "{}", text(&output.stdout));
    let left = fs::read(scratch.path("kept.pcapng")).unwrap();
    assert_eq!(text(&left), text(EARLIER));
    let errors = text(&output.stderr);
    assert_eq!(scratch.files(), ["kept.pcapng", "kept.pcapng.new"], "{errors}");
    assert!(scratch.report("kept.pcapng.new").packets > 0);
    assert!(errors.contains("kept.pcapng.new; the one before stays"), "{errors}");
}

#[test]
fn a_successful_command_replaces_the_earlier_capture() {
    let scratch = Scratch::new("success");
    fs::write(scratch.path("kept.pcapng"), EARLIER).unwrap();
    std::os::unix::fs::symlink("kept.pcapng", scratch.path("link.pcapng")).unwrap();
    success(&scratch.ferroce(&["demo", "--capture", "link.pcapng"]));
    assert!(scratch.report("kept.pcapng").packets > 20);
    assert_eq!(scratch.files(), ["kept.pcapng", "link.pcapng"]);
    let link = fs::symlink_metadata(scratch.path("link.pcapng")).unwrap();
    assert!(link.is_symlink(), "a link stays a link");
    success(&scratch.ferroce(&["simulate", "--capture", "kept.pcapng", "--requests", "3"]));
    assert!(scratch.report("kept.pcapng").packets > 3);
    assert_eq!(scratch.files(), ["kept.pcapng", "link.pcapng"]);
}

/// A path that is not a regular file is written directly, not through a temporary file.
#[test]
fn a_fifo_receives_the_packets() {
    let scratch = Scratch::new("fifo");
    assert!(Command::new("mkfifo").arg(scratch.path("fifo")).status().unwrap().success());
    let fifo = scratch.path("fifo");
    let reader = std::thread::spawn(move || fs::read(fifo).unwrap());
    let mut server = server(&scratch, &["--once"]);
    success(&scratch.ferroce(&["client", &server.address, "write-read", "--capture", "fifo"]));
    server.event("connected");
    let bytes = reader.join().unwrap();
    let report = analyze("fifo", &bytes[..], &Options::default(), &mut |_| {});
    assert!(report.packets > 10, "{}", report.packets);
    assert_eq!((report.icrc.ok, &report.problems[..]), (report.packets, &[][..]));
}
