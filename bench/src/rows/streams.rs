//! Streams and files: rsockets, `ferroce client bulk`.

use std::fs;
use std::path::PathBuf;

use super::perftest;
use crate::parse;
use crate::program::{Program, Ready};
use crate::row::{Bar, Line, Row, Side};

/// iperf3 prints it when it listens. Over rsockets, no TCP socket shows that.
const IPERF: Ready = Ready::Prints("Server listening");

pub(super) fn rows() -> Vec<Row> {
    vec![rsockets(), client_bulk()]
}

/// Debian's library that redirects the socket calls of programs to rsockets.
pub(super) fn preload() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
    let mut paths = folders.map(|folder| folder.path().join("rsocket/librspreload.so"));
    paths.find(|path| path.is_file())
}

/// iperf3 over TCP.
pub(super) fn iperf3_tcp(name: &str) -> Side {
    let server = Program::plain("iperf3 -s -1 --forceflush");
    let client = Program::plain("iperf3 -c 127.0.0.1 -t 2 -J");
    Side::new(name, (server, IPERF), client, parse::iperf3::rate)
}

fn rsockets() -> Row {
    let preload = preload().unwrap_or_else(|| "librspreload.so".into());
    let on_rsockets =
        |line: &str| Program::on_ferroce(format!("env LD_PRELOAD={} {line}", preload.display()));
    let server = on_rsockets("iperf3 -s -1 --forceflush");
    let client = on_rsockets("iperf3 -c 127.0.0.1 -t 2 -J");
    let ours = Side::new("ferroce", (server, IPERF), client, parse::iperf3::rate);
    let line = Line::new("iperf3", "rate", "GB/s", "ferroce").against("tcp");
    Row {
        name: "rsockets",
        title: "iperf3 through librspreload on Ferroce against iperf3 over TCP",
        sides: vec![ours, iperf3_tcp("tcp")],
        lines: vec![line.bar(Bar::RatioAtLeast(0.4))],
        note: "",
    }
}

fn client_bulk() -> Row {
    let server = Program::command("server --once --listen 127.0.0.1:7471");
    let client = Program::command("client 127.0.0.1:7471 bulk --size 1G --chunk 4M --json --quiet");
    let server = (server, Ready::Prints("listening"));
    let ours = Side::new("client bulk", server, client, parse::client::bulk);
    let (server, client) = perftest("ib_write_bw -F -s 4194304 -N -n 250");
    let theirs = Side::new("ib_write_bw", server, client, parse::perftest::bandwidth);
    let line = Line::new("4 MiB WRITEs", "rate", "GB/s", "client bulk").against("ib_write_bw");
    Row {
        name: "client-bulk",
        title: "ferroce client bulk against ib_write_bw with the same message size, both on Ferroce",
        sides: vec![ours, theirs],
        lines: vec![line.bar(Bar::RatioAtLeast(0.9))],
        note: "client bulk fills 1 GiB of the server's memory, ib_write_bw writes to the same 4 MiB again and again.",
    }
}
