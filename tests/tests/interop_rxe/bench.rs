//! Runs cases against one machine, each with a capture of its own that is judged, and says what came of them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ferroce_tests::capture;
use ferroce_tests::peer::{Direction, Options, Peer};
use ferroce_tests::tool;

use crate::cells::Column;
use crate::scapy::Sample;
use crate::table::{self, Row, Rows, Table};
use crate::{SENT_AGAIN, analyze, file, start};

/// One cell of a table.
pub(crate) trait Case {
    /// The row that it is in.
    fn row(&self) -> Row;
    /// Runs both halves to their ends.
    fn run(&self, peer: &Peer) -> Result<(), String>;
    /// Whether such an anomaly in the capture is the point of it.
    fn expects(&self, anomaly: &str) -> bool;
}

/// Whether nothing in the capture is wrong that was not meant to be.
fn inspect(case: &impl Case, path: &Path) -> Result<(), String> {
    let report = analyze(path);
    if report.icrc.bad + report.icrc.unverifiable > 0 || !report.problems.is_empty() {
        return Err(format!("{:?} {:?}", report.icrc, report.problems));
    }
    if report.roce_packets == 0 {
        return Err("nothing in the capture".into());
    }
    let allowed = |kind: &str| SENT_AGAIN.contains(&kind) || case.expects(kind);
    let others: Vec<_> = report.anomaly_counts.iter().filter(|(kind, _)| !allowed(kind)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let of_them = |kind| others.iter().any(|(other, _)| **other == kind);
    let first = report.anomalies.iter().find(|anomaly| of_them(anomaly.kind.name()));
    Err(format!("in the capture: {others:?}, the first {first:?}"))
}

/// Which cases of a table run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of them.
    Full,
    /// One of every kind, asked by either side in turn.
    Quick,
}

impl Scope {
    /// Those of the rows that run.
    fn of(self, rows: &[Row]) -> Vec<Option<Row>> {
        let mut kinds: Vec<String> = Vec::new();
        for row in rows {
            if !kinds.contains(&row.kind()) {
                kinds.push(row.kind());
            }
        }
        // Of the i-th kind, the first that the side in turn asks, or the first of all where that side never does.
        let chosen = |row: &Row| {
            let turn = kinds.iter().position(|kind| *kind == row.kind()).unwrap_or_default() % 2;
            let mut same = rows.iter().filter(|one| one.kind() == row.kind());
            same.clone().find(|one| one.asker() == turn).or(same.next()) == Some(row)
        };
        rows.iter().map(|row| (self == Self::Full || chosen(row)).then(|| row.clone())).collect()
    }
}

/// A machine, and what came of the cases so far.
pub(crate) struct Bench {
    column: Column,
    peer: Peer,
    sample: Sample,
    rows: Rows,
    /// What was recorded of the rows that are ok.
    captures: Vec<(Row, PathBuf)>,
    /// Part of the name of those to run.
    only: String,
    scope: Scope,
}

impl Bench {
    /// A machine for a column, or none where there cannot be one.
    pub(crate) fn start(column: Column, scope: Scope) -> Option<Self> {
        let mtu = if column.mtu == 4096 { 4200 } else { 1500 };
        let peer = start(Options { mtu, ..Options::default() })?;
        let only = std::env::var("FERROCE_INTEROP_ONLY").unwrap_or_default();
        // Both sides know each other's Ethernet address from the start: this shows that the network works.
        for address in [IpAddr::from(peer.address_v4()), IpAddr::from(peer.address_v6())] {
            let address = address.to_string();
            tool::run(peer.busybox_here("ping").args(["-c", "1", "-w", "20", &address]));
        }
        Some(Self {
            column,
            peer,
            sample: Sample::default(),
            rows: Vec::new(),
            captures: Vec::new(),
            only,
            scope,
        })
    }

    /// Runs cases one after the other.
    pub(crate) fn run(&mut self, cases: &[impl Case]) {
        let rows: Vec<Row> = cases.iter().map(Case::row).collect();
        for (case, row) in cases.iter().zip(self.scope.of(&rows)) {
            let Some(row) = row.filter(|row| row.to_string().contains(&self.only)) else {
                continue;
            };
            let started = Instant::now();
            let result = self.judge(case, &row);
            let verdict = if result.is_ok() { "ok" } else { "FAILED" };
            eprintln!("{:>6.2} s {row}: {verdict}", started.elapsed().as_secs_f32());
            if let Err(reason) = &result {
                eprintln!("{reason}\n{}", self.peer.diagnosis());
            }
            self.rows.push((row, result));
        }
    }

    /// Runs a case with a capture of its own.
    fn judge(&mut self, case: &impl Case, row: &Row) -> Result<(), String> {
        let words = format!("{row} {}", self.column);
        let name: String = words.chars().filter(|one| one.is_ascii_alphanumeric()).collect();
        let recording = self.peer.capture(file(&format!("{name}.pcap")));
        let recording = recording.map_err(|error| error.to_string())?;
        let ran = case.run(&self.peer);
        let path = recording.finish().map_err(|error| error.to_string())?;
        ran?;
        inspect(case, &path)?;
        self.sample.add(&capture::read(&path));
        self.captures.push((row.clone(), path));
        Ok(())
    }

    /// What was recorded of the rows that are ok, in their order.
    pub(crate) fn captures(&self) -> &[(Row, PathBuf)] {
        &self.captures
    }

    /// From here on the network loses packets.
    pub(crate) fn spoil(&self) {
        for direction in [Direction::Leaving, Direction::Arriving] {
            self.peer.machine(1).impair(direction, "loss 1%").expect("netem");
        }
    }

    /// Prints what came of all, and compares it with the document, or writes it there.
    pub(crate) fn finish(self, table: &Table) {
        let Self { column, peer, sample, rows, only, scope, .. } = self;
        drop(peer);
        println!("{}", table::draw(column, &rows));
        sample.check(&file(&format!("{}-{column:?}.hex", table.name)));
        let failed = rows.iter().filter(|(_, result)| result.is_err()).count();
        assert_eq!(failed, 0, "cells failed: see above");
        if only.is_empty() && scope == Scope::Full {
            table.document(column, &rows);
        }
    }
}
