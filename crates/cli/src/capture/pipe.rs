//! A capture that is written to a pipe: its reader may stop reading.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, OwnedFd};

use ferroce_sys::{Interest, Poller, clock};

/// A pipe that is writable takes this without blocking (`PIPE_BUF`, pipe(7)).
const WRITABLE: usize = 4096;

/// How long the end of a capture waits for a reader that takes nothing, in nanoseconds.
const PATIENCE: u64 = 2_000_000_000;

/// Writes to a pipe as long as its reader reads or the capture goes on. write(2) alone would not end with the capture.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Readable when the capture is to end.
    signals: OwnedFd,
    deadline: Option<u64>,
    abandoned: bool,
}

impl Pipe {
    pub(super) fn new(signals: &impl AsFd) -> io::Result<Self> {
        let signals = signals.as_fd().try_clone_to_owned()?;
        Ok(Self { signals, deadline: None, abandoned: false })
    }

    /// The capture ends at this time.
    pub(super) fn end_at(&mut self, deadline: u64) {
        self.deadline = Some(deadline);
    }

    pub(super) fn write(&mut self, file: &mut File, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.abandoned || !self.is_writable(file) {
            self.abandoned = true;
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the reader of the pipe reads nothing, and the capture was to end",
            ));
        }
        let mut room = WRITABLE;
        let mut start = Vec::new();
        for slice in slices {
            let length = slice.len().min(room);
            start.push(IoSlice::new(&slice[..length]));
            room -= length;
            if room == 0 {
                break;
            }
        }
        file.write_vectored(&start)
    }

    /// Waits until the pipe is writable or its reader is gone. Returns false if the capture was to end meanwhile and the
    /// reader still takes nothing.
    fn is_writable(&self, file: &File) -> bool {
        let mut poller = Poller::new();
        let output = poller.watch(file, Interest::Write);
        let signals = poller.watch(&self.signals, Interest::Read);
        let is_ready = |poller: &Poller| {
            let found = poller.readiness(output);
            found.writable || found.broken
        };
        let _ = poller.wait(self.deadline);
        if !is_ready(&poller) {
            poller.set(signals, Interest::Nothing);
            let _ = poller.wait(Some(clock::now() + PATIENCE));
        }
        is_ready(&poller)
    }
}
