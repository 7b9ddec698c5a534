//! `ferroce capture`, and the `--capture` option of commands that open a device.
//!
//! | file | role |
//! |---|---|
//! | `option` | the `--capture` and `--capture-policy` options |
//! | `args` | the arguments of `ferroce capture` |
//! | `collector` | takes the packets of processes and interfaces, in the order of time; for other commands as well |
//! | `output` | files and rotation |
//! | `pipe` | output to a pipe |
//! | `summary` | the live line and the result |

mod args;
pub(crate) mod collector;
mod option;
mod output;
mod pipe;
mod summary;

use std::io;
use std::time::{Duration, Instant};

use ferroce_sys::capture_link::Parameters;
use ferroce_sys::signal::Signals;
use ferroce_trace::file::{LinkType, Oddities, Record, WriteError};
use ferroce_trace::filter::Filter;
use ferroce_wire::number::Qpn;

pub(crate) use args::CaptureCommandArgs;
pub(crate) use option::*;

use crate::exit::ExitStatus;
use crate::style::Screen;
use collector::{Captured, Chunk, Collector};
use output::{Files, Rotation};
use summary::Summary;

/// What a filter has to see of a packet, whatever the snap length: all headers, and a message of the connection manager.
const FILTERED: u32 = 512;

/// How often packets lost by the kernel are counted and files of a rotation by time are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Why a capture has ended.
enum End {
    /// As asked: a signal, a count, a time.
    Asked,
    /// The reader of standard output is gone.
    Closed,
    Failed(String),
}

/// Captures packets until a signal, the count or the time.
pub(crate) fn run(args: &CaptureCommandArgs, screen: &Screen) -> ExitStatus {
    match Capture::start(args, screen) {
        Ok(capture) => capture.run(),
        Err(message) => {
            screen.complain(message);
            ExitStatus::Failure
        }
    }
}

struct Capture<'a> {
    args: &'a CaptureCommandArgs,
    screen: &'a Screen,
    signals: Signals,
    filter: Filter,
    /// The filter without its queue pairs.
    any_queue_pair: Filter,
    collector: Collector,
    files: Files,
    summary: Summary,
    /// The longest time that taking and writing packets took at once.
    longest_pass: Duration,
}

impl<'a> Capture<'a> {
    fn start(args: &'a CaptureCommandArgs, screen: &'a Screen) -> Result<Self, String> {
        args.check()?;
        // Before anything is opened, so that every signal ends the capture with a complete file.
        let signals = Signals::new().map_err(|error| error.to_string())?;
        let filter = args.filter.filter();
        let snap_len = if filter.is_empty() { args.snaplen } else { args.snaplen.max(FILTERED) };
        let parameters = (!args.no_processes).then(|| Parameters {
            block: args.capture_policy == PolicyChoice::Block,
            snap_len,
            ring: args.buffer.0 as u32,
        });
        let rotation = Rotation {
            size: args.rotate_size.map(|size| size.0),
            time: args.rotate_time.map(|time| Duration::from_nanos(time.nanoseconds)),
            files: args.files,
        };
        let files = Files::create(&args.write, rotation, args.snaplen, &signals)?;
        let collector = Collector::open(parameters, &args.interface)?;
        let summary = Summary::new(args.quiet);
        let any_queue_pair = Filter { queue_pairs: Vec::new(), ..filter.clone() };
        let longest_pass = Duration::ZERO;
        Ok(Self {
            args,
            screen,
            signals,
            filter,
            any_queue_pair,
            collector,
            files,
            summary,
            longest_pass,
        })
    }

    fn run(mut self) -> ExitStatus {
        let mut chunk = Chunk::default();
        let mut end = self.collect(&mut chunk);
        self.summary.erase();
        self.files.end_at(Instant::now());
        self.collector.stop();
        // What the processes have recorded so far.
        while matches!(end, End::Asked) && !self.is_enough() {
            match self.step(&mut chunk) {
                Ok(true) => {}
                Ok(false) => break,
                Err(failed) => end = failed,
            }
        }
        self.collector.finish();
        if !matches!(end, End::Closed) {
            if matches!(end, End::Failed(_)) {
                self.files.repair();
            }
            if let Err(error) = self.files.end(self.collector.interfaces()) {
                self.files.repair();
                if let End::Asked = end {
                    end = self.ended_by(error);
                }
            }
        }
        self.report(&end)
    }

