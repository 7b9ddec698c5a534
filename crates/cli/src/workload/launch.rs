//! Runs a job once: starts the ranks, connects them, and notices those that end, stop or are late.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ferroce_sys::random;

use super::control::{FromRank, Start, ToRank, VERSION};
use super::fault::names;
use super::job::Job;
use super::method::Method;
use super::process::{RankProcess, Report};
use super::tally::RankResult;
use crate::progress::Progress;
use crate::session::failure::Failure;
use crate::style::Screen;

/// How long the ranks have to end after one of them has failed. Those that do not are reported and killed.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// How often the ranks are checked for signs of life.
const TICK: Duration = Duration::from_millis(100);

/// How a job is run.
pub(super) struct Launch<'a> {
    pub(super) job: &'a Job,
    /// The address that ranks use.
    pub(super) address: IpAddr,
    pub(super) method: Method,
    /// The capture file; `%r` is the rank.
    pub(super) capture: Option<&'a Path>,
    /// Prints the process IDs.
    pub(super) verbose: bool,
    pub(super) screen: &'a Screen,
}

/// The ranks of a run.
struct Ranks<'a> {
    launch: &'a Launch<'a>,
    ranks: Vec<RankProcess>,
    reports: Receiver<Report>,
    /// When each was last heard of.
    heard: Vec<Instant>,
}

/// What ended a run.
enum Trouble {
    /// This rank closed its output without a word.
    Ended(usize),
    /// This rank was silent for too long.
    Silent(usize),
    /// This rank failed.
    Failed { rank: usize, message: String },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(rank) => write!(f, "rank {rank} ended"),
            Self::Silent(rank) => write!(f, "rank {rank} does not respond"),
            Self::Failed { rank, message } => write!(f, "rank {rank} reports: {message}"),
        }
    }
}

impl Launch<'_> {
    /// Runs the job. `None` if shared memory was wanted, and some ranks do not share any.
    pub(super) fn run(&self, progress: &mut Progress) -> Result<Option<Vec<RankResult>>, Failure> {
        let (sender, reports) = mpsc::channel();
        let ranks = (0..self.job.ranks).map(|rank| RankProcess::start(rank, sender.clone()));
        let ranks: Vec<_> = ranks.collect::<Result<_, _>>()?;
        drop(sender);
        let heard = vec![Instant::now(); ranks.len()];
        let mut all = Ranks { launch: self, ranks, reports, heard };
        match all.drive(progress) {
            Ok(results) => Ok(results),
            Err(trouble) => {
                progress.erase();
                Err(all.abort(trouble))
            }
        }
    }

    fn start(&self, rank: usize, token: u64) -> ToRank {
        ToRank::Start(Box::new(Start {
            version: VERSION,
            job: self.job.clone(),
            rank,
            address: self.address,
            method: self.method,
            token,
            capture: self.capture.and_then(|path| capture_of(path, rank)),
        }))
    }
}

/// The capture file of a rank: without `%r`, only rank 0 writes one.
pub(super) fn capture_of(path: &Path, rank: usize) -> Option<PathBuf> {
    match path.to_str().filter(|text| text.contains("%r")) {
        Some(text) => Some(text.replace("%r", &rank.to_string()).into()),
        None => (rank == 0).then(|| path.to_owned()),
    }
}

