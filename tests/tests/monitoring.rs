//! The commands that watch (`stat`, `top`, `capture`, then `analyze`, `decode` and `report` of what was captured) beside
//! programs that do not know of them: `ferroce demo` and `perf`, perftest and Open MPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_test_support::{built, find_program};
use ferroce_tests::running::{Running, free_port, listens, turn};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(150);

fn ferroce(arguments: &[&str]) -> Command {
    let mut command = Command::new(built::folder().join("ferroce"));
    command.args(arguments).stdin(Stdio::null()).env_remove("FERROCE_CAPTURE");
    command
}

/// The standard output of a command that succeeds.
fn said(arguments: &[&str]) -> String {
    let output = ferroce(arguments).output().expect("ferroce runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {} {errors}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&said(arguments)).expect("JSON")
}

/// `ferroce capture` of everything in this network namespace, in a folder that is removed on drop.
struct Watched {
    folder: PathBuf,
    capture: Option<Running>,
}

impl Watched {
    fn start(name: &str) -> Self {
        let name = format!("ferroce-monitoring-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).expect("a folder");
        let file = folder.join("all.pcapng");
        let capture = Running::start(ferroce(&["capture", "-w", text(&file)]));
        let mut watched = Self { folder, capture: Some(capture) };
        // The name that processes look for when they open a device.
        let listens = |_: &Running| {
            let names = fs::read_to_string("/proc/net/unix");
            names.is_ok_and(|names| names.contains("@ferroce/capture/"))
        };
        if let Some(capture) = &mut watched.capture {
            capture.wait_until(listens, Instant::now() + LIMIT);
        }
        watched
    }

    /// Waits until `stat` shows a QP of a program in RTS that has sent something, and looks at it by the other commands.
    fn look(&self, program: &str) {
        let until = Instant::now() + LIMIT;
        let pid = loop {
            let state = json(&["stat", "--json"]);
            if let Some(pid) = busy_process(&state, program) {
                break pid.to_string();
            }
            assert!(Instant::now() < until, "{program} is not shown:\n{state:#}");
            thread::sleep(Duration::from_millis(20));
        };
        let shown = said(&["stat", "--pid", &pid]);
        assert!(shown.contains(program), "{shown}");
        let shown = said(&["top", "--once", "--interval", "10ms", "--pid", &pid]);
        assert!(shown.contains(program) && shown.contains("1 process,"), "{shown}");
    }

    /// Ends the capture, and checks what is in it.
    fn check(mut self, operation: &str) {
        let capture = self.capture.take().expect("it runs");
        let pid = capture.id().to_string();
        assert!(
            Command::new("kill").args(["-INT", &pid]).status().is_ok_and(|kill| kill.success())
        );
        capture.finish(Instant::now() + LIMIT);
        let file = self.folder.join("all.pcapng");
        let file = text(&file);
        let analysis = json(&["analyze", "--json", "--fail-on", "error", file]);
        let packets = analysis["files"][0]["roce_packets"].as_u64().unwrap_or(0);
        assert!(packets > 0, "{analysis:#}");
        // A file would be followed until it is interrupted; a pipe has an end.
        let mut source = Command::new("cat").arg(file).stdout(Stdio::piped()).spawn().expect("cat");
        let mut live = ferroce(&["analyze", "--live", "--explain", "-"]);
        let live = live.stdin(source.stdout.take().expect("a pipe")).output();
        let live = live.expect("ferroce runs").stdout;
        assert!(source.wait().is_ok_and(|status| status.success()));
        assert!(String::from_utf8_lossy(&live).contains(operation), "{operation}");
        assert!(said(&["decode", file]).contains(operation), "{operation}");
        let page = self.folder.join("page.html");
        said(&["report", file, "-o", text(&page)]);
        let page = fs::read_to_string(page).expect("the page");
        assert!(page.contains("<html") && !page.contains("src=\"http"));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.capture = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

/// The process of this name, in this network namespace, with a QP that has sent packets.
fn busy_process(state: &Value, program: &str) -> Option<u64> {
    let namespace = fs::read_link("/proc/self/ns/net").expect("a namespace");
    let here = |process: &&Value| {
        let path = format!("/proc/{}/ns/net", process["pid"]);
        process["name"] == program && fs::read_link(path).is_ok_and(|other| other == namespace)
    };
    let busy = |process: &&Value| {
        let pairs = list(process, "devices").flat_map(|device| list(device, "queue_pairs"));
        pairs.filter(|qp| qp["state"] == "RTS").any(|qp| qp["tx"]["packets"].as_u64() > Some(0))
    };
    list(state, "processes").filter(here).find(busy)?["pid"].as_u64()
}

#[test]
fn demo() {
    let _turn = turn();
    let watched = Watched::start("demo");
    said(&["demo"]);
    watched.check("RC RDMA WRITE");
}

#[test]
fn perf() {
    let _turn = turn();
    for link in [&["--wire"][..], &[]] {
        let watched = Watched::start("perf");
        let words = ["perf", "send", "lat", "--iterations", "20000"];
        let perf = Running::start(ferroce(&[&words[..], link].concat()));
        watched.look("ferroce");
        perf.finish(Instant::now() + LIMIT);
        watched.check("RC SEND Only");
    }
}

#[test]
fn perftest() {
    let _turn = turn();
    if find_program("ib_read_bw").is_none() {
        return;
    }
    let watched = Watched::start("perftest");
    let port = free_port();
    let words = format!("run -- ib_read_bw -F -n 20000 -s 2048 -p {port}");
    let words: Vec<_> = words.split(' ').collect();
    let until = Instant::now() + LIMIT;
    let mut server = Running::start(ferroce(&words));
    server.wait_until(|server| listens(server.id(), port), until);
    let client = Running::start(ferroce(&[&words[..], &["127.0.0.1"]].concat()));
    watched.look("ib_read_bw");
    client.finish(until);
    server.finish(until);
    watched.check("RC RDMA READ");
}

#[test]
fn open_mpi() {
    let _turn = turn();
    let python = Command::new("/usr/bin/python3").args(["-c", "import mpi4py.MPI"]).status();
    if find_program("mpirun").is_none() || !python.is_ok_and(|status| status.success()) {
        ferroce_test_support::skip("python3-mpi4py is not installed: run `make setup`");
        return;
    }
    let watched = Watched::start("mpi");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/mpi/ranks.py");
    let words = "run -- mpirun --allow-run-as-root --oversubscribe -n 2 /usr/bin/python3";
    let words: Vec<_> = words.split(' ').chain([text(&program)]).collect();
    let ranks = Running::start_group(ferroce(&words));
    watched.look("python3");
    let result = ranks.finish(Instant::now() + LIMIT);
    assert!(result.contains("2 ranks: all results correct"), "{result}");
    watched.check("RC SEND Only");
}
