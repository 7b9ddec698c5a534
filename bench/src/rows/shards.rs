//! Several threads of one process.

use crate::parse::driver;
use crate::program::Program;
use crate::row::{Line, Row, Side};

pub(super) fn rows() -> Vec<Row> {
    let (mut sides, mut lines) = (Vec::new(), Vec::new());
    for (size, depth, label, figure, unit) in
        [(65_536, 32, "64 KiB", "rate", "GB/s"), (64, 128, "64 B", "messages", "M/s")]
    {
        let name = |threads: u8, shards: u8| {
            let plural = |count: u8| if count == 1 { "" } else { "s" };
            let (more, several) = (plural(threads), plural(shards));
            format!("{label}, {threads} thread{more}, {shards} shard{several}")
        };
        for (threads, shards) in [(1, 1), (2, 1), (2, 2)] {
            let options = format!("--threads {threads} --shards {shards} --size {size}");
            let driver = format!("threads {options} --depth {depth} --footprint {}", 64 << 20);
            let program = Program::driver(driver);
            sides.push(Side::alone(name(threads, shards), program, driver::figures));
        }
        for (threads, shards) in [(1, 1), (2, 2)] {
            let line = Line::new(name(threads, shards), figure, unit, name(threads, shards));
            lines.push(line.against(name(2, 1)));
        }
    }
    vec![Row {
        name: "shards",
        title: "WRITEs of two threads of one process, with one shard and with two",
        sides,
        lines,
        note: "Each thread has a CQ and two QPs that write to each other, and polls. With one shard, one thread at a time \
               drives the device; with two, each thread drives its own.",
    }]
}
