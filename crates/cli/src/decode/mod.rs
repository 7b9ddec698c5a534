//! `ferroce decode`: shows frames of a capture file, or one in hexadecimal, field by field.

mod args;
mod dump;
mod frame;
mod hex;
mod json;
mod link;
mod numbers;
pub(crate) mod text;
mod writer;

use std::io::{self, Read};
use std::path::Path;

use ferroce_trace::dissect::{self, Tree, dissect};
use ferroce_trace::file::{CaptureReader, FileError, Problem, Record};
use ferroce_trace::filter::Filter;
use ferroce_trace::link::LinkType;
use ferroce_trace::render::units;
use ferroce_trace::segments::PacketRun;

use crate::exit::ExitStatus;
use crate::input::{Decompressed, Input, Interrupted, LiveInput, is_damage};
use crate::live_output::LiveOutput;
use crate::style::{Screen, printable};
pub(crate) use args::DecodeArgs;
use frame::DecodedFrame;
use numbers::{Numbers, Selection};
use writer::{Format, Writer};

/// The maximum length of hexadecimal input: fifty times that of a jumbo frame.
const LONGEST_HEX: u64 = 1 << 20;

/// The name of standard input in messages.
const STANDARD_INPUT: &str = "standard input";

/// Shows the requested frames.
pub(crate) fn run(args: &DecodeArgs, screen: &Screen) -> ExitStatus {
    let out = LiveOutput::new();
    ExitStatus::of_output(decode(args, screen, &out), screen)
}

fn decode(args: &DecodeArgs, screen: &Screen, out: &LiveOutput) -> io::Result<ExitStatus> {
    let mut writer = out.clone();
    let writer = Writer::new(&mut writer, screen, args.all);
    let (filter, interrupted) = (args.filter.filter(), Interrupted::default());
    let mut job = Job { args, screen, filter, out: out.clone(), interrupted, writer };
    match (&args.file, args.input.as_deref()) {
        (Some(file), _) => job.file(file, &args.frames),
        (None, Some("-")) => job.standard_input(&args.numbers),
        (None, Some(input)) if !args.numbers.is_empty() => {
            job.file(Path::new(input), &args.numbers)
        }
        (None, Some(input)) => job.hex_or_file(input),
        // The parser requires one of them.
        (None, None) => Ok(ExitStatus::Failure),
    }
}

/// One run of the command.
struct Job<'a> {
    args: &'a DecodeArgs,
    screen: &'a Screen,
    filter: Filter,
    out: LiveOutput,
    /// Whether a signal ended standard input.
    interrupted: Interrupted,
    writer: Writer<'a>,
}

