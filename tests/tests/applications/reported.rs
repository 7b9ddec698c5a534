//! `ferroce run --wire --capture` of unmodified perftest and Open MPI: the report of a run without faults raises no alarm,
//! and its numbers are those of tshark and of the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ferroce_tests::report::{self, Moved};
use ferroce_tests::running::{Running, listens, turn};
use ferroce_tests::{perftest, tool};
use serde_json::Value;

use super::hosts::{Hosts, has};
use super::mpi;
use super::pair::LIMIT;

const PORT: u16 = 18_515;

/// A directory for captures, removed on drop.
struct Captures(PathBuf);

impl Captures {
    fn new(name: &str) -> Self {
        let name = format!("reported-{}-{name}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).expect("the directory");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the report of a capture after checking what holds for every run without faults.
fn clean(capture: &Path) -> Value {
    let found = report::of(capture);
    let path = capture.display();
    let alarms = report::alarms(&found).into_iter();
    // If a busy host runs no thread of a program for 60 ms, the program's next packet looks like that of an ACK timer.
    let late = |topic: &&Value| topic["id"] == "timeout" || topic["id"] == "retransmission";
    let alarms: Vec<_> = alarms.filter(|topic| !late(topic)).collect();
    assert!(alarms.is_empty(), "{path}: {alarms:?}");
    let packets = tool::tshark_packets(capture);
    assert!(packets > 0, "{path}");
    assert_eq!(
        (&found["packets"], &found["roce_packets"], &found["icrc"]["ok"]),
        (&packets.into(), &packets.into(), &packets.into()),
        "{path}: tshark counts {packets}"
    );
    found
}

/// Runs both sides of a perftest program. `times` is the number of messages per iteration.
fn perftest_program(name: &str, arguments: &str, operation: &str, times: u64) {
    let _turn = turn();
    if !has(name) || !has("tshark") {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let captures = Captures::new(operation);
    // The ACK timeout is 8.6 s: on a busy machine, a shorter one may expire although nothing is lost.
    let arguments = format!("-F -d ferroce_eth0 -u 21 -p {PORT} {arguments}");
    let start = |side: usize| {
        let capture = captures.0.join(format!("{side}.pcapng"));
        let mut command = hosts.captured(side, &capture, name);
        command.args(arguments.split_whitespace());
        command.args((side == 1).then(|| Hosts::address(0)));
        Running::start(command)
    };
    let once = || {
        let until = Instant::now() + LIMIT;
        let mut server = start(0);
        server.wait_until(|server| listens(server.id(), PORT), until);
        perftest::both_ends(server, start(1), until)
    };
    let [_, said] = perftest::calibrated(once, |both| both.concat());
    let rows = perftest::rows(&said);
    let [row] = rows.as_slice() else { panic!("one line: {said}") };
    let messages = times * row.iterations;
    let expected = Moved { messages, bytes: messages * row.bytes };
    for capture in captures.files() {
        let moved = report::moved(&clean(&capture));
        assert_eq!(moved, [(operation.to_owned(), expected)].into(), "{}", capture.display());
    }
    assert_eq!(captures.files().len(), 2);
}

#[test]
fn report_of_write_bw() {
    perftest_program("ib_write_bw", "-n 200 -s 65536", "RDMA_WRITE", 1);
}

#[test]
fn report_of_send_lat() {
    // Both sides send.
    perftest_program("ib_send_lat", "-n 200", "SEND", 2);
}

#[test]
fn report_of_open_mpi() {
    let _turn = turn();
    let Some(hosts) =
        Some(()).filter(|()| mpi::is_there() && has("tshark")).and_then(|()| Hosts::new())
    else {
        return;
    };
    let captures = Captures::new("mpi");
    let mut command = hosts.captured(0, &captures.0.join("rank-%p.pcapng"), "mpirun");
    mpi::arguments(&mut command, 2, &[]);
    let said = Running::start_group(command).finish(Instant::now() + LIMIT);
    assert!(said.contains("2 ranks: all results correct"), "{said}");
    let reports: Vec<_> = captures.files().iter().map(|capture| clean(capture)).collect();
    let [one, other] = reports.as_slice() else { panic!("a capture for each rank") };
    // What one rank wrote and read, the other saw. The last SEND may arrive after its receiver has closed its device.
    for operation in ["RDMA_WRITE", "RDMA_READ"] {
        let [one, other] = [one, other].map(|it| report::moved(it).get(operation).copied());
        assert!(one.is_some() && one == other, "{operation}: {one:?} {other:?}");
    }
    let sent = report::moved(one).values().map(|moved| moved.bytes).sum::<u64>();
    assert!(sent > 8_000_002, "at least the largest message in both directions: {sent}");
}

mod full {
    use super::*;

    #[test]
    fn report_of_read_bw() {
        perftest_program("ib_read_bw", "-n 100 -s 65536", "RDMA_READ", 1);
    }

    #[test]
    fn report_of_atomic_bw() {
        perftest_program("ib_atomic_bw", "-n 200", "FETCH_ADD", 1);
    }

    #[test]
    fn report_of_write_xrc() {
        perftest_program("ib_write_bw", "-c XRC -n 100 -s 9001", "RDMA_WRITE", 1);
    }
}
