//! `ferroce capture`: runs the binary beside other processes of Ferroce.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use ferroce_test_support::skip;
use ferroce_trace::analysis::FileReport;
use ferroce_trace::file::CaptureReader;
use serde_json::Value;

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, failure, success, text};
use crate::support::server::Server;

/// A running `ferroce capture`, killed on drop.
struct Capture {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Capture {
    /// Starts it and waits until all running processes are captured.
    fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        let words = [&["capture"], arguments].concat();
        Self::of(scratch.command(FERROCE, &words).stdout(Stdio::piped()))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert!(line.contains("capturing to"), "{line}");
        Self { child, errors }
    }

    fn signal(&self, signal: &str) {
        signal_to(self.child.id(), signal);
    }

    /// Waits for its end, and returns what it said since the start.
    fn end(mut self) -> String {
        let mut rest = String::new();
        self.errors.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status} {rest}");
        rest
    }

    fn interrupt(self) -> String {
        self.signal("-INT");
        self.end()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal_to(process: u32, signal: &str) {
    let kill = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(kill.unwrap().success());
}

fn server(local: &str) -> Server {
    let mut command = Command::new(FERROCE);
    command.args(["server", "--json", "--listen", "127.0.0.1:0"]);
    Server::start(command.env("FERROCE_LOCAL", local).env_remove("FERROCE_CAPTURE"))
}

fn client(scratch: &Scratch, server: &Server, local: &str, arguments: &[&str]) -> Output {
    let words = [&["client", &server.address, "--quiet"], arguments].concat();
    scratch.command(FERROCE, &words).env("FERROCE_LOCAL", local).output().unwrap()
}

/// The frames of a file with their times and lengths on the wire.
fn frames(scratch: &Scratch, name: &str) -> Vec<(i64, u32, Vec<u8>)> {
    let mut reader = CaptureReader::new(File::open(scratch.path(name)).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        let time = record.timestamp.unwrap().as_nanoseconds();
        frames.push((time, record.original_len, record.data.to_vec()));
    }
    frames
}

/// Every packet is there, once. On a busy host there may be timeouts, and packets are then sent again.
fn check_clean(report: &FileReport) {
    assert_eq!((report.icrc.bad, report.dropped, &report.problems[..]), (0, 0, &[][..]));
    let wrong = ["missing_request", "missing_response", "capture_gap", "reordered", "duplicate"];
    let found: Vec<_> =
        report.anomalies.iter().filter(|anomaly| wrong.contains(&anomaly.kind.name())).collect();
    assert!(found.is_empty(), "{found:?}");
}

/// The capture has the packets of a process that ran before and of one that starts later, in both directions, each once, in
/// the order of time: the same as the later process's own capture of all it sends and receives.
fn check_two_processes(local: &str) {
    let scratch = Scratch::new(&format!("live-{local}"));
    let server = server(local);
    let capture = Capture::start(&scratch, &["-w", "all.pcapng"]);
    success(&client(
        &scratch,
        &server,
        local,
        &["imm", "--count", "30", "--capture", "own.pcapng"],
    ));
    success(&client(&scratch, &server, local, &["write-read", "--size", "100000"]));
    let said = capture.interrupt();
    assert!(said.contains("of 3 processes") && said.contains("none lost"), "{said}");
    let report = scratch.report("all.pcapng");
    check_clean(&report);
    let all = frames(&scratch, "all.pcapng");
    assert!(all.is_sorted_by_key(|(time, ..)| *time));
    let (mut own, mut first) = (frames(&scratch, "own.pcapng"), all);
    let bytes = |(_, _, frame): (i64, u32, Vec<u8>)| frame;
    // The first client is the one with a capture of its own.
    first.truncate(own.len());
    let mut own: Vec<_> = own.drain(..).map(bytes).collect();
    let mut first: Vec<_> = first.drain(..).map(bytes).collect();
    own.sort();
    first.sort();
    assert!(own.len() > 60 && own == first, "{} packets", own.len());
}

#[test]
fn two_processes_over_shared_memory_are_captured() {
    check_two_processes("memory");
}

#[test]
fn two_processes_over_sockets_are_captured() {
    check_two_processes("sockets");
}

#[test]
fn a_demo_is_captured_whole() {
    let scratch = Scratch::new("live-demo");
    let capture = Capture::start(&scratch, &["-w", "live.pcapng"]);
    success(&scratch.ferroce(&["demo", "--capture", "demo.pcapng"]));
    capture.interrupt();
    let (live, demo) = (scratch.report("live.pcapng"), scratch.report("demo.pcapng"));
    check_clean(&live);
    assert_eq!((live.opcodes, live.conversations_total), (demo.opcodes, demo.conversations_total));
}

#[test]
fn a_signal_a_count_and_a_time_end_it_with_a_valid_file() {
    let scratch = Scratch::new("live-end");
    let server = server("memory");
    let transfer = || success(&client(&scratch, &server, "memory", &["imm"]));
    let capture = Capture::start(&scratch, &["-w", "term.pcapng"]);
    transfer();
    capture.signal("-TERM");
    capture.end();
    check_clean(&scratch.report("term.pcapng"));
    let mut capture = Capture::start(&scratch, &["-w", "count.pcapng", "--count", "7", "--json"]);
    transfer();
    let mut out = String::new();
    capture.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&json["packets"], &json["dropped"]), (&7.into(), &0.into()), "{json}");
    capture.end();
    assert_eq!(scratch.report("count.pcapng").frames, 7);
    Capture::start(&scratch, &["-w", "time.pcapng", "--duration", "1s"]).end();
    // No packets, but a valid file.
    assert_eq!(frames(&scratch, "time.pcapng").len(), 0);
}

