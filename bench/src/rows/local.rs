//! Both ends on one host, as users get it: through shared memory.

use super::{perftest, streams};
use crate::parse::{self, driver};
use crate::program::{Program, Ready};
use crate::row::{Bar, Line, Row, Side};
use crate::rows::{latency, messaging, qps};

/// Bytes of a transfer: all of the memory several times.
const BYTES: u64 = 4 << 30;
const FOOTPRINT: usize = 64 << 20;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = latency::local_rows();
    rows.extend([rate(), small(), bulk(), messaging::local_ucx(), mpi(), qps::local_row()]);
    rows
}

fn rate() -> Row {
    let side = |list: &str| {
        let (server, client) = perftest(&format!("ib_write_bw -F -s 64 -N -D 2{list}"));
        Side::new(name(list), server, client, parse::perftest::bandwidth).through_memory()
    };
    let line = |list: &str| Line::new(name(list), "messages", "M/s", name(list));
    Row {
        name: "local-rate",
        title: "64 B WRITEs per second through shared memory",
        sides: vec![side(""), side(" -l 16")],
        lines: vec![line("").bar(Bar::AtLeast(4.0)), line(" -l 16")],
        note: "",
    }
}

/// The rows above by programs of perftest depend on what else runs on the processor. This one says both.
fn small() -> Row {
    let server = (Program::driver("small-server"), Ready::Once(7000));
    let side = Side::new("ferroce", server, Program::driver("small-client"), driver::figures);
    let line = |name: &str, figure, unit| Line::new(name, figure, unit, "ferroce");
    Row {
        name: "local-small",
        title: "64 B messages through shared memory, with busy and with idle sibling hyperthreads",
        sides: vec![side.through_memory()],
        lines: vec![
            line("SEND, half of a round trip, median", "typical", "µs"),
            line("SEND, half of a round trip, best 2 %", "undisturbed", "µs"),
            line("WRITEs, one per call, median", "messages", "M/s"),
            line("WRITEs, one per call, best 2 %", "undisturbed_messages", "M/s"),
        ],
        note: "Figures of chunks: medians of 2,000 round trips, and the rates of 2 ms. The best 2 % of them are those that no sibling \
               hyperthread disturbs.",
    }
}

/// The name of a post list.
fn name(list: &str) -> &'static str {
    if list.is_empty() { "post list 1" } else { "post list 16" }
}

fn bulk() -> Row {
    let memory = format!("--footprint {FOOTPRINT}");
    let ours = |name: &str, option: &str| {
        let server = Program::driver(format!("write-server {memory}"));
        let client =
            format!("write-client {memory} --size 65536 --depth 16 --bytes {BYTES}{option}");
        Side::new(name, (server, Ready::Once(7000)), Program::driver(client), driver::figures)
            .through_memory()
    };
    let copy = Program::driver(format!("copy {memory} --bytes {BYTES}"));
    let (server, client) = perftest("ib_write_bw -F -s 65536 -N -D 2");
    let hot = Side::new("ib_write_bw", server, client, parse::perftest::bandwidth);
    let line = |name: &str| Line::new(format!("64 KiB {name}s, cold"), "rate", "GB/s", name);
    Row {
        name: "local-bulk",
        title: "Bulk transfers through shared memory against copying the same bytes, and against TCP",
        sides: vec![
            ours("WRITE", ""),
            ours("READ", " --read"),
            Side::alone("memcpy", copy, driver::figures),
            hot.through_memory(),
            streams::iperf3_tcp("iperf3"),
        ],
        lines: vec![
            line("WRITE").against("memcpy").bar(Bar::RatioAtLeast(0.7)),
            line("READ").against("memcpy").bar(Bar::RatioAtLeast(0.7)),
            Line::new("ib_write_bw -s 65536, hot", "rate", "GB/s", "ib_write_bw")
                .against("iperf3")
                .bar(Bar::RatioAtLeast(1.5)),
        ],
        note: "Cold: both ends have 64 MiB of memory, more than the caches hold, and memcpy copies between two such memories in \
               one process.",
    }
}

fn mpi() -> Row {
    let line = |options: &str| {
        format!(
            "mpirun --allow-run-as-root --oversubscribe -n 2 {options}/usr/bin/python3 bench/mpi.py"
        )
    };
    let ours = Side::alone("ferroce", Program::on_ferroce(line("")), driver::figures);
    let tcp = Program::plain(line("--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo "));
    let compare = |name: &str, figure| {
        Line::new(name, figure, "µs", "ferroce").against("tcp").bar(Bar::RatioAtMost(1.0))
    };
    Row {
        name: "local-mpi",
        title: "Open MPI with two ranks over Ferroce, through shared memory, against its tcp BTL",
        sides: vec![ours.through_memory(), Side::alone("tcp", tcp, driver::figures)],
        lines: vec![
            compare("ping-pong, 64 B, half of a round trip", "typical"),
            compare("all-reduce, 64 KiB", "reduce"),
        ],
        note: "",
    }
}
