//! Runs the cells against one machine, and says what came of each.

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_tests::capture;
use ferroce_tests::peer::{Direction, Options, Output, Peer, Remote};
use ferroce_tests::tool;

use crate::cells::{self, Cell, Column, End, Role};
use crate::ours::TASK;
use crate::scapy::Sample;
use crate::table::{self, Row};
use crate::{SENT_AGAIN, analyze, file, start};

/// For a program in the machine to listen.
const SOON: Duration = Duration::from_secs(30);

/// Our half: its process, and what it prints.
struct Ours {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Ours {
    fn start(peer: &Peer, cell: &Cell) -> Result<Self, String> {
        let mut command = peer.test_here("our_half").map_err(|error| error.to_string())?;
        command.env(TASK, cell.task.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let output = child.stdout.take().ok_or("no output")?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    /// Waits until it says that it listens, or ends.
    fn wait_until_ready(&mut self) {
        let mut line = String::new();
        while self.output.read_line(&mut line).is_ok_and(|length| length > 0) {
            if line.trim_end() == "ready" {
                return;
            }
            line.clear();
        }
    }

    fn has_failed(&mut self) -> bool {
        self.child.try_wait().ok().flatten().is_some_and(|status| !status.success())
    }

    /// Tells it that the machine's program has ended, and waits for it.
    fn finish(mut self) -> Result<(), String> {
        drop(self.child.stdin.take());
        let mut said = String::new();
        // It prints less than a pipe holds, or it would have failed a hundred times over.
        let _ = self.output.read_to_string(&mut said);
        if let Some(mut errors) = self.child.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("our side: {status}: {said}")) }
    }
}

/// Runs both halves to their ends.
fn run(peer: &Peer, cell: &Cell) -> Result<(), String> {
    let spawn = || peer.spawn(&cell.line).map_err(|error| error.to_string());
    let (ours, theirs): (Ours, Remote);
    if cell.role == Role::Theirs && !cell.line.starts_with("puppet") {
        let mut started = Ours::start(peer, cell)?;
        started.wait_until_ready();
        (ours, theirs) = (started, spawn()?);
    } else {
        theirs = spawn()?;
        if let Some(port) = cell.listens {
            peer.machine(1).wait_for_cm(port, SOON).map_err(|error| error.to_string())?;
        }
        ours = Ours::start(peer, cell)?;
    }
    let (output, finished) = thread::scope(|scope| {
        let (ended, end) = mpsc::channel();
        scope.spawn(move || ended.send(theirs.wait()));
        let mut ours = ours;
        let output = loop {
            match end.recv_timeout(Duration::from_millis(100)) {
                Ok(output) => break output,
                // The machine's program would wait for us until it is ended.
                Err(_) if ours.has_failed() => {
                    let program = cell.line.split(' ').next().unwrap_or_default();
                    let _ = peer.run(&format!("killall -KILL {program}"));
                    break end.recv().unwrap_or_else(|_| unreachable!("it sends once"));
                }
                Err(_) => {}
            }
        };
        (output, ours.finish())
    });
    let output = output.map_err(|error| error.to_string())?;
    finished.map_err(|error| format!("{error}\ntheir side: {output:?}"))?;
    judge(cell, &output)
}

/// Whether the machine's program ended and said as it should.
fn judge(cell: &Cell, output: &Output) -> Result<(), String> {
    let as_wanted = match cell.end {
        End::Success => output.status == 0,
        End::Failure => output.status != 0 && output.status != 124,
        End::Any => output.status != 124,
    };
    let (proof, least) = cell.proof;
    let proven = proof.is_empty() || output.stdout.matches(proof).count() >= least;
    let invalid = output.stdout.contains("invalid data") || output.stdout.contains("mismatch");
    if as_wanted && proven && !invalid { Ok(()) } else { Err(format!("their side: {output:?}")) }
}

/// Whether nothing in the capture is wrong that was not meant to be.
fn inspect(cell: &Cell, path: &Path) -> Result<(), String> {
    let report = analyze(path);
    if report.icrc.bad + report.icrc.unverifiable > 0 || !report.problems.is_empty() {
        return Err(format!("{:?} {:?}", report.icrc, report.problems));
    }
    if report.roce_packets == 0 {
        return Err("nothing in the capture".into());
    }
    let allowed = |kind: &&&str| SENT_AGAIN.contains(kind) || cell.expected.contains(kind);
    let others: Vec<_> = report.anomaly_counts.iter().filter(|(kind, _)| !allowed(kind)).collect();
    if others.is_empty() || cell.task.lossy {
        return Ok(());
    }
    let of_them = |kind| others.iter().any(|(other, _)| **other == kind);
    let first = report.anomalies.iter().find(|anomaly| of_them(anomaly.kind.name()));
    Err(format!("in the capture: {others:?}, the first {first:?}"))
}

/// Runs a cell with a capture of its own.
fn cell(peer: &Peer, cell: &Cell, sample: &mut Sample) -> Result<(), String> {
    let column = Column { ipv6: cell.task.ipv6, mtu: cell.task.mtu };
    let words = format!("{}-{:?}-{column:?}", cell.program, cell.role);
    let name: String = words.chars().filter(|one| one.is_ascii_alphanumeric()).collect();
    let recording =
        peer.capture(file(&format!("{name}.pcap"))).map_err(|error| error.to_string())?;
    let ran = run(peer, cell);
    let path = recording.finish().map_err(|error| error.to_string())?;
    ran?;
    inspect(cell, &path)?;
    sample.add(&capture::read(&path));
    Ok(())
}

/// Runs all cells of a column, prints it, and compares it with the document, or writes it there.
pub(crate) fn column(column: Column) {
    let mtu = if column.mtu == 4096 { 4200 } else { 1500 };
    let Some(peer) = start(Options { mtu, ..Options::default() }) else { return };
    // Its kernel looks up our Ethernet address when a queue pair is connected, and gives up soon if nobody answers: after
    // this it knows.
    for address in [IpAddr::from(peer.address_v4()), IpAddr::from(peer.address_v6())] {
        tool::run(peer.busybox_here("ping").args(["-c", "1", "-w", "20", &address.to_string()]));
    }
    let (good, bad) = cells::all(column);
    let mut sample = Sample::default();
    let mut rows: Vec<(Row, Result<(), String>)> = Vec::new();
    let only = std::env::var("FERROCE_INTEROP_ONLY").unwrap_or_default();
    let mut run = |cells: &[Cell]| {
        for one in cells {
            if !format!("{} {:?}", one.program, one.role).contains(&only) {
                continue;
            }
            let started = Instant::now();
            let result = cell(&peer, one, &mut sample);
            let verdict = if result.is_ok() { "ok" } else { "FAILED" };
            let row = Row::of(one);
            eprintln!("{:>6.2} s {row}: {verdict}", started.elapsed().as_secs_f32());
            if let Err(reason) = &result {
                eprintln!("{reason}");
            }
            rows.push((row, result));
        }
    };
    run(&good);
    for direction in [Direction::Leaving, Direction::Arriving] {
        peer.machine(1).impair(direction, "loss 1%").expect("netem");
    }
    run(&bad);
    drop(peer);
    sample.check(&file(&format!("{column:?}.hex")));

    println!("{}", table::draw(column, &rows));
    let failed = rows.iter().filter(|(_, result)| result.is_err()).count();
    assert_eq!(failed, 0, "cells failed: see above");
    if only.is_empty() {
        table::document(column, &rows);
    }
}
