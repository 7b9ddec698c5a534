//! Runs both sides of the program, and collects their findings.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use ferroce_tests::peer::Peer;
use ferroce_tests::running::Running;

use crate::program;

/// The cases that passed, and the deviations.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) good: BTreeSet<String>,
    pub(crate) wrong: BTreeSet<String>,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} cases are good", self.good.len())?;
        self.wrong.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// For a machine in software emulation.
const LIMIT: Duration = Duration::from_secs(150);

/// Runs both sides, and collects their findings.
pub(crate) fn run(passive: Command, active: Command) -> Findings {
    let until = Instant::now() + LIMIT;
    let passive = Running::start(passive);
    let active = Running::start(active).end(until);
    gather(&[("the side that asks", active), ("the side that answers", passive.end(until))])
}

fn gather(ends: &[(&str, (Option<ExitStatus>, String))]) -> Findings {
    let mut wrong = BTreeSet::new();
    let mut good: Option<BTreeSet<String>> = None;
    for (side, (status, said)) in ends {
        let after = |word: &str| -> BTreeSet<String> {
            said.lines().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect()
        };
        let theirs = after("WRONG ");
        // A side that was killed, or could not start, reports nothing.
        if theirs.is_empty() && !status.is_some_and(|status| status.success()) {
            wrong.insert(format!("{side} ended with {status:?}: {said}"));
        }
        wrong.extend(theirs);
        let fine = after("ok ");
        good = Some(
            good.map_or_else(|| fine.clone(), |good| good.intersection(&fine).cloned().collect()),
        );
    }
    Findings { good: good.unwrap_or_default(), wrong }
}

/// Runs the program between our side of a peer's network and its machines, which have the program.
pub(crate) struct Run<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) program: &'a Path,
    pub(crate) ours: IpAddr,
    pub(crate) theirs: [IpAddr; 2],
    pub(crate) mtu: u16,
}

/// A queue pair of `rdma_rxe` in SQD sometimes hangs for longer than any program waits.
pub(crate) const EXCLUDED_CASES: &str = "-x drain";

impl Run<'_> {
    fn there(&self, machine: usize, arguments: &str, to: Option<IpAddr>) -> Command {
        let (address, mtu) = (self.theirs[machine - 1], self.mtu);
        let mut line = format!("/tmp/conformance -a {address} -m {mtu} {arguments}");
        if let Some(to) = to {
            line += &format!(" {to}");
        }
        let words: Vec<_> = line.split_whitespace().collect();
        self.peer.machine(machine).command(&words, LIMIT)
    }

    fn here(&self, arguments: &str, to: Option<IpAddr>) -> Command {
        let mut command = self.peer.command_here(self.program);
        program::ours(&mut command, self.ours, &format!("-m {} {arguments}", self.mtu));
        command.args(to.map(|to| to.to_string()));
        command
    }

    pub(crate) fn rxe_to_rxe(&self) -> Findings {
        // Over the control network, which loses nothing and is not captured.
        let to = self.peer.machine(1).control_v4().into();
        run(self.there(1, EXCLUDED_CASES, None), self.there(2, EXCLUDED_CASES, Some(to)))
    }

    pub(crate) fn we_request(&self, arguments: &str) -> Findings {
        run(self.there(1, arguments, None), self.here(arguments, Some(self.theirs[0])))
    }

    pub(crate) fn we_respond(&self, arguments: &str) -> Findings {
        run(self.here(arguments, None), self.there(1, arguments, Some(self.ours)))
    }
}
