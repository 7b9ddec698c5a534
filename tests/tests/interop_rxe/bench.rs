//! Runs cases against one machine, each with its own capture that is checked, and reports the results.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ferroce_tests::capture;
use ferroce_tests::peer::{Direction, Options, Peer};
use ferroce_tests::tool;

use crate::cells::Column;
use crate::scapy::Sample;
use crate::table::{self, Row, Rows, Table};
use crate::{RETRANSMISSION_ANOMALIES, analyze, file, start};

/// One cell of a table.
pub(crate) trait Case {
    /// Returns its row.
    fn row(&self) -> Row;
    /// Runs both sides to their ends.
    fn run(&self, peer: &Peer) -> Result<(), String>;
    /// Whether this anomaly in the capture is expected.
    fn expects(&self, anomaly: &str) -> bool;
}

/// Checks that the capture has no unexpected anomalies.
fn inspect(case: &impl Case, path: &Path) -> Result<(), String> {
    let report = analyze(path);
    if report.icrc.bad + report.icrc.unverifiable > 0 || !report.problems.is_empty() {
        return Err(format!("{:?} {:?}", report.icrc, report.problems));
    }
    if report.roce_packets == 0 {
        return Err("nothing in the capture".into());
    }
    let allowed = |kind: &str| RETRANSMISSION_ANOMALIES.contains(&kind) || case.expects(kind);
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
    /// One of every kind, with alternating requesters.
    Quick,
}

impl Scope {
    /// Selects the rows that run.
    fn of(self, rows: &[Row]) -> Vec<Option<Row>> {
        let mut kinds: Vec<String> = Vec::new();
        for row in rows {
            if !kinds.contains(&row.kind()) {
                kinds.push(row.kind());
            }
        }
        // For the i-th kind, the first row with the alternating requester, or the first row if there is none.
        let chosen = |row: &Row| {
            let turn = kinds.iter().position(|kind| *kind == row.kind()).unwrap_or_default() % 2;
            let mut same = rows.iter().filter(|one| one.kind() == row.kind());
            same.clone().find(|one| one.asker() == turn).or(same.next()) == Some(row)
        };
        rows.iter().map(|row| (self == Self::Full || chosen(row)).then(|| row.clone())).collect()
    }
}

/// A machine, and the results so far.
pub(crate) struct Bench {
    column: Column,
    peer: Peer,
    sample: Sample,
    rows: Rows,
    /// The captures of the rows that passed.
    captures: Vec<(Row, PathBuf)>,
    /// A substring of the names of the rows to run.
    only: String,
    scope: Scope,
}

impl Bench {
    /// Starts a machine for a column. Returns `None` where that is not possible.
    pub(crate) fn start(column: Column, scope: Scope) -> Option<Self> {
        let mtu = if column.mtu == 4096 { 4200 } else { 1500 };
        let peer = start(Options { mtu, ..Options::default() })?;
        let only = std::env::var("FERROCE_INTEROP_ONLY").unwrap_or_default();
        // The Ethernet addresses are static on both sides: this shows that the network works.
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

    /// Runs a case with its own capture.
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

    /// Returns the captures of the rows that passed, in order.
    pub(crate) fn captures(&self) -> &[(Row, PathBuf)] {
        &self.captures
    }

    /// Makes the network lose packets.
    pub(crate) fn add_packet_loss(&self) {
        for direction in [Direction::Leaving, Direction::Arriving] {
            self.peer.machine(1).impair(direction, "loss 1%").expect("netem");
        }
    }

    /// Prints all results, and compares them with the document, or writes them there.
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
