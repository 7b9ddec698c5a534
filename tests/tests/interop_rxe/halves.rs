//! Both sides of a pair of Debian's programs: one here, on our libraries, and one in the machine.

use std::fmt;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_tests::peer::{Output, Peer, Remote};
use ferroce_tests::running::Running;
use ferroce_tests::{libraries, listening};

/// The timeout of a pair.
const LIMIT: Duration = Duration::from_secs(45);

/// Our side, which is killed when this is dropped.
pub(crate) struct Ours(Option<Running>);

impl Ours {
    /// Starts a system program on our side of the network, with our libraries.
    pub(crate) fn start(peer: &Peer, program: &str, words: &[String]) -> Result<Self, String> {
        let Some(found) = libraries::program(program) else {
            return Err(format!("{program} is not installed: run `make setup`"));
        };
        let mut command = peer.command_here(found.get_program());
        for (name, value) in found.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(words);
        listening::announce(&mut command);
        command.stdin(Stdio::null());
        Ok(Self(Some(Running::start(command))))
    }

    /// Whether it exited successfully; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<bool> {
        self.0.as_mut()?.status().map(|status| status.success())
    }

    /// Ends it, if it has not exited, and returns its output.
    pub(crate) fn finish(&mut self) -> String {
        self.0.take().map(|running| running.end(Instant::now()).1).unwrap_or_default()
    }
}

/// The results and outputs of both sides.
pub(crate) struct Ends {
    /// Whether ours exited successfully; `None` if it was killed.
    pub(crate) our_success: Option<bool>,
    pub(crate) ours: String,
    pub(crate) theirs: Output,
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { our_success, ours, theirs } = self;
        write!(f, "our side, success {our_success:?}: {ours}\ntheir side: {theirs:?}")
    }
}

/// How long a side may continue after the other has failed, to report why.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// Waits for both to exit. If one fails, the other may wait for it forever, so it is ended after `grace`. `there` is
/// the name of the machine's program.
pub(crate) fn both(
    peer: &Peer,
    there: &str,
    mut ours: Ours,
    theirs: Remote,
    grace: Duration,
) -> Result<Ends, String> {
    const STEP: Duration = Duration::from_millis(20);
    let (sender, theirs_ended) = mpsc::channel();
    thread::spawn(move || sender.send(theirs.wait()));
    let mut until = Instant::now() + LIMIT;
    let mut theirs: Option<Output> = None;
    loop {
        if let Ok(output) = theirs_ended.recv_timeout(STEP) {
            theirs = Some(output.map_err(|error| error.to_string())?);
        }
        let (our_end, their_end) = (ours.ended(), theirs.as_ref().map(|output| output.status == 0));
        if our_end.is_some() && their_end.is_some() {
            break;
        }
        if our_end == Some(false) || their_end == Some(false) {
            until = until.min(Instant::now() + grace);
        }
        if Instant::now() > until {
            let _ = peer.run(&format!("killall -KILL {there}"));
            break;
        }
        if theirs.is_some() {
            // The machine's side has exited.
            thread::sleep(STEP);
        }
    }
    let our_success = ours.ended();
    let ours = ours.finish();
    let theirs = match theirs {
        Some(output) => output,
        None => {
            let output = theirs_ended.recv().map_err(|error| error.to_string())?;
            output.map_err(|error| error.to_string())?
        }
    };
    Ok(Ends { our_success, ours, theirs })
}
