//! What the file is, and what of it could not be read.

use std::collections::BTreeMap;

use super::more;
use crate::analysis::report::{FileReport, ProblemReport};
use crate::render::table::{Align, Table, cell};
use crate::render::text::{Line, Tone};
use crate::render::units;

/// The first lines of a report.
pub(super) fn head(file: &FileReport) -> Vec<Line> {
    let mut name = Line::of(Tone::Strong, &file.path);
    let format = if file.format.is_empty() { "no capture file" } else { &file.format };
    name.push(Tone::Faint, format!("  {format}, {}", units::bytes(file.file_bytes)));
    let mut lines = vec![name];
    if file.packets == 0 {
        if file.problems_total == 0 {
            lines.push(Line::of(Tone::Plain, "  no packets"));
        }
        return lines;
    }

    let mut packets = Line::of(Tone::Plain, "  ")
        .with(Tone::Strong, units::counted(file.packets, "packet"))
        .plain(format!(", {} of RoCE", roce(file)))
        .plain(format!(" · {}", units::bytes(file.bytes)))
        .plain(format!(" in {}", units::duration(file.duration_ns)));
    if let Some(rate) = units::bit_rate(file.bytes, file.duration_ns) {
        packets.push(Tone::Plain, format!(", {rate}"));
    }
    lines.push(packets);

    let mut line = Line::of(Tone::Plain, "  ");
    if let Some(start) = file.start_ns {
        line.push(Tone::Faint, format!("from {}", units::date(start)));
    }
    let icrc = file.icrc;
    if icrc.ok + icrc.bad + icrc.unverifiable > 0 {
        let verdicts = [
            (icrc.ok, "ok", Tone::Good),
            (icrc.bad, "bad", Tone::Bad),
            (icrc.unverifiable, "unverifiable", Tone::Warning),
        ];
        let mut before = if file.start_ns.is_some() { " · ICRC " } else { "ICRC " };
        for (count, name, tone) in verdicts {
            line.push(Tone::Plain, before);
            let tone = if count > 0 { tone } else { Tone::Plain };
            line.push(tone, format!("{} {name}", units::count(count)));
            before = ", ";
        }
    }
    lines.push(line);
    lines
}

fn roce(file: &FileReport) -> String {
    if file.roce_packets == file.packets {
        return "all".to_owned();
    }
    units::count(file.roce_packets)
}

/// Rows of one sort of problem: a capture with a short snap length has the same one with every packet.
const ALIKE: usize = 3;

/// What could not be read or is damaged, and where.
pub(super) fn problems(file: &FileReport, columns: usize, all: bool) -> Vec<Line> {
    if file.problems.is_empty() {
        return Vec::new();
    }
    let mut table =
        Table::new(&[("frame", Align::Right), ("byte", Align::Right), ("problem", Align::Rest)]);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut shown = 0;
    for problem in &file.problems {
        let sort =
            problem.text.chars().filter(|character| !character.is_ascii_hexdigit()).collect();
        let alike = seen.entry(sort).or_default();
        *alike += 1;
        if *alike > ALIKE && !all {
            continue;
        }
        shown += 1;
        let frame = problem.frame.map(units::count).unwrap_or_default();
        let text = Line::of(Tone::Bad, &problem.text);
        table.row(vec![
            cell(frame),
            cell(problem.offset.map(units::count).unwrap_or_default()),
            text,
        ]);
    }
    let mut lines = table.lines(columns);
    let how = if shown < file.problems.len() { "--all" } else { "" };
    let hidden = file.problems_total.saturating_sub(shown as u64);
    lines.extend(more(hidden, ("like these", "like these"), how));
    lines
}

/// A problem in one line: `frame 12 (byte 3456 of the file): …`.
pub(super) fn sentence(problem: &ProblemReport) -> String {
    let ProblemReport { frame, offset, text } = problem;
    match (frame, offset) {
        (Some(frame), Some(offset)) => format!("frame {frame} (byte {offset} of the file): {text}"),
        (Some(frame), None) => format!("frame {frame}: {text}"),
        (None, Some(offset)) => format!("byte {offset} of the file: {text}"),
        (None, None) => text.clone(),
    }
}
