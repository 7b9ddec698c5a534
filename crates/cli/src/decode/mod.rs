//! `ferroce decode`: frames of a capture file, or one in hexadecimal, field by field.

mod dump;
mod hex;
mod json;
mod link;
pub(crate) mod numbers;
mod text;

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use ferroce_trace::dissect::{Tree, dissect};
use ferroce_trace::file::{CaptureReader, Problem, Record};
use ferroce_trace::link::LinkType;

use crate::args::DecodeArgs;
use crate::exit::ExitStatus;
use crate::style::{Role, Screen, fit, printable};
use numbers::Selection;
use text::TreeWriter;

/// The longest text that is read as hexadecimal digits: a jumbo frame takes a fiftieth of it.
const LONGEST_HEX: u64 = 1 << 20;

/// The name of the standard input in messages.
const STANDARD_INPUT: &str = "standard input";

/// One frame on its way to the output.
struct Shown<'a> {
    /// Where it comes from, when that is a file.
    record: Option<&'a Record<'a>>,
    link: LinkType,
    tree: &'a Tree<'a>,
}

/// How frames are shown.
enum Format {
    Json,
    Tree,
    /// One line each.
    List,
}

/// Shows the frames that the arguments ask for.
pub(crate) fn run(args: &DecodeArgs, screen: &Screen) -> ExitStatus {
    let mut out = BufWriter::new(io::stdout().lock());
    let result = decode(args, screen, &mut out).and_then(|status| {
        out.flush()?;
        Ok(status)
    });
    ExitStatus::of_output(result, screen)
}

fn decode(args: &DecodeArgs, screen: &Screen, out: &mut dyn Write) -> io::Result<ExitStatus> {
    let mut job = Job { args, screen, out, shown: 0, addresses: 0 };
    match (&args.file, args.input.as_deref()) {
        (Some(file), _) => job.file(file, &args.frames),
        (None, Some("-")) if args.numbers.is_empty() => job.standard_input(),
        (None, Some("-")) => job.capture(STANDARD_INPUT, io::stdin().lock(), &args.numbers),
        (None, Some(input)) if !args.numbers.is_empty() => {
            job.file(Path::new(input), &args.numbers)
        }
        (None, Some(input)) => job.hex_or_file(input),
        // The parser asks for one of them.
        (None, None) => Ok(ExitStatus::Failure),
    }
}

/// One run of the command.
struct Job<'a> {
    args: &'a DecodeArgs,
    screen: &'a Screen,
    out: &'a mut dyn Write,
    /// Frames written so far.
    shown: u64,
    /// The longest pair of addresses in the list so far: as wide as their column is.
    addresses: usize,
}