impl Job<'_> {
    /// An argument that may be digits or a file name; valid digits take precedence.
    fn hex_or_file(&mut self, input: &str) -> io::Result<ExitStatus> {
        let foreign = match hex::parse(input) {
            Ok(bytes) => return self.bytes("hexadecimal", &bytes),
            Err(error) => error,
        };
        let path = Path::new(input);
        let looks_like_digits = !matches!(foreign, hex::HexError::Foreign { .. });
        if path.exists() || (self.args.link.is_none() && !looks_like_digits && is_file_name(input))
        {
            if self.args.link.is_some() {
                self.screen.complain(format_args!(
                    "{input}: a capture file says its link type by itself: leave out --link"
                ));
                return Ok(ExitStatus::Failure);
            }
            return self.file(path, &[]);
        }
        match looks_like_digits {
            true => self.screen.complain(format_args!("not a frame in hexadecimal: {foreign}")),
            false => self.screen.complain(format_args!(
                "{input:?} is neither a file nor a frame in hexadecimal: {foreign}"
            )),
        }
        Ok(ExitStatus::BadInput)
    }

    /// Standard input: digits, or a capture, recognised by its first bytes.
    fn standard_input(&mut self, numbers: &[Numbers]) -> io::Result<ExitStatus> {
        let input = match LiveInput::open(Path::new("-"), false, self.out.clone()) {
            Ok(input) => input,
            Err(error) => return Ok(self.unreadable(STANDARD_INPUT, &error)),
        };
        self.interrupted = input.interrupted();
        let mut input = Decompressed::new(input, self.args.decompression);
        if !numbers.is_empty() {
            return self.capture(STANDARD_INPUT, input, numbers);
        }
        let mut head = Vec::new();
        if let Err(error) = input.by_ref().take(4).read_to_end(&mut head) {
            return Ok(self.unreadable(STANDARD_INPUT, &error));
        }
        if looks_like_capture(&head) {
            return self.capture(STANDARD_INPUT, head.as_slice().chain(input), &[]);
        }
        let mut text = head;
        if let Err(error) = input.take(LONGEST_HEX).read_to_end(&mut text) {
            return Ok(self.unreadable(STANDARD_INPUT, &error));
        }
        if text.len() as u64 > LONGEST_HEX {
            self.screen.complain(format_args!(
                "{STANDARD_INPUT}: more than {LONGEST_HEX} bytes of text are no frame"
            ));
            return Ok(ExitStatus::BadInput);
        }
        match hex::parse(&String::from_utf8_lossy(&text)) {
            Ok(bytes) => self.bytes(STANDARD_INPUT, &bytes),
            Err(error) => {
                self.screen.complain(format_args!(
                    "{STANDARD_INPUT}: not a frame in hexadecimal: {error}"
                ));
                Ok(ExitStatus::BadInput)
            }
        }
    }

    /// One frame.
    fn bytes(&mut self, name: &str, bytes: &[u8]) -> io::Result<ExitStatus> {
        let link = match self.args.link {
            Some(link) => link.link_type(),
            None => link::guess(bytes),
        };
        let format = if self.args.json { Format::Json } else { Format::Tree };
        self.writer.begin(format, name)?;
        let guessed = if self.args.link.is_none() { ", guessed (--link TYPE says it)" } else { "" };
        let (len, link_name) = (bytes.len(), link::name(link));
        self.writer.remark(&format!("{len} bytes, read as {link_name}{guessed}"))?;
        let tree = dissect(link, bytes, link::wire_length(link, bytes));
        let explanation = self.explanation(link, bytes, bytes.len());
        self.writer.frame(&DecodedFrame { record: None, link, tree: &tree, explanation })?;
        self.writer.end()?;
        self.problems(name, None, &tree)
    }

    fn file(&mut self, path: &Path, numbers: &[Numbers]) -> io::Result<ExitStatus> {
        let name = path.to_string_lossy();
        let name = printable(&name);
        match Input::open(path, self.args.decompression) {
            Ok(input) => self.capture(&name, input, numbers),
            Err(error) => Ok(self.unreadable(&name, &error)),
        }
    }

    fn unreadable(&self, name: &str, error: &io::Error) -> ExitStatus {
        if is_damage(error) {
            self.screen.complain(format_args!("{name}: {error}"));
            return ExitStatus::BadInput;
        }
        self.screen.complain(format_args!("{name}: cannot read it: {}", plain(error)));
        ExitStatus::Failure
    }

    /// The frames of a capture: the requested ones, or a list of all.
    fn capture(
        &mut self,
        name: &str,
        input: impl Read,
        numbers: &[Numbers],
    ) -> io::Result<ExitStatus> {
        let mut reader = match CaptureReader::new(input) {
            Ok(reader) => reader,
            Err(error) => return Ok(self.damaged(name, &error)),
        };
        let format = match (self.args.json, numbers.is_empty()) {
            (true, _) => Format::Json,
            (false, true) => Format::List,
            (false, false) => Format::Tree,
        };
        self.writer.begin(format, name)?;
        let selection = (!numbers.is_empty()).then(|| Selection::new(numbers));
        let mut status = ExitStatus::Success;
        let mut damage = None;
        let (mut joined, mut buffer) = (0u64, Vec::new());
        loop {
            let record = match reader.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                // A pipe that Ctrl-C ended may end within a record.
                Err(FileError { problem: Problem::Truncated { .. }, .. })
                    if self.interrupted.get() =>
                {
                    break;
                }
                Err(error) => {
                    damage = Some(error);
                    break;
                }
            };
            if selection.as_ref().is_none_or(|wanted| wanted.contains(record.number)) {
                match PacketRun::find(&record) {
                    None => status = status.and(self.packet(name, &record)?),
                    Some(run) => {
                        joined += 1;
                        for index in 0..run.captured() {
                            let packet = run.packet(&record, index, &mut buffer);
                            status = status.and(self.packet(name, &packet)?);
                        }
                        status = status.and(self.cut(name, &record, run)?);
                    }
                }
            }
            if selection.as_ref().is_some_and(|wanted| wanted.ends_with(record.number)) {
                break;
            }
        }
        self.writer.end()?;
        self.capture_notes(name, joined, reader.dropped());
        let count = reader.records();
        let cut = damage.is_some();
        if let Some(error) = damage {
            status = status.and(self.damaged(name, &error));
        }
        for missing in selection.iter().flat_map(|wanted| wanted.missing(count)) {
            status = status.and(self.missing(name, missing, count, cut));
        }
        Ok(status)
    }

    /// A packet: a record, or one of several in a record.
    fn packet(&mut self, name: &str, packet: &Record<'_>) -> io::Result<ExitStatus> {
        if !self.filter.matches_record(packet) {
            return Ok(ExitStatus::Success);
        }
        let tree = dissect(packet.link, packet.data, packet.original_len as usize);
        self.writer.frame(&DecodedFrame {
            record: Some(packet),
            link: packet.link,
            tree: &tree,
            explanation: self.explanation(packet.link, packet.data, packet.original_len as usize),
        })?;
        self.problems(name, Some(packet), &tree)
    }

    /// What a frame means, for `--explain`.
    fn explanation(&self, link: LinkType, bytes: &[u8], original_len: usize) -> String {
        match dissect::read(link, bytes, original_len) {
            Ok(Some((_, frame))) if self.args.explain => dissect::explain(&frame),
            _ => String::new(),
        }
    }

    /// Reports how many packets of a record the capture truncated.
    fn cut(&mut self, name: &str, record: &Record<'_>, run: PacketRun) -> io::Result<ExitStatus> {
        let cut = run.count() - run.captured();
        if cut == 0 {
            return Ok(ExitStatus::Success);
        }
        self.writer.flush()?;
        self.screen.complain(format_args!(
            "{name}: frame {}: of {} packets, the capture kept nothing of {cut}: record with a larger snap length",
            record.number,
            run.count()
        ));
        Ok(ExitStatus::BadInput)
    }

    /// Reports how the capture was taken, if that affects the reader.
    fn capture_notes(&self, name: &str, joined: u64, dropped: u64) {
        if joined > 0 {
            self.screen.complain(format_args!(
                "{name}: captured before segmentation offload split packets, or after GRO joined them: the packets \
                 of {} are shown one by one",
                units::counted(joined, "frame")
            ));
        }
        if dropped > 0 {
            let packets = units::counted(dropped, "packet");
            self.screen.complain(format_args!("{name}: the capture lost {packets}"));
        }
    }

    fn damaged(&self, name: &str, error: &FileError) -> ExitStatus {
        if let Problem::Io(error) = &error.problem {
            return self.unreadable(name, error);
        }
        self.screen.complain(format_args!("{name}: {error}"));
        ExitStatus::BadInput
    }

    fn missing(&self, name: &str, missing: Numbers, count: u64, cut: bool) -> ExitStatus {
        let frames = if count == 1 { "frame" } else { "frames" };
        if cut {
            let text = format!("{missing} exist: only {count} {frames} could be read");
            self.screen.complain(format_args!("{name}: {text}"));
            return ExitStatus::BadInput;
        }
        let text = format!("{missing} exist: the file has {count} {frames}");
        self.screen.complain(format_args!("{name}: {text}"));
        ExitStatus::Failure
    }

    /// Reports on standard error what is wrong with a frame, and where it is in the file.
    fn problems(
        &mut self,
        name: &str,
        record: Option<&Record<'_>>,
        tree: &Tree<'_>,
    ) -> io::Result<ExitStatus> {
        if tree.problems.is_empty() {
            return Ok(ExitStatus::Success);
        }
        // In chronological order, if both outputs are the same terminal.
        self.writer.flush()?;
        for problem in &tree.problems {
            let place = match record {
                None => format!("at byte {}", problem.offset),
                Some(record) => format!(
                    "frame {}, at byte {} (byte {} of the file)",
                    record.number,
                    problem.offset,
                    record.data_offset + problem.offset as u64
                ),
            };
            self.screen.complain(format_args!("{name}: {place}: {}", problem.message));
        }
        Ok(ExitStatus::BadInput)
    }
}

/// Whether an argument that is not an existing file was probably meant as one, so that the message should say so.
fn is_file_name(word: &str) -> bool {
    word.contains(['.', '/'])
}

/// The magic numbers of pcap, in all byte orders and resolutions, and of pcapng. None of them is a digit.
fn looks_like_capture(head: &[u8]) -> bool {
    matches!(head, [0xa1, 0xb2, ..] | [_, _, 0xb2, 0xa1] | [0x0a, 0x0d, 0x0d, 0x0a])
}

/// A system error without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}
