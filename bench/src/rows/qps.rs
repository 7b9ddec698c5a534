//! Many queue pairs.

use super::perftest;
use crate::parse::{self, driver};
use crate::program::{Program, Ready};
use crate::row::{Bar, Line, Row, Side};
use crate::sample::DROPS;

/// The memory of each end, whatever the number of QPs.
const FOOTPRINT: usize = 64 << 20;

/// Values of `net.core.rmem_max`: a distribution's default, and one that servers use.
const LIMITS: [u64; 2] = [212_992, 4_194_304];

pub(super) fn rows() -> Vec<Row> {
    vec![qps(), perftest_qps()]
}

/// WRITEs in flight of each QP: perftest's depth for one, less for many.
fn depth(qps: usize) -> usize {
    (128 / qps).max(4)
}

fn side(name: &str, qps: usize, limit: Option<u64>) -> Side {
    let common = format!("--qps {qps} --footprint {FOOTPRINT}");
    let common = match limit {
        Some(limit) => format!("{common} --receive-buffer {limit}"),
        None => common,
    };
    let mut server = Program::driver(format!("write-server {common}"));
    let mut client = Program::driver(format!("write-client {common} --depth {}", depth(qps)));
    if limit.is_some() {
        (server, client) = (server.for_ordinary_user(), client.for_ordinary_user());
    }
    let mut side = Side::new(name, (server, Ready::Once(7000)), client, driver::figures);
    side.rmem_max = limit;
    side
}

fn qps() -> Row {
    let (mut sides, mut lines) = (Vec::new(), Vec::new());
    for qps in [1, 10, 100, 1000] {
        let name = format!("{qps} QP");
        sides.push(side(&name, qps, None));
        lines.extend(compare(&name, "1 QP", qps));
    }
    for limit in LIMITS {
        let reference = format!("1 QP, rmem_max {limit}");
        for qps in [1, 1000] {
            let name = format!("{qps} QP, rmem_max {limit}");
            sides.push(side(&name, qps, Some(limit)));
            lines.extend(compare(&name, &reference, qps));
        }
    }
    Row {
        name: "qps",
        title: "64 KiB WRITEs over 1 to 1,000 QPs between two processes",
        sides,
        lines,
        note: "Both ends have 64 MiB of memory, which all QPs together walk through. Each QP posts again when one of its \
               WRITEs completes; Jain's index is of the bytes of each QP in 2 seconds. The sides with rmem_max run \
               without CAP_NET_ADMIN, after `sysctl net.core.rmem_max=…` where that is permitted; elsewhere the driver asks for \
               buffers of that size.",
    }
}

/// The same through shared memory.
pub(super) fn local_row() -> Row {
    let sides = [1, 1000].map(|qps| side(&format!("{qps} QP"), qps, None).through_memory());
    let line = Line::new("1000 QP", "rate", "GB/s", "1000 QP").against("1 QP");
    Row {
        name: "local-qps",
        title: "64 KiB WRITEs over 1,000 QPs between two processes, through shared memory",
        sides: sides.into(),
        lines: vec![line.bar(Bar::RatioAtLeast(0.9))],
        note: "",
    }
}

fn compare(side: &str, reference: &str, qps: usize) -> Vec<Line> {
    let rate = Line::new(side, "rate", "GB/s", side);
    let drops =
        Line::new(format!("{side}, datagrams dropped"), DROPS, "", side).bar(Bar::NeverAbove(0.0));
    if qps == 1 {
        return vec![rate, drops];
    }
    let rate = rate.against(reference).bar(Bar::RatioAtLeast(0.8));
    let jain = Line::new(format!("{side}, Jain's index"), "jain", "", side).bar(Bar::AtLeast(0.95));
    vec![rate, drops, jain]
}

fn perftest_qps() -> Row {
    let side = |name: &str, options: &str| {
        let (server, client) = perftest(&format!("ib_write_bw -F -s 65536 -N {options}"));
        Side::new(name, server, client, parse::perftest::bandwidth)
    };
    let drops = Line::new("1,000 QPs, datagrams dropped", DROPS, "", "1000 QP");
    Row {
        name: "perftest-qps",
        title: "perftest's ib_write_bw with 1,000 QPs",
        sides: vec![side("1 QP", "-n 60000"), side("1000 QP", "-q 1000 -n 60")],
        lines: vec![
            Line::new("1,000 QPs", "rate", "GB/s", "1000 QP").against("1 QP"),
            drops.bar(Bar::NeverAbove(0.0)),
        ],
        note: "perftest gives each QP its own memory, so 1 QP writes to hot memory and 1,000 QPs do not.",
    }
}
