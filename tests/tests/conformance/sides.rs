//! Two sides of the program, and what they found.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ferroce_tests::peer::Peer;

use crate::program;

/// What was as wanted, case by case, and what was not.
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

/// A side that runs. Dropped, it is ended.
struct Side(Option<Child>);

impl Side {
    fn start(mut command: Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().expect("the program starts")))
    }

    /// The program limits itself: it waits for nothing longer than a minute.
    fn finish(mut self) -> Output {
        let child = self.0.take().expect("it is finished once");
        child.wait_with_output().expect("the program ends")
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs both, and gathers.
pub(crate) fn run(passive: Command, active: Command) -> Findings {
    let passive = Side::start(passive);
    let active = Side::start(active).finish();
    gather(&[("the side that asks", active), ("the side that answers", passive.finish())])
}

fn gather(outputs: &[(&str, Output)]) -> Findings {
    let mut wrong = BTreeSet::new();
    let mut good: Option<BTreeSet<String>> = None;
    for (side, output) in outputs {
        let said = String::from_utf8_lossy(&output.stdout);
        let after = |word: &str| -> BTreeSet<String> {
            said.lines().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect()
        };
        let theirs = after("WRONG ");
        // A side that was ended, or could not start, says nothing.
        if theirs.is_empty() && !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            wrong.insert(format!("{side} ended with {}: {said}{error}", output.status));
        }
        wrong.extend(theirs);
        let fine = after("ok ");
        good = Some(
            good.map_or_else(|| fine.clone(), |good| good.intersection(&fine).cloned().collect()),
        );
    }
    Findings { good: good.unwrap_or_default(), wrong }
}

/// Runs between our side of a peer's network and its machines, which have the program.
pub(crate) struct Run<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) ours: IpAddr,
    pub(crate) theirs: [IpAddr; 2],
    pub(crate) mtu: u16,
}

/// For a machine in software emulation.
const LIMIT: Duration = Duration::from_secs(150);

/// A queue pair of `rdma_rxe`'s in SQD hangs at times, for longer than any program waits.
pub(crate) const WITHOUT: &str = "-x drain";

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
        let mut command = self.peer.command_here(program::file());
        program::with_ours(&mut command, self.ours, &format!("-m {} {arguments}", self.mtu));
        command.args(to.map(|to| to.to_string()));
        command
    }

    pub(crate) fn rxe_asks_rxe(&self) -> Findings {
        // By the network that loses nothing and is in no capture.
        let to = self.peer.machine(1).control_v4().into();
        run(self.there(1, WITHOUT, None), self.there(2, WITHOUT, Some(to)))
    }

    pub(crate) fn we_ask(&self, arguments: &str) -> Findings {
        run(self.there(1, arguments, None), self.here(arguments, Some(self.theirs[0])))
    }

    pub(crate) fn we_answer(&self, arguments: &str) -> Findings {
        run(self.here(arguments, None), self.there(1, arguments, Some(self.ours)))
    }
}