#[test]
fn a_pipe_is_written_and_its_end_is_no_failure() {
    let scratch = Scratch::new("live-pipe");
    let server = server("memory");
    let mut capture = Capture::start(&scratch, &["-w", "-"]);
    let pipe = capture.child.stdout.take().unwrap();
    success(&client(&scratch, &server, "memory", &["imm", "--count", "5"]));
    let mut reader = CaptureReader::new(pipe).unwrap();
    for number in 1..=5 {
        assert_eq!(reader.next_record().unwrap().unwrap().number, number);
    }
    drop(reader);
    success(&client(&scratch, &server, "memory", &["bulk", "--size", "1M"]));
    let said = capture.end();
    assert!(said.contains("none lost"), "{said}");
}

/// `ferroce capture -w - | ferroce analyze --live -`: the packets of a client are shown when it has ended, while the capture
/// goes on; the analysis follows when that ends.
fn check_live_analysis(local: &str) {
    let scratch = Scratch::new(&format!("live-analysis-{local}"));
    let server = server(local);
    let mut capture = Capture::start(&scratch, &["-w", "-", "--host", "127.0.0.1"]);
    let pipe = capture.child.stdout.take().unwrap();
    let mut command = scratch.command(FERROCE, &["analyze", "--live", "--json", "-"]);
    let mut analysis = command.stdin(pipe).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(analysis.stdout.take().unwrap()).lines();
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut total = 0;
    for name in ["one.pcapng", "two.pcapng"] {
        let arguments = ["imm", "--count", "20", "--capture", name];
        success(&client(&scratch, &server, local, &arguments));
        for _ in frames(&scratch, name) {
            total += 1;
            let event = events.next().expect("the analysis goes on");
            assert_eq!((&event["event"], &event["frame"]), (&"packet".into(), &total.into()));
            assert_eq!(event["icrc"], "ok", "{event}");
        }
    }
    assert!(total > 80, "{total}");
    let said = capture.interrupt();
    assert!(said.contains("none lost"), "{said}");
    let report = events.next().expect("the analysis at the end");
    assert_eq!(report["event"], "report", "{report}");
    let file = &report["files"][0];
    assert_eq!((&file["packets"], &file["roce_packets"]), (&total.into(), &total.into()));
    let connections = file["conversations"].as_array().unwrap().iter();
    let immediate = |it: &&Value| it["transport"] == "RC" && it["joined_by"] == "cm";
    assert_eq!(connections.filter(immediate).count(), 2, "{file}");
    assert!(events.next().is_none());
    assert!(analysis.wait().unwrap().success());
}

