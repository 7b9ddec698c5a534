//! Latency: SEND against TCP, WRITE and READ.

use super::perftest;
use crate::parse;
use crate::program::{Program, Ready};
use crate::row::{Bar, Line, Row, Side};

/// sockperf's TCP port.
const SOCKPERF: u16 = 11_111;

pub(super) fn rows() -> Vec<Row> {
    let poll = ("polling", "", " --nonblocked");
    let events = ("events", " -e", "");
    vec![
        send("send-lat", "64 B SEND, both ends polling, against TCP", poll, 1.1),
        send(
            "events",
            "64 B SEND, both ends waiting for events, against blocking TCP",
            events,
            1.3,
        ),
        one_sided("write-lat", "64 B WRITE", "ib_write_lat", [12.0, 200.0].map(Bar::AtMost)),
        one_sided("read-lat", "64 B READ", "ib_read_lat", [9.0, 200.0].map(Bar::AtMost)),
    ]
}

/// The same with both ends on one host, through shared memory.
pub(super) fn local_rows() -> Vec<Row> {
    let poll = ("polling", "", " --nonblocked");
    let events = ("events", " -e", "");
    let mut rows = vec![
        send("local-send-lat", "64 B SEND through shared memory, both ends polling", poll, 0.35),
        send("local-events", "64 B SEND through shared memory, both ends waiting", events, 1.0),
        one_sided(
            "local-write-lat",
            "64 B WRITE through shared memory",
            "ib_write_lat",
            [Bar::AtMost(5.0), Bar::None],
        ),
        one_sided(
            "local-read-lat",
            "64 B READ through shared memory",
            "ib_read_lat",
            [Bar::None; 2],
        ),
    ];
    for row in &mut rows {
        let sides = std::mem::take(&mut row.sides);
        row.sides = sides.into_iter().map(Side::through_memory).collect();
    }
    let absolute = Line::new("polling, median, alone", "typical", "µs", "ferroce");
    rows[0].lines.push(absolute.bar(Bar::AtMost(1.0)));
    rows
}

fn send(
    name: &'static str,
    title: &'static str,
    (how, option, sockperf): (&str, &str, &str),
    bar: f64,
) -> Row {
    let (server, client) = perftest(&format!("ib_send_lat -F -s 64 -n 20000{option}"));
    let ours = Side::new("ferroce", server, client, parse::perftest::latency);
    let server = Program::plain(format!("sockperf server --tcp -i 127.0.0.1{sockperf}"));
    let client = format!("sockperf ping-pong --tcp -i 127.0.0.1 -m 64 -t 2{sockperf}");
    let server = (server, Ready::Serves(SOCKPERF));
    let tcp = Side::new("tcp", server, Program::plain(client), parse::sockperf::latency);
    let line = |what: &str, figure| {
        Line::new(format!("{how}, {what}"), figure, "µs", "ferroce").against("tcp")
    };
    Row {
        name,
        title,
        sides: vec![ours, tcp],
        lines: vec![line("median", "typical").bar(Bar::RatioAtMost(bar)), line("p99.9", "p999")],
        note: "Both programs report half of a round trip.",
    }
}

fn one_sided(name: &'static str, title: &'static str, program: &str, bars: [Bar; 2]) -> Row {
    let (server, client) = perftest(&format!("{program} -F -s 64 -n 20000"));
    let side = Side::new("ferroce", server, client, parse::perftest::latency);
    let line = |name, figure, bar| Line::new(name, figure, "µs", "ferroce").bar(bar);
    Row {
        name,
        title,
        sides: vec![side],
        lines: vec![line("median", "typical", bars[0]), line("p99.9", "p999", bars[1])],
        note: "",
    }
}
