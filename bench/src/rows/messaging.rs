//! Messaging libraries: UCX and libfabric; and qperf.

use crate::parse;
use crate::program::{Program, Ready};
use crate::row::{Bar, Line, Parse, Row, Side};
use crate::sandbox::Network;

/// TCP ports of the servers.
const UCX: Ready = Ready::Once(13_337);
const FABRIC: Ready = Ready::Once(47_592);
const QPERF: Ready = Ready::Serves(19_765);

pub(super) fn rows() -> Vec<Row> {
    vec![ucx(), libfabric(), qperf()]
}

fn ucx_side(name: &str, ferroce: bool, test: &str, parse: Parse) -> Side {
    let program = |line: &str| match ferroce {
        true => Program::on_ferroce(line).with("UCX_TLS", "rc_v,ud_v,self"),
        false => Program::plain(line).with("UCX_TLS", "tcp,self"),
    };
    let client = program(&format!("ucx_perftest -f {test} 127.0.0.1"));
    Side::new(name, (program("ucx_perftest"), UCX), client, parse)
}

fn ucx() -> Row {
    let bandwidth = "-t tag_bw -s 1048576 -n 2000 -w 100";
    let latency = "-t tag_lat -s 64 -n 20000 -w 1000";
    let (rate, time) = (parse::ucx::bandwidth as Parse, parse::ucx::latency as Parse);
    // A host that has Ethernet as well: there, UCX chooses the device.
    let on_host = |side: Side| side.on(Network::Host);
    Row {
        name: "ucx",
        title: "UCX over Ferroce against UCX over TCP",
        sides: vec![
            ucx_side("bw ferroce", true, bandwidth, rate),
            ucx_side("bw tcp", false, bandwidth, rate),
            ucx_side("lat ferroce", true, latency, time),
            ucx_side("lat tcp", false, latency, time),
            on_host(ucx_side("bw ferroce, eth0", true, bandwidth, rate)),
            on_host(ucx_side("lat ferroce, eth0", true, latency, time)),
        ],
        lines: vec![
            Line::new("tag_bw 1 MiB", "rate", "GB/s", "bw ferroce")
                .against("bw tcp")
                .bar(Bar::RatioAtLeast(0.5)),
            Line::new("tag_lat 64 B", "typical", "µs", "lat ferroce")
                .against("lat tcp")
                .bar(Bar::RatioAtMost(1.5)),
            Line::new("tag_bw 1 MiB, host with eth0", "rate", "GB/s", "bw ferroce, eth0")
                .against("bw tcp"),
            Line::new("tag_lat 64 B, host with eth0", "typical", "µs", "lat ferroce, eth0")
                .against("lat tcp"),
        ],
        note: "In a network namespace with only a loopback; for information also in one that has eth0 with an MTU of 1500, where UCX \
               chooses the device.",
    }
}

/// UCX through shared memory, against UCX over TCP and UCX's own shared memory.
pub(super) fn local_ucx() -> Row {
    let bandwidth = "-t tag_bw -s 1048576 -n 2000 -w 100";
    let latency = "-t tag_lat -s 64 -n 20000 -w 1000";
    let (rate, time) = (parse::ucx::bandwidth as Parse, parse::ucx::latency as Parse);
    let shared = |name: &str, test: &str, parse| {
        let program = |line: String| Program::plain(line).with("UCX_TLS", "posix,cma,self");
        let client = program(format!("ucx_perftest -f {test} 127.0.0.1"));
        Side::new(name, (program("ucx_perftest".into()), UCX), client, parse)
    };
    let line = |name: &str, figure, unit, side: &str, peer: &str| {
        Line::new(name, figure, unit, format!("{side} ferroce")).against(format!("{side} {peer}"))
    };
    Row {
        name: "local-ucx",
        title: "UCX over Ferroce through shared memory, against UCX over TCP and over UCX's shared memory",
        sides: vec![
            ucx_side("bw ferroce", true, bandwidth, rate).through_memory(),
            ucx_side("bw tcp", false, bandwidth, rate),
            shared("bw shared", bandwidth, rate),
            ucx_side("lat ferroce", true, latency, time).through_memory(),
            ucx_side("lat tcp", false, latency, time),
            shared("lat shared", latency, time),
        ],
        lines: vec![
            line("tag_bw 1 MiB", "rate", "GB/s", "bw", "tcp").bar(Bar::RatioAtLeast(1.0)),
            line("tag_lat 64 B", "typical", "µs", "lat", "tcp").bar(Bar::RatioAtMost(1.0)),
            line("tag_bw 1 MiB, UCX's shared memory", "rate", "GB/s", "bw", "shared"),
            line("tag_lat 64 B, UCX's shared memory", "typical", "µs", "lat", "shared"),
        ],
        note: "",
    }
}

fn libfabric() -> Row {
    // On the loopback interface, libfabric ignores RDMA devices.
    let address = "10.9.0.1";
    let side = |name: &str, ferroce: bool, options: &str| {
        let program = |line: String| match ferroce {
            true => Program::on_ferroce(line),
            false => Program::plain(line),
        };
        let line = format!("fi_pingpong -e msg {options}");
        let client = program(format!("{line} {address}"));
        Side::new(name, (program(line), FABRIC), client, parse::fabric::latency).on(Network::Host)
    };
    let (small, large) = ("-I 2000 -S 64", "-I 200 -S 1048576");
    let sides = vec![
        side("64 B ferroce", true, &format!("-p verbs {small}")),
        side("64 B tcp", false, &format!("-p tcp {small}")),
        side("1 MiB ferroce", true, &format!("-p verbs {large}")),
        side("1 MiB tcp", false, &format!("-p tcp {large}")),
    ];
    let line = |size: &str| {
        Line::new(format!("fi_pingpong {size}"), "typical", "µs", format!("{size} ferroce"))
            .against(format!("{size} tcp"))
    };
    Row {
        name: "libfabric",
        title: "libfabric's fi_pingpong over Ferroce against its tcp provider",
        sides,
        lines: vec![line("64 B"), line("1 MiB")],
        note: "On one host, by the address of its eth0.",
    }
}

fn qperf() -> Row {
    let ours = Side::new(
        "ferroce",
        (Program::on_ferroce("qperf"), QPERF),
        Program::on_ferroce("qperf -t 2 -cm1 127.0.0.1 rc_lat"),
        parse::qperf::latency,
    );
    let tcp = Side::new(
        "tcp",
        (Program::plain("qperf"), QPERF),
        Program::plain("qperf -t 2 127.0.0.1 tcp_lat"),
        parse::qperf::latency,
    );
    Row {
        name: "qperf",
        title: "qperf's rc_lat, which waits for events, against its tcp_lat",
        sides: vec![ours, tcp],
        lines: vec![Line::new("rc_lat", "typical", "µs", "ferroce").against("tcp")],
        note: "",
    }
}