#[test]
fn a_live_analysis_of_processes_over_shared_memory() {
    check_live_analysis("memory");
}

#[test]
fn a_live_analysis_of_processes_over_sockets() {
    check_live_analysis("sockets");
}

#[test]
fn files_are_rotated_and_the_oldest_removed() {
    let scratch = Scratch::new("live-rotation");
    let server = server("memory");
    let arguments = ["-w", "r.pcapng", "--rotate-size", "2M", "--files", "3"];
    let capture = Capture::start(&scratch, &arguments);
    success(&client(&scratch, &server, "memory", &["bulk", "--size", "16M"]));
    capture.interrupt();
    let files = scratch.files();
    assert_eq!(files.len(), 3, "{files:?}");
    assert!(files.iter().all(|name| name.starts_with("r-0000") && name.ends_with(".pcapng")));
    assert!(!files.contains(&"r-00001.pcapng".to_owned()), "{files:?}");
    for name in &files {
        let report = scratch.report(name);
        assert_eq!((report.icrc.bad, report.dropped, report.problems.len()), (0, 0, 0), "{name}");
    }
    let refused = failure(&scratch.ferroce(&["capture", "-w", "x", "--files", "3"]));
    assert!(refused.contains("add --rotate-size or --rotate-time"), "{refused}");
}

#[test]
fn filters_and_the_snap_length_apply() {
    let scratch = Scratch::new("live-filter");
    let server = server("memory");
    let control = Capture::start(&scratch, &["-w", "control.pcapng", "--plane", "control"]);
    let writes = Capture::start(&scratch, &["-w", "w.pcapng", "--op", "write", "--snaplen", "60"]);
    let other = Capture::start(&scratch, &["-w", "other.pcapng", "--host", "192.0.2.7"]);
    success(&client(&scratch, &server, "memory", &["bulk", "--size", "100000"]));
    for capture in [control, writes, other] {
        capture.interrupt();
    }
    let report = scratch.report("control.pcapng");
    assert!(report.packets >= 4, "REQ, REP, RTU, DREQ");
    assert!(report.opcodes.keys().all(|opcode| opcode.contains("UD")), "{:?}", report.opcodes);
    let writes = frames(&scratch, "w.pcapng");
    assert_eq!(writes.len(), 100_000_usize.div_ceil(4096));
    assert!(writes.iter().all(|(_, original, frame)| frame.len() == 60 && *original > 1000));
    assert_eq!(frames(&scratch, "other.pcapng").len(), 0);
}

/// Processes go on when the collector is killed, also if it was stopped and they wait for it.
#[test]
fn a_killed_collector_disturbs_nobody() {
    let scratch = Scratch::new("live-killed");
    let server = server("memory");
    let mut capture = Capture::start(&scratch, &["-w", "a.pcapng", "--buffer", "64K"]);
    capture.signal("-STOP");
    let words = ["client", &server.address, "bulk", "--size", "16M", "--json"];
    let mut command = scratch.command(FERROCE, &words);
    let mut blocked = command.stdout(Stdio::piped()).spawn().unwrap();
    capture.child.kill().unwrap();
    capture.child.wait().unwrap();
    let mut out = String::new();
    blocked.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(blocked.wait().unwrap().success());
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["verified_bytes"], 16 << 20, "{json}");
    // A new capture finds the server again.
    let capture = Capture::start(&scratch, &["-w", "b.pcapng"]);
    success(&client(&scratch, &server, "memory", &["imm"]));
    let said = capture.interrupt();
    assert!(said.contains("of 2 processes"), "{said}");
    check_clean(&scratch.report("b.pcapng"));
}

