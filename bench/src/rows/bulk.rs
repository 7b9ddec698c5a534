//! Bulk transfer against TCP.

use crate::parse::driver;
use crate::program::{Program, Ready};
use crate::row::{Bar, Line, Row, Side};

/// Bytes of a transfer, and of each WRITE and each write().
const BYTES: u64 = 1_000 << 20;
const CHUNK: usize = 4 << 20;

pub(super) fn rows() -> Vec<Row> {
    let (mut sides, mut lines) = (Vec::new(), Vec::new());
    // Larger than the caches, and the size of a chunk.
    for (heat, footprint) in [("cold", 64 << 20), ("hot", 4 << 20)] {
        let ours = format!("ferroce {heat}");
        let tcp = format!("tcp {heat}");
        let memory = format!("--footprint {footprint}");
        let server = Program::driver(format!("write-server {memory}"));
        let client = Program::driver(format!(
            "write-client {memory} --size {CHUNK} --depth 4 --bytes {BYTES} --events"
        ));
        sides.push(Side::new(&ours, (server, Ready::Once(7000)), client, driver::figures));
        let common = format!("{memory} --bytes {BYTES} --chunk {CHUNK}");
        let server = Program::driver(format!("tcp-server {common}"));
        let client = Program::driver(format!("tcp-client {common}"));
        sides.push(Side::new(&tcp, (server, Ready::Once(7000)), client, driver::figures));
        let line = |name: &str, figure, unit| {
            Line::new(format!("{heat}, {name}"), figure, unit, &ours).against(&tcp)
        };
        lines.push(line("throughput", "rate", "GB/s").bar(Bar::RatioAtLeast(1.0)));
        lines.push(line("CPU per GB, both ends", "cpu", "s").bar(Bar::RatioAtMost(1.3)));
    }
    sides.push(super::streams::iperf3_tcp("iperf3"));
    lines.push(Line::new("hot, iperf3", "rate", "GB/s", "ferroce hot").against("iperf3"));
    vec![Row {
        name: "bulk",
        title: "1 GB landing in memory: WRITEs of 4 MiB against TCP",
        sides,
        lines,
        note: "Both ends have 64 MiB of memory (cold: more than the caches hold) or 4 MiB (hot). All of it is transferred \
               once before the measurement, so no page is new.",
    }]
}
