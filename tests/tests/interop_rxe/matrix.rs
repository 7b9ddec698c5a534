//! The first matrix: a program in the machine with one of ours.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ferroce_tests::peer::{Output, Peer, Remote};

use crate::TIMEOUT;
use crate::bench::{Bench, Case, Scope};
use crate::cells::{self, Cell, Column, End, Role};
use crate::ours::TASK;
use crate::table::{MATRIX, Row};

/// Our side: its process, and its output.
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

    /// Waits until it reports that it listens, or exits.
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

    /// Signals that the machine's program has exited, and waits for our side.
    fn finish(mut self) -> Result<(), String> {
        drop(self.child.stdin.take());
        let mut said = String::new();
        // It prints less than a pipe holds, so reading one after the other does not block.
        let _ = self.output.read_to_string(&mut said);
        if let Some(mut errors) = self.child.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("our side: {status}: {said}")) }
    }
}

/// Runs both sides to their ends.
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
            peer.machine(1).wait_for_cm(port, TIMEOUT).map_err(|error| error.to_string())?;
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
                // The machine's program would wait for us until it is killed.
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

/// Checks the exit status and the output of the machine's program.
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

impl Case for Cell {
    fn row(&self) -> Row {
        Row::new(&self.program, self.role)
    }

    fn run(&self, peer: &Peer) -> Result<(), String> {
        run(peer, self)
    }

    fn expects(&self, anomaly: &str) -> bool {
        self.task.lossy || self.expected.contains(&anomaly)
    }
}

/// Runs all cells of a column.
pub(crate) fn column(column: Column, scope: Scope) {
    let Some(mut bench) = Bench::start(column, scope) else { return };
    let (good, bad) = cells::all(column);
    bench.run(&good);
    bench.add_packet_loss();
    bench.run(&bad);
    bench.finish(&MATRIX);
}
