//! Printing frames: as trees, as a list, or as JSON.

use std::io::{self, Write};

use ferroce_trace::file::Record;
use ferroce_trace::segments::Segment;

use super::frame::DecodedFrame;
use super::json;
use super::text::TreeWriter;
use crate::packet_line::{PacketLine, PacketLines, note};
use crate::style::{Role, Screen, printable};

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Tree,
    /// One line each.
    List,
}

/// Writes frames, one after the other.
pub(super) struct Writer<'a> {
    out: &'a mut dyn Write,
    screen: &'a Screen,
    format: Format,
    all: bool,
    /// The number of frames printed.
    shown: u64,
    lines: PacketLines,
}

impl<'a> Writer<'a> {
    /// With `all`, trees include reserved fields and whole payloads.
    pub(super) fn new(out: &'a mut dyn Write, screen: &'a Screen, all: bool) -> Self {
        Self { out, screen, format: Format::Tree, all, shown: 0, lines: PacketLines::default() }
    }

    /// Begins the frames of `input`.
    pub(super) fn begin(&mut self, format: Format, input: &str) -> io::Result<()> {
        self.format = format;
        match format {
            Format::Json => json::begin(self.out, input),
            Format::Tree | Format::List => Ok(()),
        }
    }

    /// Prints a remark in the text formats.
    pub(super) fn remark(&mut self, text: &str) -> io::Result<()> {
        match self.format {
            Format::Json => Ok(()),
            _ => writeln!(self.out, "{}", self.screen.paint.role(Role::Quiet, text)),
        }
    }

    /// Writes a frame.
    pub(super) fn frame(&mut self, shown: &DecodedFrame<'_>) -> io::Result<()> {
        let first = self.shown == 0;
        self.shown += 1;
        match self.format {
            Format::Json => json::frame(self.out, shown, first),
            Format::List => self.list_line(shown),
            Format::Tree => {
                if !first {
                    writeln!(self.out)?;
                }
                if let Some(record) = shown.record {
                    self.record_lines(record)?;
                }
                if !shown.explanation.is_empty() {
                    let text = self.screen.paint.role(Role::Meaning, &shown.explanation);
                    writeln!(self.out, "{text}")?;
                }
                TreeWriter::new(self.screen, self.all).write(self.out, shown.tree)
            }
        }
    }

    /// Ends the frames of an input.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if self.format == Format::Json {
            json::end(self.out)?;
        }
        self.flush()
    }

    /// Flushes the output, so that an error message does not precede what it refers to.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The capture metadata of a frame.
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
        let title = match record.segment {
            None => format!("Frame {}", record.number),
            Some(Segment { number, count }) => {
                format!("Frame {}, packet {number} of {count}", record.number)
            }
        };
        writeln!(self.out, "{}{line}", paint.role(Role::Heading, title))?;
        if record.dropped > 0 {
            let text = format!("! {} lost by the capture before it", record.dropped);
            writeln!(self.out, "{}", paint.role(Role::Warning, text))?;
        }
        for comment in record.comment.iter().flat_map(|comment| comment.lines()) {
            let comment = printable(comment);
            writeln!(self.out, "{}", paint.role(Role::Quiet, format!("# {comment}")))?;
        }
        for oddity in record.oddities.iter() {
            writeln!(self.out, "{}", paint.role(Role::Warning, format!("! {oddity}")))?;
        }
        Ok(())
    }

    fn list_line(&mut self, shown: &DecodedFrame<'_>) -> io::Result<()> {
        let Some(record) = shown.record else { return Ok(()) };
        let line = PacketLine {
            record,
            addresses: shown.tree.source.zip(shown.tree.destination),
            summary: &shown.tree.summary,
            bad: !shown.tree.problems.is_empty(),
        };
        self.lines.packet(self.out, self.screen, &line)?;
        match shown.explanation.is_empty() {
            true => Ok(()),
            false => note(self.out, self.screen, Role::Quiet, "", &shown.explanation),
        }
    }
}
