//! Repetitions: every side of a row in turn, each sample in its own process group and network namespace.

use std::env;
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::interrupt;
use crate::process::Process;
use crate::program::{Program, is_installed, package};
use crate::row::{Outcome, Row, Sample, Side};
use crate::sample;
use crate::sandbox::Network;
use crate::sysctl::{Changed, RMEM_MAX};

/// How often a sample is taken whose program fails for reasons of its own.
const ATTEMPTS: usize = 5;

/// Programs that every sample needs.
const NEEDED: [&str; 3] = ["unshare", "ip", "nsenter"];

/// Measures all rows.
pub(crate) fn all(rows: &[Row], repetitions: usize) -> Result<Vec<Outcome<'_>>, String> {
    if let Some(name) = NEEDED.iter().find(|name| !is_installed(name)) {
        return Err(format!("{name} is not installed: apt-get install {}", package(name)));
    }
    interrupt::watch()?;
    Ok(rows.iter().map(|row| measure(row, repetitions)).collect())
}

/// Measures a row. A side that fails is not run again, so that its row costs little time.
fn measure(row: &Row, repetitions: usize) -> Outcome<'_> {
    let mut samples = vec![Vec::new(); row.sides.len()];
    let mut failures: Vec<String> = Vec::new();
    let mut failed = vec![false; row.sides.len()];
    let missing = || row.sides.iter().flat_map(Side::programs).find_map(Program::missing);
    if let Some(skipped) = crate::rows::unavailable(row).or_else(missing) {
        progress(row, &format!("skipped: {skipped}"), true);
        return Outcome { row, samples, failures, skipped: Some(skipped) };
    }
    let start = Instant::now();
    for repetition in 1..=repetitions {
        for (index, side) in row.sides.iter().enumerate() {
            if failed[index] {
                continue;
            }
            progress(row, &format!("{repetition}/{repetitions} {}", side.name), false);
            match repeated(row, side) {
                Ok(sample) => samples[index].push(sample),
                Err(error) => {
                    progress(row, &format!("{} failed: {error}", side.name), true);
                    failures.push(format!("{}: {error}", side.name));
                    failed[index] = true;
                }
            }
        }
    }
    let seconds = start.elapsed().as_secs();
    let end = if failures.is_empty() { "done" } else { "done, with failures" };
    progress(row, &format!("{end}, {seconds} s"), true);
    Outcome { row, samples, failures, skipped: None }
}

/// Takes a sample. Repeats it after a failure that is unrelated to what is measured: see [`crate::parse::is_transient`].
fn repeated(row: &Row, side: &Side) -> Result<Sample, String> {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match take(row, side) {
            Err(error) if crate::parse::is_transient(&error) => last = error,
            other => return other,
        }
    }
    Err(last)
}

/// Takes a sample in a new process group with new namespaces.
fn take(row: &Row, side: &Side) -> Result<Sample, String> {
    // Where it is not permitted, the side's driver sets the size of the buffer itself: see `rows::qps`.
    let _limit = match side.rmem_max {
        Some(value) if Changed::is_permitted(Path::new(RMEM_MAX)) => {
            Some(Changed::set(Path::new(RMEM_MAX), &value.to_string()).map_err(|e| e.to_string())?)
        }
        _ => None,
    };
    let exe = env::current_exe().map_err(|error| error.to_string())?;
    let mut command = isolated(side.network);
    command.arg(exe).args(["sample", row.name, &side.name]);
    command.args(["--parent", &std::process::id().to_string()]);
    // The user's settings of Ferroce would change what is measured.
    for (name, _) in env::vars_os().filter(|(name, _)| is_setting(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command.process_group(0);
    interrupt::restore_mask(&mut command);
    let process = Process::start(command)?;
    let group = process.id();
    interrupt::set_sample(Some(group));
    let until = Instant::now() + sample::limit(side) + Duration::from_secs(10);
    let said = process.finish(until);
    interrupt::set_sample(None);
    interrupt::kill_group(group);
    let said = said.map_err(|error| one_line(reason(&error)))?;
    serde_json::from_str(said.lines().next_back().unwrap_or_default())
        .map_err(|error| format!("{error}: {}", one_line(&said)))
}

/// Whether a variable changes how Ferroce works. The folder of the virtual machine's image does not.
fn is_setting(variable: &str) -> bool {
    variable.starts_with("FERROCE_") && variable != "FERROCE_PEER_CACHE"
}

/// Returns `unshare` with what this user may do.
fn isolated(network: Network) -> Command {
    let mut command = Command::new("unshare");
    if network == Network::Machine {
        let mut plain = Command::new("env");
        plain.arg("--");
        return plain;
    }
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "--mount", "--"]);
    command
}

/// A failure without how this program was started.
fn reason(error: &str) -> &str {
    error.split_once("ferroce-bench: ").map_or(error, |(_, reason)| reason)
}

/// The last part of a long message, without line breaks.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 600;
    let words: Vec<_> = text.split_whitespace().collect();
    let line = words.join(" ");
    let skip = line.chars().count().saturating_sub(LONGEST);
    line.chars().skip(skip).collect()
}

/// Shows what is running on standard error: one line per row on a terminal, else only the ends.
fn progress(row: &Row, text: &str, end: bool) {
    let mut err = std::io::stderr().lock();
    let _ = match (err.is_terminal(), end) {
        (true, true) => writeln!(err, "\r\x1b[K{:12} {text}", row.name),
        (true, false) => write!(err, "\r\x1b[K{:12} {text}", row.name),
        (false, true) => writeln!(err, "{:12} {text}", row.name),
        (false, false) => Ok(()),
    };
    let _ = err.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_begins_with_its_reason() {
        let error = "unshare: exit status: 1: ferroce-bench: the client failed: x";
        assert_eq!(reason(error), "the client failed: x");
        assert_eq!(reason("timeout: unshare"), "timeout: unshare");
    }

    #[test]
    fn long_messages_keep_their_end() {
        let long = format!("{}\nthe  end", "x".repeat(1000));
        assert_eq!(one_line(&long).chars().count(), 600);
        assert!(one_line(&long).ends_with("x the end"));
    }
}