/// With `drop`, a collector that does not keep up slows nobody, and the loss is in the file.
#[test]
fn dropped_packets_are_stated() {
    let scratch = Scratch::new("live-drop");
    let server = server("memory");
    let arguments = ["-w", "a.pcapng", "--buffer", "64K", "--capture-policy", "drop"];
    let capture = Capture::start(&scratch, &arguments);
    capture.signal("-STOP");
    // It ends although nobody takes the packets.
    success(&client(&scratch, &server, "memory", &["bulk", "--size", "4M"]));
    capture.signal("-CONT");
    let said = capture.interrupt();
    assert!(said.contains("packets are missing in the capture"), "{said}");
    let report = scratch.report("a.pcapng");
    assert!(report.dropped > 100 && report.problems.is_empty(), "{}", report.dropped);
    let analysis = text(&scratch.ferroce(&["analyze", "a.pcapng"]).stdout);
    assert!(analysis.contains("lost") || analysis.contains("dropped"), "{analysis}");
}

#[test]
fn another_user_gets_no_packets() {
    let scratch = Scratch::new("live-user");
    let mut command = scratch.command(FERROCE, &["capture", "-w", "theirs.pcapng"]);
    let allowed = command.uid(65534).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = allowed else {
        return skip("cannot start a process of another user");
    };
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let theirs = Capture { child, errors };
    assert!(line.contains("no process yet"), "{line}");
    let server = server("memory");
    let ours = Capture::start(&scratch, &["-w", "ours.pcapng"]);
    success(&client(&scratch, &server, "memory", &["imm"]));
    let said = ours.interrupt();
    assert!(said.contains("of 2 processes"), "{said}");
    let said = theirs.interrupt();
    assert!(said.contains("0 packets") && said.contains("of 0 processes"), "{said}");
}

#[test]
fn foreign_packets_on_an_interface_are_captured() {
    let scratch = Scratch::new("live-interface");
    let arguments = ["capture", "-i", "lo", "-w", "lo.pcapng", "--count", "2"];
    let mut command = scratch.command(FERROCE, &arguments);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    if line.contains("not permitted") {
        child.wait().unwrap();
        return skip("packet sockets are not permitted");
    }
    assert!(line.contains("from lo"), "{line}");
    let capture = Capture { child, errors };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (port, payload) in [(4790, "no"), (4791, "one"), (4792, "no"), (4791, "two"), (4791, "3")] {
        socket.send_to(payload.as_bytes(), ("127.0.0.1", port)).unwrap();
    }
    capture.end();
    let frames = frames(&scratch, "lo.pcapng");
    let payloads: Vec<_> = frames.iter().map(|(.., frame)| &frame[42..]).collect();
    assert_eq!(payloads, [b"one", b"two"]);
    let missing = failure(&scratch.ferroce(&["capture", "-i", "nothing0", "-w", "x.pcapng"]));
    assert!(missing.contains("no such interface"), "{missing}");
}

/// A file system of this size. Only this test sees it.
struct Disk(PathBuf);

