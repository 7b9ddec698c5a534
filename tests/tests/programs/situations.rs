//! Broken programs: what the user sees must name the cause itself.
//!
//! Each row is a program with one mistake (`tests/c/broken.c`) under `ferroce run`. Its sentence must be in the log at level
//! `warn`, in the trace and in the "last error" of `ferroce stat`; if a queue pair ended in error, also among the last
//! lines of the run; if a packet was refused, in the capture. Situations that are tested elsewhere:
//!
//! | situation | test |
//! |---|---|
//! | statically linked program, libibverbs by RPATH or LD_PRELOAD | the warnings of `ferroce run`, in `crates/cli/tests/it/run.rs` |
//! | no rights, no device, loopback down, no `/proc` or `/sys` | `crates/cli/tests/it/doctor.rs`, `run.rs` |
//! | port down | `tests/tests/port_events.rs` |
//! | wrong P_Key, device failed | `crates/proto/src/reason/tests.rs` |

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ferroce_test_support::built;
use ferroce_tests::c::compile;
use ferroce_trace::file::CaptureReader;

/// What a program does wrong, and what the user sees.
struct Situation {
    /// The argument of the program.
    name: &'static str,
    /// The cause.
    sentence: &'static str,
    /// Queue pairs that end in error for this reason say so at the end of the run.
    ends: bool,
    /// A packet was refused.
    packet: bool,
    /// The numbers in its completions.
    vendor_errors: &'static [u32],
}

const fn situation(
    name: &'static str,
    sentence: &'static str,
    ends: bool,
    packet: bool,
    vendor_errors: &'static [u32],
) -> Situation {
    Situation { name, sentence, ends, packet, vendor_errors }
}

#[rustfmt::skip]
const SITUATIONS: [Situation; 18] = [
    situation("wrong-rkey", "rkey 0x12345678 is unknown", true, true, &[60]),
    situation("range", "the access ends 96 bytes behind it", true, true, &[60]),
    situation("access-flag", "is an MR without REMOTE_WRITE", true, true, &[60]),
    situation("wrong-lkey", "lkey 0x77 is unknown", true, false, &[1]),
    situation("no-receive", "the peer had no receive request for PSN 0x1000 in 4 attempts", true, true, &[61]),
    situation("rnr-forever", "no receive request is posted: the sender repeats its message", false, true, &[]),
    situation("srq-empty", "is empty: the sender repeats its message", false, true, &[61]),
    situation("too-long", "the message of at least 200 bytes is longer than the receive request of 100 bytes", true, true, &[35, 60]),
    situation("path-mtu", "payload of 1000 bytes over the path MTU of 256", true, true, &[33, 60]),
    situation("first-psn", "expected 0x1388: does rq_psn match the peer's sq_psn?", false, true, &[62]),
    situation("wrong-qpn", "which does not exist: was it destroyed, or is dest_qp_num of the sender wrong?", false, true, &[62]),
    situation("destroyed", "which does not exist: was it destroyed, or is dest_qp_num of the sender wrong?", false, true, &[62]),
    situation("wrong-address", "no process has an RDMA device open at the address of the peer", true, false, &[64]),
    situation("q-key", "its Q_Key is 0x7777, the queue pair has 0x11111111", false, false, &[0]),
    situation("gid-index", "modify_qp: sgid_index 17: the table has ", false, false, &[]),
    situation("state", "post_send: the queue pair is in INIT, it needs RTS", false, false, &[]),
    situation("cq-overrun", " with 1 entries is full: completions are lost, and the queue pair is in ERR", true, false, &[]),
    situation("peer-killed", "the process of the peer has ended", true, false, &[0, 65]),
];

fn folder() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("situations");
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder for traces and captures");
    path
}

fn ferroce() -> PathBuf {
    built::folder().join("ferroce")
}

/// Runs the program with a mistake, with a trace and, if it is about packets, over sockets with a capture.
fn run(program: &Path, name: &str, files: &Path, packets: bool, faults: Option<&str>) -> Output {
    let mut command = Command::new(ferroce());
    command.arg("run");
    if packets {
        command.args(["--wire", "--capture"]).arg(files.with_extension("pcapng"));
    }
    command.arg(format!("--trace={}", files.with_extension("trace").display()));
    command.arg("--").arg(program).arg(name).env("FERROCE_LOG", "warn");
    command.env("LOOK", format!("{} stat dev qp", ferroce().display()));
    match faults {
        Some(faults) => command.env("FERROCE_FAULTS", faults),
        None => command.env_remove("FERROCE_FAULTS"),
    };
    command.output().expect("ferroce starts")
}

fn comments(path: &Path) -> String {
    let mut reader = CaptureReader::new(File::open(path).expect("a capture")).expect("a capture");
    let mut all = String::new();
    while let Some(record) = reader.next_record().expect("it is complete") {
        all += record.comment.as_deref().unwrap_or_default();
        all.push('\n');
    }
    all
}

impl Situation {
    /// Returns the places where the cause is missing.
    fn missing(&self, program: &Path, files: &Path) -> Vec<String> {
        let output = run(program, self.name, files, self.packet, None);
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let line = |lines: &str, start: &str| {
            lines.lines().any(|line| line.contains(start) && line.contains(self.sentence))
        };
        let trace = fs::read_to_string(files.with_extension("trace")).unwrap_or_default();
        // In the trace, the name of the call is at the start of its line.
        let cause =
            self.sentence.trim_start_matches("modify_qp: ").trim_start_matches("post_send: ");
        let numbers: Vec<u32> =
            out.lines().filter_map(|line| line.split_once("vendor_err ")?.1.parse().ok()).collect();
        let captured = || comments(&files.with_extension("pcapng")).contains(self.sentence);
        let checks = [
            ("the log", line(&err, "WARN")),
            ("the trace", trace.contains(cause)),
            ("stat", line(&out, "last error")),
            ("the end of the run", !self.ends || line(&err, "; see `ferroce explain vendor_err ")),
            ("the capture", !self.packet || captured()),
            ("vendor_err", self.vendor_errors == numbers),
        ];
        let missing = checks.iter().filter(|(_, is_there)| !is_there);
        missing.map(|(place, _)| format!("{}: not in {place}:\n{out}{err}", self.name)).collect()
    }
}

#[test]
fn each_situation_names_its_cause() {
    let Some(program) = compile("broken", &["c/broken.c"], "infiniband/verbs.h") else { return };
    let folder = folder();
    let mut missing = Vec::new();
    for situation in &SITUATIONS {
        missing.extend(situation.missing(&program, &folder.join(situation.name)));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// What the network does is in the capture: `ferroce analyze` names it.
#[test]
fn loss_and_corruption_are_named() {
    let Some(program) = compile("broken", &["c/broken.c"], "infiniband/verbs.h") else { return };
    for (name, faults, cause) in [
        ("loss", "loss=5%,seed=3", "packets are lost after the capture point"),
        ("corruption", "corruption=2%,seed=3", "wrong ICRC: corrupted on the path"),
    ] {
        let files = folder().join(name);
        let output = run(&program, "traffic", &files, true, Some(faults));
        assert!(output.status.success(), "{output:?}");
        let mut analyze = Command::new(ferroce());
        let output = analyze.arg("analyze").arg(files.with_extension("pcapng")).output();
        let text = String::from_utf8(output.expect("ferroce starts").stdout).expect("text");
        assert!(text.contains(cause), "{name}: {text}");
    }
}
