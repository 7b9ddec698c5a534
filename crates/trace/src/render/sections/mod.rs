//! The sections of the text report. A section without content is omitted.

mod anomalies;
mod conversations;
mod diagnosis;
mod head;
mod lists;
mod management;
mod operations;
mod protocols;

use super::ladder::Ladders;
use super::text::{Line, Tone, width, wrap};
use super::{graph, units};
use crate::analysis::report::{Conversation, FileReport, ProblemReport};

/// Optional parts and layout of the text report.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Width of the output in columns.
    pub columns: usize,
    /// Every row of every list.
    pub all: bool,
    /// Every anomaly.
    pub anomalies: bool,
    /// Every message.
    pub messages: bool,
    /// Every packet.
    pub packets: bool,
    /// Ladder diagrams.
    pub ladder: Option<LadderView>,
}

/// Selection and length of the ladders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LadderView {
    /// This conversation only.
    pub conversation: Option<u32>,
    /// Limit of rows; `None` draws every packet without folding.
    pub rows: Option<usize>,
}

/// Rows of a list shown by default.
const DEFAULT_ROWS: usize = 20;

/// Number of ladders drawn by default.
const DEFAULT_LADDERS: usize = 8;

/// Draws the whole report of a file.
pub fn report(file: &FileReport, view: &View) -> Vec<Line> {
    let limit = |wanted: bool| if wanted || view.all { usize::MAX } else { DEFAULT_ROWS };
    let columns = view.columns;
    let mut lines = head::head(file, columns);
    let mut section = |title: &str, note: &str, body: Vec<Line>| {
        if !body.is_empty() {
            lines.push(Line::new());
            let mut line = Line::of(Tone::Title, title);
            if !note.is_empty() && line.width() + 2 + width(note) <= columns {
                line.push(Tone::Faint, format!("  {note}"));
                lines.push(line);
            } else {
                lines.push(line);
                lines.extend(paragraph(note, 2, columns));
            }
            lines.extend(body);
        }
    };
    section("Diagnosis", "", diagnosis::diagnosis(file, columns, limit(false)));
    section("Problems", "", head::problems(file, columns, view.all));
    section("Protocols", "", protocols::hierarchy(file, columns));
    section("Opcodes", "", protocols::opcodes(file, columns));
    section("Conversations", "", conversations::table(file, columns, limit(false)));
    let measured = match file.latency.is_empty() {
        true => "",
        false => "latency from a request's first packet to its acknowledgement",
    };
    section("Messages", measured, operations::table(file, columns));
    section("Anomalies", "", anomalies::list(file, columns, limit(view.anomalies)));
    section("Connection manager", "", management::cm(file, columns, limit(false)));
    section("Set-up exchange", "", management::setup(file, columns, limit(false)));
    section("Traffic over time", "", graph::traffic(&file.graph, columns));
    if view.messages {
        section("Every message", "", lists::messages(file, columns));
    }
    if view.packets {
        section("Every packet", "", lists::packets(file, columns));
    }
    if let Some(wanted) = view.ladder {
        let id = wanted.conversation;
        let chosen = |it: &&Conversation| id.is_none_or(|id| id == it.id);
        let limit = if view.all { usize::MAX } else { DEFAULT_LADDERS };
        let ladders = Ladders::new(file);
        for conversation in file.conversations.iter().filter(chosen).take(limit) {
            let title = format!("Ladder of conversation {}", conversation.id);
            let mut note = conversation.transport.to_owned();
            if let Some(mtu) = conversation.path_mtu {
                note.push_str(&format!(", MTU {mtu}"));
            }
            note.push_str(&format!(", {}", ladders.caption(conversation)));
            let body = ladders.draw(conversation, columns, wanted.rows);
            section(&title, &note, body);
        }
        let count = file.conversations.iter().filter(chosen).count();
        let text = match id {
            Some(id) if count == 0 => format!("  there is no conversation {id}"),
            _ if count > limit => format!(
                "  … and {}: --ladder=N draws that of conversation N, --all draws every one",
                units::counted((count - limit) as u64, "more conversation")
            ),
            _ => String::new(),
        };
        if !text.is_empty() {
            section("Ladders", "", vec![Line::of(Tone::Faint, text)]);
        }
    }
    lines
}

/// Wraps faint text; no lines for empty text.
fn paragraph(text: &str, indent: usize, columns: usize) -> Vec<Line> {
    let parts = wrap(text, columns.saturating_sub(indent)).into_iter();
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(|part| Line::of(Tone::Faint, format!("{:indent$}{part}", ""))).collect()
}

/// A problem in one line: `frame 12 (byte 3456 of the file): …`.
pub fn problem(problem: &ProblemReport) -> String {
    head::sentence(problem)
}

/// The line after a list that is not shown in full.
fn more(hidden: u64, (one, many): (&str, &str), how: &str) -> Option<Line> {
    let what = if hidden == 1 { one } else { many };
    let mut text = format!("  … and {} more {what}", units::count(hidden));
    if !how.is_empty() {
        text.push_str(&format!(": {how}"));
    }
    (hidden > 0).then(|| Line::of(Tone::Faint, text))
}

#[cfg(test)]
mod tests;
