//! `--capture`: what is in the file when a command ends, fails or is interrupted.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use ferroce_test_support as _;
use ferroce_trace::analysis::{FileReport, Options, analyze};
use serde_json::Value;
use support::Server;

const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");

const EARLIER: &[u8] = b"a capture that somebody has kept";

/// A directory of one test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("ferroce-captures-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(FERROCE);
        command.args(arguments).current_dir(&self.0).stdin(Stdio::null());
        command.env("LC_ALL", "C.UTF-8").env_remove("FERROCE_CAPTURE");
        command
    }

    fn ferroce(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    fn report(&self, name: &str) -> FileReport {
        let file = fs::File::open(self.path(name)).unwrap();
        analyze(name, file, &Options::default(), &mut |_| {})
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn success(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A server that listens and captures.
fn server(scratch: &Scratch, more: &[&str]) -> Server {
    let arguments = ["server", "--json", "--listen", "127.0.0.1:0", "--capture", "server.pcapng"];
    Server::start(&mut scratch.command(&[&arguments[..], more].concat()))
}

fn send_signal(server: &Server, signal: &str) {
    let kill = Command::new("kill").args([signal, &server.child.id().to_string()]).status();
    assert!(kill.unwrap().success());
}

/// What the server says of its capture is what is in the file.
fn check(scratch: &Scratch, said: &Value) {
    let report = scratch.report("server.pcapng");
    assert_eq!(said["path"], "server.pcapng");
    assert_eq!(said["packets"], report.packets, "{said}");
    assert_eq!((&said["dropped"], report.dropped), (&0.into(), 0), "{said}");
    assert_eq!(said["complaint"], Value::Null);
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
        // All packets until now: no time has passed in which they would have been written by themselves.
        let said = server.event("capture");
        assert_eq!(server.child.wait().unwrap().code(), Some(128 + number));
        check(&scratch, &said);
    }
}

#[test]
fn a_server_that_ends_says_what_it_captured() {
    let scratch = Scratch::new("once");
    let mut server = server(&scratch, &["--once"]);
    success(&scratch.ferroce(&["client", &server.address, "write-read"]));
    server.event("connected");
    server.event("left");
    let said = server.event("capture");
    assert!(server.child.wait().unwrap().success());
    check(&scratch, &said);
}

#[test]
fn a_capture_that_fails_leaves_what_is_there() {
    let scratch = Scratch::new("fails");
    fs::write(scratch.path("kept.pcapng"), EARLIER).unwrap();
    let server = server(&scratch, &[]);
    let listen = server.address.clone();
    for arguments in [
        &["demo", "--address", "192.0.2.1"][..],
        // Another process has the port.
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

/// Its packets are worth keeping, and so are those of the run before.
#[test]
fn a_demonstration_that_fails_half_way_keeps_both_captures() {
    let scratch = Scratch::new("half");
    fs::write(scratch.path("kept.pcapng"), EARLIER).unwrap();
    // More memory than the process may have, which shows when the connection is there.
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
fn a_success_takes_the_place_of_what_was_there() {
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

/// What is no file is written as it comes.
#[test]
fn a_fifo_gets_the_packets() {
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