impl Ranks<'_> {
    fn drive(&mut self, progress: &mut Progress) -> Result<Option<Vec<RankResult>>, Trouble> {
        let token = random::number();
        for (rank, process) in self.ranks.iter_mut().enumerate() {
            process.send(&self.launch.start(rank, token));
        }
        let mut pids = vec![0; self.ranks.len()];
        let endpoints = self.collect(|rank, message| match message {
            FromRank::Here { pid, endpoint } => {
                pids[rank] = pid;
                Some(endpoint)
            }
            _ => None,
        })?;
        for (rank, (process, pid)) in self.ranks.iter_mut().zip(pids).enumerate() {
            process.pid = Some(pid);
            if self.launch.verbose {
                let title = self.launch.method.title();
                self.launch.screen.note(format_args!("{title}: rank {rank}{}", process.name()));
            }
        }
        self.broadcast(&ToRank::Connect { endpoints });
        let shared = self.collect(|_, message| match message {
            FromRank::Ready { shares_memory } => Some(shares_memory),
            _ => None,
        })?;
        if self.launch.method == Method::RdmaSharedMemory && shared.contains(&false) {
            self.broadcast(&ToRank::Quit);
            return Ok(None);
        }
        self.broadcast(&ToRank::Go);
        if self.launch.verbose {
            self.launch.screen.note(format_args!("{}: running", self.launch.method.title()));
        }
        let mut done = vec![0; self.ranks.len()];
        let results = self.collect(|rank, message| match message {
            FromRank::Finished { result } => Some(*result),
            FromRank::Alive { operations } => {
                done[rank] = operations;
                progress.show(done.iter().sum());
                None
            }
            _ => None,
        })?;
        self.broadcast(&ToRank::Quit);
        Ok(Some(results))
    }

    fn broadcast(&mut self, message: &ToRank) {
        self.ranks.iter_mut().for_each(|rank| rank.send(message));
    }

    /// Waits until every rank has sent a message that `take` accepts.
    fn collect<T>(
        &mut self,
        mut take: impl FnMut(usize, FromRank) -> Option<T>,
    ) -> Result<Vec<T>, Trouble> {
        let mut found: Vec<Option<T>> = self.ranks.iter().map(|_| None).collect();
        self.heard.fill(Instant::now());
        while found.iter().any(Option::is_none) {
            let (rank, message) = match self.reports.recv_timeout(TICK) {
                Ok(report) => report,
                Err(RecvTimeoutError::Timeout) => {
                    self.check_silence(|rank| found[rank].is_none())?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Trouble::Ended(0)),
            };
            self.heard[rank] = Instant::now();
            match message {
                None => return Err(Trouble::Ended(rank)),
                Some(FromRank::Failed { message }) => {
                    return Err(Trouble::Failed { rank, message });
                }
                Some(message) => {
                    if let Some(value) = take(rank, message) {
                        found[rank] = Some(value);
                    }
                }
            }
            self.check_silence(|rank| found[rank].is_none())?;
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Every rank sends something at intervals, even while it computes: one that does not is stopped.
    fn check_silence(&self, waits: impl Fn(usize) -> bool) -> Result<(), Trouble> {
        let timeout = Duration::from_nanos(self.launch.job.timeout_ns);
        let silent = |rank: &usize| waits(*rank) && self.heard[*rank].elapsed() > timeout;
        (0..self.ranks.len()).find(silent).map_or(Ok(()), |rank| Err(Trouble::Silent(rank)))
    }

    /// Ends all ranks, and finds out which one is to blame: not the one that failed first, but one that does not answer.
    fn abort(mut self, trouble: Trouble) -> Failure {
        let count = self.ranks.len();
        let mut answered = vec![false; count];
        let mut dead = vec![false; count];
        let reason = trouble.to_string();
        match trouble {
            Trouble::Ended(rank) => dead[rank] = true,
            Trouble::Failed { rank, .. } => answered[rank] = true,
            Trouble::Silent(_) => {}
        }
        self.broadcast(&ToRank::Abort);
        let end = Instant::now() + GRACE;
        while (0..count).any(|rank| !answered[rank] && !dead[rank]) {
            match self.reports.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok((rank, None)) if !answered[rank] => dead[rank] = true,
                Ok((rank, Some(FromRank::Aborted | FromRank::Failed { .. }))) => {
                    answered[rank] = true;
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let which = |of: &dyn Fn(usize) -> bool| (0..count).filter(|rank| of(*rank)).collect();
        let dead: Vec<usize> = which(&|rank| dead[rank]);
        let silent: Vec<usize> = which(&|rank| !answered[rank] && !dead.contains(&rank));
        Failure::Other(self.message(&reason, &dead, &silent))
    }

    fn message(&mut self, text: &str, dead: &[usize], silent: &[usize]) -> String {
        let title = self.launch.method.title();
        let mut parts = Vec::new();
        for rank in dead {
            let end = self.ranks[*rank].end();
            parts.push(format!("rank {rank}{} {end}", self.ranks[*rank].name()));
        }
        for rank in silent {
            let name = self.ranks[*rank].name();
            parts.push(format!("rank {rank}{name} does not respond: it is stopped"));
        }
        if parts.is_empty() {
            parts.push(text.to_owned());
        }
        let others: Vec<_> = (0..self.ranks.len())
            .filter(|rank| !dead.contains(rank) && !silent.contains(rank))
            .collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!("; {} ended", names(&others)),
        };
        format!("{title}: {}{others}", parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_files_are_named_by_rank() {
        let of = |path: &str, rank| capture_of(Path::new(path), rank);
        assert_eq!(of("a.pcapng", 0), Some("a.pcapng".into()));
        assert_eq!(of("a.pcapng", 1), None);
        assert_eq!(of("%r-%r.pcapng", 12), Some("12-12.pcapng".into()));
    }
}
