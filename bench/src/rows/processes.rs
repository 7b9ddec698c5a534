//! Many processes.

use crate::parse::driver;
use crate::program::Program;
use crate::row::{Bar, Line, Row, Side};

pub(super) fn rows() -> Vec<Row> {
    let side = |name: &str, pairs: u32| {
        let (bytes, footprint) = (4_u64 << 30, 64 << 20);
        let many = format!("many --pairs {pairs} --qps 8 --bytes {bytes} --footprint {footprint}");
        Side::alone(name, Program::driver(many), driver::figures)
    };
    let line = Line::new("64 pairs, 8 QPs each", "rate", "GB/s", "64 pairs");
    let drops = Line::new("64 pairs, datagrams dropped", crate::sample::DROPS, "", "64 pairs");
    vec![Row {
        name: "processes",
        title: "64 KiB WRITEs of 64 pairs of processes with 8 QPs each, against one pair",
        sides: vec![side("1 pair", 1), side("64 pairs", 64)],
        lines: vec![line.against("1 pair").bar(Bar::RatioAtLeast(0.7)), drops],
        note: "Both transfer 4 GiB in all, in 64 MiB of memory in all. The rate is that until the last process has finished.",
    }]
}
