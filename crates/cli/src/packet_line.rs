//! Packets as lines of text: one line each, with notes indented below.

use std::io::{self, Write};
use std::net::IpAddr;

use ferroce_trace::file::Record;
use ferroce_trace::render::text::wrap;

use crate::style::{Role, Screen, fit};

/// The column in which notes start.
const INDENT: usize = 9;

/// Notes are not wrapped to less than this.
const MIN_NOTE_WIDTH: usize = 20;

/// What the line of a packet shows.
pub(crate) struct PacketLine<'a> {
    pub(crate) record: &'a Record<'a>,
    pub(crate) addresses: Option<(IpAddr, IpAddr)>,
    pub(crate) summary: &'a str,
    /// Malformed, or with a wrong ICRC.
    pub(crate) bad: bool,
}

/// Writes lines with aligned columns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketLines {
    /// The longest pair of addresses so far, which is the width of their column.
    addresses: usize,
}

impl PacketLines {
    /// Writes one line, cut to the width of the terminal.
    pub(crate) fn packet(
        &mut self,
        out: &mut dyn Write,
        screen: &Screen,
        line: &PacketLine<'_>,
    ) -> io::Result<()> {
        let paint = screen.paint;
        let (mark, role) = match line.bad {
            false => (" ", Role::Meaning),
            true => ("✗", Role::Bad),
        };
        let time = line.record.timestamp.map_or(String::new(), |time| clock(&time.to_string()));
        let between = match line.addresses {
            Some((source, destination)) => format!("{source} → {destination}"),
            None => String::new(),
        };
        self.addresses = self.addresses.max(between.chars().count());
        let width = self.addresses;
        // Number, mark, time and addresses, with their gaps.
        let used = 6 + 1 + 1 + 1 + time.len() + 2 + width + 2;
        let summary = match screen.current_width() {
            Some(columns) => fit(line.summary, columns.saturating_sub(used)),
            None => line.summary.into(),
        };
        writeln!(
            out,
            "{:>6} {} {}  {between:<width$}  {}",
            paint.role(Role::Heading, number(line.record)),
            paint.role(Role::Bad, mark),
            paint.role(Role::Quiet, time),
            paint.role(role, summary)
        )
    }
}

/// Writes a note below a packet: `mark`, then the text, wrapped at the width of the terminal.
pub(crate) fn note(
    out: &mut dyn Write,
    screen: &Screen,
    role: Role,
    mark: &str,
    text: &str,
) -> io::Result<()> {
    let indent = INDENT + mark.chars().count();
    let width = match screen.current_width() {
        Some(columns) => columns.saturating_sub(indent).max(MIN_NOTE_WIDTH),
        None => usize::MAX,
    };
    for (at, part) in wrap(text, width).into_iter().enumerate() {
        let mark = if at == 0 { mark } else { "" };
        let before = indent - mark.chars().count();
        writeln!(out, "{:before$}{}", "", screen.paint.role(role, format!("{mark}{part}")))?;
    }
    Ok(())
}

/// The number of a frame, with that of the packet if it holds several: `12`, `12.3`.
pub(crate) fn number(record: &Record<'_>) -> String {
    match record.segment {
        None => record.number.to_string(),
        Some(segment) => format!("{}.{}", record.number, segment.number),
    }
}

/// The time of day of an RFC 3339 time: in a list the date is noise.
fn clock(time: &str) -> String {
    time.split_once('T').map_or(time, |(_, clock)| clock).trim_end_matches('Z').to_owned()
}
