//! The header of a report, and the problems of the file.

use std::collections::BTreeMap;

use super::more;
use crate::analysis::report::{FileReport, ProblemReport};
use crate::render::table::{Align, Table, cell};
use crate::render::text::{Line, Tone};
use crate::render::units;

/// The first lines of a report.
pub(super) fn head(file: &FileReport, columns: usize) -> Vec<Line> {
    let mut name = Line::of(Tone::Strong, &file.path);
    let format = if file.format.is_empty() { "not a capture file" } else { &file.format };
    name.push(Tone::Faint, format!("  {format}, {}", units::bytes(file.file_bytes)));
    let mut lines = vec![name];
    let excluded = (file.excluded_packets > 0).then(|| {
        let packets = units::counted(file.excluded_packets, "packet");
        Line::of(Tone::Faint, format!("  {packets} excluded by the filter"))
    });
    if file.packets == 0 {
        lines.extend(excluded);
        if file.problems_total == 0 && file.excluded_packets == 0 {
            lines.push(Line::of(Tone::Plain, "  no packets"));
        }
        return lines;
    }

    let packets = Line::of(Tone::Strong, units::counted(file.packets, "packet"))
        .plain(format!(", {} of RoCE", roce(file)));
    let mut figures =
        format!("{} in {}", units::bytes(file.bytes), units::duration(file.duration_ns));
    if let Some(rate) = units::bit_rate(file.bytes, file.duration_ns) {
        figures.push_str(&format!(", {rate}"));
    }
    let mut figures = Line::of(Tone::Plain, figures);
    if file.dropped > 0 {
        figures.push(Tone::Plain, " · ");
        figures.push(Tone::Warning, format!("{} lost by the capture", units::count(file.dropped)));
    }
    lines.extend(beside(packets, figures, columns));

    let mut start = Line::new();
    if let Some(since) = file.start_ns {
        start.push(Tone::Faint, format!("from {}", units::date(since)));
    }
    lines.extend(beside(start, verdicts(file), columns));
    lines.extend(excluded);
    lines
}

/// Two parts of the header on one line, or on two lines if that is too wide.
fn beside(left: Line, right: Line, columns: usize) -> Vec<Line> {
    let indented = |part| {
        let mut line = Line::of(Tone::Plain, "  ");
        line.append(part);
        line
    };
    if left.width() == 0 || right.width() == 0 || 2 + left.width() + 3 + right.width() > columns {
        let parts = [left, right].into_iter().filter(|part| part.width() > 0);
        return parts.map(indented).collect();
    }
    let mut line = indented(left.plain(" · "));
    line.append(right);
    vec![line]
}

/// Counts of ICRC check results; empty if there are none.
fn verdicts(file: &FileReport) -> Line {
    let icrc = file.icrc;
    let mut line = Line::new();
    if icrc.ok + icrc.bad + icrc.unverifiable > 0 {
        let verdicts = [
            (icrc.ok, "ok", Tone::Good),
            (icrc.bad, "bad", Tone::Bad),
            (icrc.unverifiable, "unverifiable", Tone::Warning),
        ];
        let mut before = "ICRC ";
        for (count, name, tone) in verdicts {
            line.push(Tone::Plain, before);
            let tone = if count > 0 { tone } else { Tone::Plain };
            line.push(tone, format!("{} {name}", units::count(count)));
            before = ", ";
        }
    }
    line
}

fn roce(file: &FileReport) -> String {
    if file.roce_packets == file.packets {
        return "all".to_owned();
    }
    units::count(file.roce_packets)
}

/// Limit of similar problems shown: a capture with a short snap length has the same one for every packet.
const MAX_SIMILAR: usize = 3;

/// Lists what could not be read or is damaged, with positions.
pub(super) fn problems(file: &FileReport, columns: usize, all: bool) -> Vec<Line> {
    if file.problems.is_empty() {
        return Vec::new();
    }
    let mut table =
        Table::new(&[("frame", Align::Right), ("byte", Align::Right), ("problem", Align::Rest)]);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut shown = 0;
    for problem in &file.problems {
        let pattern =
            problem.text.chars().filter(|character| !character.is_ascii_hexdigit()).collect();
        let similar = counts.entry(pattern).or_default();
        *similar += 1;
        if *similar > MAX_SIMILAR && !all {
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
