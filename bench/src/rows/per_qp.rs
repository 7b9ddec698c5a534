//! What a queue pair costs.

use crate::parse::driver;
use crate::program::{Program, Ready};
use crate::row::{Bar, Line, Row, Side};

/// Fixed costs no longer show with this many QPs.
const REFERENCE: usize = 100;

pub(super) fn rows() -> Vec<Row> {
    let (mut sides, mut lines) = (Vec::new(), Vec::new());
    for qps in [1, 10, 100, 1000, 10_000] {
        let name = format!("{qps} QP");
        let common = format!("--qps {qps} --footprint 65536");
        let server = Program::driver(format!("write-server {common}"));
        let client = Program::driver(format!("write-client {common} --depth 16 --seconds 0"));
        sides.push(Side::new(&name, (server, Ready::Once(7000)), client, driver::figures));
        for (what, figure, unit) in [
            ("create and connect, each", "qp_microseconds", "µs"),
            ("memory, each", "qp_kib", "KiB"),
        ] {
            let line = Line::new(format!("{name}, {what}"), figure, unit, &name);
            lines.push(match qps {
                0..=REFERENCE => line,
                _ => line.against(format!("{REFERENCE} QP")).bar(Bar::RatioAtMost(1.5)),
            });
        }
    }
    vec![Row {
        name: "per-qp",
        title: "Time and resident memory of each QP, with 1 to 10,000 of them",
        sides,
        lines,
        note: "A send queue of 16. Memory is that of the process with more of it. Flat means at most 1.5 times that with 100 QPs.",
    }]
}