impl Disk {
    /// `None`, after a skip, if that is not possible.
    fn mount(path: PathBuf, size: &str) -> Option<Self> {
        if !ferroce_test_support::namespace::is_own() {
            skip("no mount namespace of its own");
            return None;
        }
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size},mode=1777"), "none"]).arg(&path);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        Some(Self(path))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The capture ends with an error and a valid file that has as many packets as the error says; the program goes on.
#[test]
fn a_full_disk_ends_the_capture_and_nothing_else() {
    let scratch = Scratch::new("live-full");
    let full = failure(&scratch.ferroce(&["capture", "-w", "/dev/full"]));
    assert!(full.contains("/dev/full: cannot write the capture"), "{full}");
    std::fs::create_dir(scratch.path("disk")).unwrap();
    let Some(_disk) = Disk::mount(scratch.path("disk"), "2m") else { return };
    let server = server("memory");
    let mut capture = Capture::start(&scratch, &["-w", "disk/all.pcapng"]);
    let bulk = ["bulk", "--size", "4M", "--json"];
    let json = success(&client(&scratch, &server, "memory", &bulk));
    assert!(json.contains("\"verified_bytes\": 4194304"), "{json}");
    let mut said = String::new();
    capture.errors.read_to_string(&mut said).unwrap();
    assert_eq!(capture.child.wait().unwrap().code(), Some(1), "{said}");
    let report = scratch.report("disk/all.pcapng");
    assert!(report.packets > 10 && report.problems.is_empty(), "{:?}", report.problems);
    let wanted = [
        "disk/all.pcapng: cannot write the capture: No space left on device".to_owned(),
        format!("the capture ends after {} packets", report.packets),
    ];
    assert!(wanted.iter().all(|wanted| said.contains(wanted)), "{wanted:?}\n{said}");
    // A process that writes its own packets: all are in the file or counted.
    std::fs::remove_file(scratch.path("disk/all.pcapng")).unwrap();
    let own = ["bulk", "--size", "4M", "--capture", "disk/own.pcapng"];
    let said = success(&client(&scratch, &server, "memory", &own));
    let report = scratch.report("disk/own.pcapng");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let wanted = format!("the capture ends after {} packets", report.packets);
    assert!(said.contains(&wanted) && said.contains("No space left on device"), "{said}");
}

/// As a full disk, and not by SIGXFSZ.
#[test]
fn a_file_size_limit_ends_the_capture_with_an_error() {
    let scratch = Scratch::new("live-limit");
    let limited = ["--fsize=50", FERROCE, "capture", "-w", "all.pcapng"];
    let said = failure(&scratch.run("prlimit", &limited));
    assert!(said.contains("all.pcapng: cannot write the capture: File too large"), "{said}");
}

/// Rings are no files of it.
#[test]
fn a_full_dev_shm_is_no_obstacle() {
    let scratch = Scratch::new("live-shm");
    let Some(disk) = Disk::mount("/dev/shm".into(), "4k") else { return };
    std::fs::write(disk.0.join("all"), [0; 4096]).unwrap();
    assert!(std::fs::write(disk.0.join("more"), [0; 1]).is_err());
    let server = server("memory");
    let capture = Capture::start(&scratch, &["-w", "all.pcapng"]);
    success(&client(&scratch, &server, "memory", &["imm"]));
    let said = capture.interrupt();
    assert!(said.contains("of 2 processes") && said.contains("none lost"), "{said}");
    check_clean(&scratch.report("all.pcapng"));
}

/// The collector waits for a reader that takes nothing, and the programs wait for it, until it is asked to end, or by itself
/// at the end of its time.
#[test]
fn a_reader_that_takes_nothing_does_not_keep_the_capture() {
    let scratch = Scratch::new("live-stuck");
    let server = server("memory");
    for (arguments, is_signalled) in [(&["--duration", "1s"][..], false), (&[], true)] {
        let arguments = [&["-w", "-", "--buffer", "64K"], arguments].concat();
        let mut capture = Capture::start(&scratch, &arguments);
        let json = success(&{
            let mut command = scratch.command(FERROCE, &["client", &server.address, "bulk"]);
            command.args(["--size", "4M", "--json"]).stdout(Stdio::piped());
            let running = command.stderr(Stdio::piped()).spawn().unwrap();
            if is_signalled {
                // It writes packets, more than a pipe takes.
                capture.child.stdout.as_mut().unwrap().read_exact(&mut [0; 4096]).unwrap();
                capture.signal("-INT");
            }
            running.wait_with_output().unwrap()
        });
        assert!(json.contains("\"verified_bytes\": 4194304"), "{json}");
        let mut said = String::new();
        capture.errors.read_to_string(&mut said).unwrap();
        let status = capture.child.wait().unwrap().code();
        // The signal may come while the pipe has room for the rest.
        if !is_signalled {
            assert_eq!(status, Some(1), "{said}");
            assert!(said.contains("the reader of the pipe reads nothing"), "{said}");
        }
    }
}