impl Job<'_> {
    /// An argument that may be either: what can be read as digits is digits.
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

    /// Digits, or a capture by its first bytes.
    fn standard_input(&mut self) -> io::Result<ExitStatus> {
        let mut head = Vec::new();
        let mut input = io::stdin().lock();
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
        if self.args.json {
            json::begin(self.out, name)?;
        } else {
            let guessed =
                if self.args.link.is_none() { ", guessed (--link TYPE says it)" } else { "" };
            let line = format!("{} bytes, read as {}{guessed}", bytes.len(), link::name(link));
            writeln!(self.out, "{}", self.screen.paint.role(Role::Quiet, line))?;
        }
        let tree = dissect(link, bytes, bytes.len());
        self.show(&format, &Shown { record: None, link, tree: &tree })?;
        if self.args.json {
            json::end(self.out)?;
        }
        self.problems(name, None, &tree)
    }

    fn file(&mut self, path: &Path, numbers: &[numbers::Numbers]) -> io::Result<ExitStatus> {
        let name = path.to_string_lossy();
        let name = printable(&name);
        match File::open(path) {
            Ok(file) => self.capture(&name, file, numbers),
            Err(error) => Ok(self.unreadable(&name, &error)),
        }
    }

    fn unreadable(&self, name: &str, error: &io::Error) -> ExitStatus {
        self.screen.complain(format_args!("{name}: cannot be read: {}", plain(error)));
        ExitStatus::Failure
    }

    /// Frames of a capture: those asked for, or a list of all.
    fn capture(
        &mut self,
        name: &str,
        input: impl Read,
        numbers: &[numbers::Numbers],
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
        if self.args.json {
            json::begin(self.out, name)?;
        }
        let selection = (!numbers.is_empty()).then(|| Selection::new(numbers));
        let mut status = ExitStatus::Success;
        let mut damage = None;
        loop {
            let record = match reader.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(error) => {
                    damage = Some(error);
                    break;
                }
            };
            if selection.as_ref().is_none_or(|wanted| wanted.contains(record.number)) {
                let tree = dissect(record.link, record.data, record.original_len as usize);
                let link = record.link;
                self.show(&format, &Shown { record: Some(&record), link, tree: &tree })?;
                status = status.and(self.problems(name, Some(&record), &tree)?);
            }
            if selection.as_ref().is_some_and(|wanted| wanted.ends_with(record.number)) {
                break;
            }
        }
        if self.args.json {
            json::end(self.out)?;
        }
        self.out.flush()?;
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

    fn damaged(&self, name: &str, error: &ferroce_trace::file::FileError) -> ExitStatus {
        if let Problem::Io(error) = &error.problem {
            return self.unreadable(name, error);
        }
        self.screen.complain(format_args!("{name}: {error}"));
        ExitStatus::BadInput
    }

    fn missing(&self, name: &str, missing: numbers::Numbers, count: u64, cut: bool) -> ExitStatus {
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

    fn show(&mut self, format: &Format, shown: &Shown<'_>) -> io::Result<()> {
        let first = self.shown == 0;
        self.shown += 1;
        match format {
            Format::Json => json::frame(self.out, shown, first),
            Format::List => self.list_line(shown),
            Format::Tree => {
                if !first {
                    writeln!(self.out)?;
                }
                if let Some(record) = shown.record {
                    self.record_lines(record)?;
                }
                TreeWriter::new(self.screen, self.args.all).write(self.out, shown.tree)
            }
        }
    }

    /// What the capture says about a frame.
    fn record_lines(&mut self, record: &Record<'_>) -> io::Result<()> {
        let paint = self.screen.paint;
        let mut line = String::new();
        if let Some(time) = record.timestamp {
            line.push_str(&format!("  {time}"));
        }
        let captured = record.data.len();
        line.push_str(&match record.is_cut() {
            true => format!("  {captured} of {} bytes captured", record.original_len),
            false => format!("  {captured} bytes"),
        });
        if let Some(interface) = record.interface_name {
            line.push_str(&format!("  on {}", printable(interface)));
        }
        if let Some(direction) = record.direction {
            line.push_str(&format!("  {direction}"));
        }
        let title = format!("Frame {}", record.number);
        writeln!(self.out, "{}{line}", paint.role(Role::Heading, title))?;
        for comment in record.comment.iter().flat_map(|comment| comment.lines()) {
            let comment = printable(comment);
            writeln!(self.out, "{}", paint.role(Role::Quiet, format!("# {comment}")))?;
        }
        for oddity in record.oddities.iter() {
            writeln!(self.out, "{}", paint.role(Role::Warning, format!("! {oddity}")))?;
        }
        Ok(())
    }

    fn list_line(&mut self, shown: &Shown<'_>) -> io::Result<()> {
        let Some(record) = shown.record else { return Ok(()) };
        let paint = self.screen.paint;
        let (mark, role) = match shown.tree.problems.is_empty() {
            true => (" ", Role::Meaning),
            false => ("✗", Role::Bad),
        };
        let time = record.timestamp.map_or(String::new(), |time| clock(&time.to_string()));
        let between = match (shown.tree.source, shown.tree.destination) {
            (Some(source), Some(destination)) => format!("{source} → {destination}"),
            _ => String::new(),
        };
        self.addresses = self.addresses.max(between.chars().count());
        let width = self.addresses;
        // Number, mark, time and addresses, with the gaps behind them.
        let used = 6 + 1 + 1 + 1 + time.len() + 2 + width + 2;
        let summary = match self.screen.width {
            Some(columns) => fit(&shown.tree.summary, columns.saturating_sub(used)),
            None => shown.tree.summary.as_str().into(),
        };
        writeln!(
            self.out,
            "{:>6} {} {}  {between:<width$}  {}",
            paint.role(Role::Heading, record.number),
            paint.role(Role::Bad, mark),
            paint.role(Role::Quiet, time),
            paint.role(role, summary)
        )
    }

    /// Says on the standard error output what is wrong with a frame, and where in the file that is.
    fn problems(
        &mut self,
        name: &str,
        record: Option<&Record<'_>>,
        tree: &Tree<'_>,
    ) -> io::Result<ExitStatus> {
        if tree.problems.is_empty() {
            return Ok(ExitStatus::Success);
        }
        // In the order in which things happened, when both outputs are one terminal.
        self.out.flush()?;
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

/// Whether a word that names no file may have been meant as one: then that is what to complain about.
fn is_file_name(word: &str) -> bool {
    word.contains(['.', '/'])
}

/// The first bytes of pcap in all its byte orders and resolutions, and of pcapng. None of them is a digit.
fn looks_like_capture(head: &[u8]) -> bool {
    matches!(head, [0xa1, 0xb2, ..] | [_, _, 0xb2, 0xa1] | [0x0a, 0x0d, 0x0d, 0x0a])
}

/// The time of day of an RFC 3339 time: in a list the day is noise.
fn clock(time: &str) -> String {
    time.split_once('T').map_or(time, |(_, clock)| clock).trim_end_matches('Z').to_owned()
}

/// An error of the system without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}
