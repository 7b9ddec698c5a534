//! Input that arrives while it is read: a file that grows, a pipe. Ctrl-C ends it.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;

use ferroce_sys::signal::{Signal, Signals};
use ferroce_sys::{FileWatch, Interest, Poller, clock};

use crate::live_output::LiveOutput;

/// How often a growing file is examined without a notification: file systems of other hosts send none.
const RECHECK_NS: u64 = 500_000_000;

/// After Ctrl-C, which the writer of a pipe usually receives as well: how long it may pause while it writes the rest, and
/// how long all of that may take.
const GRACE_NS: u64 = 500_000_000;
const LAST_NS: u64 = 3_000_000_000;

/// Reads what arrives, and waits for more. Before it waits, it flushes the output.
///
/// The end of the input is the end of a pipe, Ctrl-C (or another signal that ends processes), or a closed output. A file
/// that is followed has no end of its own.
pub(crate) struct LiveInput {
    file: File,
    /// For a file that is followed.
    growth: Option<Growth>,
    signals: Signals,
    output: LiveOutput,
    state: State,
    interrupted: Interrupted,
}

/// Position in a file that grows.
struct Growth {
    position: u64,
    /// Without it, the file is examined at intervals.
    watch: Option<FileWatch>,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// After the first signal: reads what is there, up to a time or a position.
    Draining {
        deadline: u64,
        end: u64,
    },
    Ended,
}

/// Whether a signal ended the input, which may be within a record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupted(Rc<Cell<bool>>);

impl Interrupted {
    pub(crate) fn get(&self) -> bool {
        self.0.get()
    }
}

impl LiveInput {
    /// Opens a file or, for `-`, standard input. With `follow`, waits at the end of a regular file for more.
    pub(crate) fn open(path: &Path, follow: bool, output: LiveOutput) -> io::Result<Self> {
        let file = match path == Path::new("-") {
            // Not through the buffer of the standard library, which poll does not know.
            true => File::from(io::stdin().as_fd().try_clone_to_owned()?),
            false => File::open(path)?,
        };
        let followed = follow && file.metadata()?.is_file();
        let growth = followed.then(|| Growth { position: 0, watch: FileWatch::new(&file).ok() });
        let signals = Signals::new().map_err(io::Error::other)?;
        let (state, interrupted) = (State::Open, Interrupted::default());
        Ok(Self { file, growth, signals, output, state, interrupted })
    }

    /// Whether a signal ended the input; keeps its value after the input is gone.
    pub(crate) fn interrupted(&self) -> Interrupted {
        self.interrupted.clone()
    }

    /// The time until which to wait.
    fn deadline(&self) -> Option<u64> {
        let now = clock::now();
        match (self.state, &self.growth) {
            (State::Draining { deadline, .. }, _) => Some(deadline.min(now + GRACE_NS)),
            (_, Some(_)) => Some(now + RECHECK_NS),
            _ => None,
        }
    }

    /// Waits for data, a change of the file or a signal. Returns whether there may be data.
    fn wait(&mut self) -> io::Result<bool> {
        let mut poller = Poller::new();
        let signal = poller.watch(&self.signals, Interest::Read);
        // Reports only that the reader of a pipe has closed it.
        let output = poller.watch(&io::stdout(), Interest::Nothing);
        let input = match &self.growth {
            None => Some(poller.watch(&self.file, Interest::Read)),
            Some(Growth { watch: Some(watch), .. }) => Some(poller.watch(watch, Interest::Read)),
            Some(Growth { watch: None, .. }) => None,
        };
        let ready = |poller: &Poller| {
            input.is_some_and(|input| {
                let found = poller.readiness(input);
                found.readable || found.broken
            })
        };
        if poller.wait(Some(clock::now())).map_err(io::Error::other)? == 0 {
            if self.output.flush().is_err() {
                self.state = State::Ended;
                return Ok(false);
            }
            poller.wait(self.deadline()).map_err(io::Error::other)?;
        }
        if poller.readiness(output).broken {
            self.state = State::Ended;
            return Ok(false);
        }
        if poller.readiness(signal).readable {
            self.signal()?;
            return Ok(false);
        }
        if let Some(Growth { watch: Some(watch), .. }) = &self.growth {
            watch.take().map_err(io::Error::other)?;
        }
        let found = ready(&poller);
        if !found && matches!(self.state, State::Draining { .. }) {
            self.state = State::Ended;
        }
        Ok(found)
    }

    /// The first signal ends the input after what is there, the second at once.
    fn signal(&mut self) -> io::Result<()> {
        if self.signals.wait().map_err(io::Error::other)? == Signal::Child {
            return Ok(());
        }
        self.interrupted.0.set(true);
        self.state = match self.state {
            State::Open => {
                let end = self.file.metadata().map_or(0, |data| data.len());
                State::Draining { deadline: clock::now() + LAST_NS, end }
            }
            _ => State::Ended,
        };
        Ok(())
    }

    /// Reads from a file that grows; `None` if there is nothing yet.
    fn read_growing(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(growth) = &mut self.growth else { return Ok(None) };
        let mut room = buffer.len();
        if let State::Draining { end, .. } = self.state {
            room = room.min(usize::try_from(end.saturating_sub(growth.position)).unwrap_or(room));
            if room == 0 {
                self.state = State::Ended;
                return Ok(None);
            }
        }
        let count = self.file.read(&mut buffer[..room])?;
        growth.position += count as u64;
        if count > 0 {
            return Ok(Some(count));
        }
        let length = self.file.metadata()?.len();
        if length < growth.position {
            return Err(io::Error::other(format!(
                "the file was truncated to {length} bytes after {} were read: start again",
                growth.position
            )));
        }
        Ok(None)
    }
}

impl Read for LiveInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.state != State::Ended {
            if self.growth.is_some() {
                if let Some(count) = self.read_growing(buffer)? {
                    return Ok(count);
                }
                if self.state != State::Ended {
                    self.wait()?;
                }
            } else if self.wait()? {
                return self.file.read(buffer);
            }
        }
        Ok(0)
    }
}