    /// Captures until the end.
    fn collect(&mut self, chunk: &mut Chunk) -> End {
        let started = Instant::now();
        let duration = self.args.duration.map(|time| Duration::from_nanos(time.nanoseconds));
        let deadline = duration.map(|duration| started + duration);
        if let Some(deadline) = deadline {
            self.files.end_at(deadline);
        }
        let mut next_check = started;
        loop {
            let before = Instant::now();
            let more = match self.step(chunk) {
                Ok(_) => chunk.is_large(),
                Err(end) => return end,
            };
            let now = Instant::now();
            self.longest_pass = self.longest_pass.max(now - before);
            if self.is_enough() || deadline.is_some_and(|deadline| now >= deadline) {
                return End::Asked;
            }
            if now >= next_check {
                next_check = now + CHECK_INTERVAL;
                self.collector.count_dropped();
                if let Err(message) = self.files.rotate(self.collector.interfaces()) {
                    return End::Failed(message);
                }
                self.summary.state_losses(self.collector.dropped(), self.screen);
                self.summary.announce(&self.collector, &self.files, self.screen);
                self.summary.show(&self.collector, &self.files);
                if self.is_signalled() {
                    return End::Asked;
                }
            }
            if !more {
                self.collector.wait(&[&self.signals], deadline);
                if self.is_signalled() {
                    return End::Asked;
                }
            }
        }
    }

    fn is_signalled(&self) -> bool {
        use ferroce_sys::signal::Signal;
        use ferroce_sys::{Interest, Poller};
        let mut poller = Poller::new();
        let index = poller.watch(&self.signals, Interest::Read);
        let _ = poller.wait(Some(0));
        poller.readiness(index).readable && !matches!(self.signals.wait(), Ok(Signal::Child))
    }

    fn is_enough(&self) -> bool {
        self.args.count.is_some_and(|count| self.files.packets >= count)
    }

    /// Takes packets and writes them. Returns whether there were any.
    fn step(&mut self, chunk: &mut Chunk) -> Result<bool, End> {
        let any = match self.collector.collect(chunk) {
            Ok(any) => any,
            Err(error) => return Err(End::Failed(format!("cannot read an interface: {error}"))),
        };
        let described = self.files.describe(self.collector.interfaces());
        described.map_err(|error| self.ended_by(error))?;
        let left = self.args.count.map_or(u64::MAX, |count| count - self.files.packets);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let mut wanted = Vec::new();
        for packet in chunk.packets() {
            if self.is_wanted(&packet) {
                wanted.push(packet);
            } else {
                self.files.skip(&packet);
            }
        }
        wanted.truncate(left);
        let mut rest = &wanted[..];
        while !rest.is_empty() {
            // A file of a rotation by size is at most one batch longer than asked.
            let (batch, later) = rest.split_at(rest.len().min(256));
            rest = later;
            self.files.write(batch).map_err(|error| self.ended_by(error))?;
            self.files.rotate(self.collector.interfaces()).map_err(End::Failed)?;
        }
        Ok(any)
    }

    fn is_wanted(&self, packet: &Captured<'_>) -> bool {
        if self.filter.is_empty() {
            return true;
        }
        let header = &packet.header;
        // The process knows the queue pair that sent it; the packet names only the destination.
        let sender = (packet.by_process && !header.received).then_some(Qpn(header.queue_pair));
        let record = Record {
            number: 0,
            offset: 0,
            data_offset: 0,
            timestamp: None,
            section: 0,
            interface: 0,
            interface_name: None,
            link: LinkType::ETHERNET,
            original_len: header.original,
            data: packet.frame,
            comment: None,
            direction: None,
            dropped: 0,
            segment: None,
            oddities: Oddities::default(),
        };
        self.filter.matches_record(&record)
            || sender.is_some_and(|sender| self.filter.queue_pairs.contains(&sender))
                && self.any_queue_pair.matches_record(&record)
    }

    fn ended_by(&self, error: WriteError) -> End {
        match &error {
            WriteError::Io(cause) if cause.kind() == io::ErrorKind::BrokenPipe => End::Closed,
            _ => End::Failed(self.files.failure(&error)),
        }
    }

    fn report(&self, end: &End) -> ExitStatus {
        let dropped = self.collector.dropped();
        self.summary.finish(&self.collector, &self.files, self.args, self.screen);
        if let Some(asked) = self.args.duration {
            let asked = Duration::from_nanos(asked.nanoseconds);
            if let Some(late) = summary::late(asked, self.summary.elapsed(), self.longest_pass) {
                self.screen.complain(late);
            }
        }
        match end {
            End::Failed(message) => {
                self.screen.complain(format_args!(
                    "{message}; the capture ends after {} packets",
                    self.files.packets
                ));
                ExitStatus::Failure
            }
            End::Asked | End::Closed if dropped > 0 => {
                self.screen.complain(summary::losses(dropped, self.files.packets));
                ExitStatus::Success
            }
            End::Asked | End::Closed => ExitStatus::Success,
        }
    }
}
