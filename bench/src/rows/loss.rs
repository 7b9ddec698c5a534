//! Goodput with lost packets.

use crate::parse;
use crate::program::{Program, Ready};
use crate::row::{Bar, Line, Row, Side};
use crate::sandbox::Network;

pub(super) fn rows() -> Vec<Row> {
    let side = |loss: &'static str| {
        let program = |line: &str| match loss {
            "none" => Program::on_ferroce(line),
            _ => Program::on_ferroce(line).with("FERROCE_FAULTS", format!("loss={loss}")),
        };
        let server = program("ib_write_bw -F -s 65536 -N -D 3");
        let client = program("ib_write_bw -F -s 65536 -N -D 3 10.9.0.1");
        let server = (server, Ready::Once(super::PERFTEST));
        Side::new(loss, server, client, parse::perftest::bandwidth).on(Network::Hosts { mtu: 9000 })
    };
    let line = |loss: &str, bar| {
        Line::new(format!("{loss} lost"), "rate", "GB/s", loss)
            .against("none")
            .bar(Bar::RatioAtLeast(bar))
    };
    vec![Row {
        name: "loss",
        title: "64 KiB WRITEs between two network namespaces (veth, MTU 9000) with lost packets",
        sides: ["none", "0.1%", "1%"].map(side).into(),
        lines: vec![line("0.1%", 0.85), line("1%", 0.5)],
        note: "Each end drops this part of the packets that it receives.",
    }]
}
