//! The parts of the text report, each of which is empty when there is nothing to say.

mod anomalies;
mod conversations;
mod diagnosis;
mod head;
mod lists;
mod management;
mod operations;
mod protocols;

use super::ladder;
use super::text::{Line, Tone};
use super::{graph, units};
use crate::analysis::report::{Conversation, Endpoint, FileReport, ProblemReport};

/// What the reader asked to see, beyond what everybody does.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Columns there are.
    pub columns: usize,
    /// Every row of every list, however long.
    pub all: bool,
    /// Every anomaly.
    pub anomalies: bool,
    /// Every message.
    pub messages: bool,
    /// Every packet.
    pub packets: bool,
    /// The ladder of these conversations.
    pub ladder: Option<LadderView>,
}

/// Which ladders, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LadderView {
    /// This conversation only.
    pub conversation: Option<u32>,
    /// Rows before the rest is only counted; `None` for all, nothing folded.
    pub rows: Option<usize>,
}

/// Rows of a list that is shown without being asked for.
const SHOWN: usize = 20;

/// Conversations whose ladder is drawn when none was named.
const LADDERS: usize = 8;

/// The whole report of a file.
pub fn report(file: &FileReport, view: &View) -> Vec<Line> {
    let limit = |wanted: bool| if wanted || view.all { usize::MAX } else { SHOWN };
    let columns = view.columns;
    let mut lines = head::head(file);
    let mut section = |title: &str, note: &str, body: Vec<Line>| {
        if !body.is_empty() {
            lines.push(Line::new());
            let mut line = Line::of(Tone::Title, title);
            if !note.is_empty() {
                line.push(Tone::Faint, format!("  {note}"));
            }
            lines.push(line);
            lines.extend(body);
        }
    };
    section("Diagnosis", "", diagnosis::diagnosis(file, columns, limit(false)));
    section("Not readable", "", head::problems(file, columns, limit(false)));
    section("Protocols", "", protocols::hierarchy(file, columns));
    section("Opcodes", "", protocols::opcodes(file, columns));
    section("Conversations", "", conversations::table(file, columns, limit(false)));
    section(
        "Messages",
        "latency from the first packet of a request to its acknowledgement",
        operations::table(file, columns),
    );
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
        let mut drawn = 0;
        for conversation in &file.conversations {
            if wanted.conversation.is_some_and(|id| id != conversation.id) {
                continue;
            }
            if drawn == LADDERS && !view.all && wanted.conversation.is_none() {
                let rest = (file.conversations.len() - LADDERS) as u64;
                let text = format!(
                    "  … and {}: --ladder=N draws that of conversation N, --all draws every one",
                    units::counted(rest, "more conversation")
                );
                section("Ladders", "", vec![Line::of(Tone::Faint, text)]);
                break;
            }
            let body = ladder::ladder(file, conversation, columns, wanted.rows);
            section(&format!("Ladder of conversation {}", conversation.id), "", body);
            drawn += 1;
        }
    }
    lines
}

/// A problem in one line: `frame 12 (byte 3456 of the file): …`.
pub fn problem(problem: &ProblemReport) -> String {
    head::sentence(problem)
}

/// What follows a list that is not shown in full.
fn more(hidden: u64, what: &str, how: &str) -> Option<Line> {
    let text = match how {
        "" => format!("  … and {}", units::counted(hidden, what)),
        how => format!("  … and {}: {how}", units::counted(hidden, what)),
    };
    (hidden > 0).then(|| Line::of(Tone::Faint, text))
}

/// An endpoint as it is written everywhere: `10.0.0.1 QP 0x000011`.
pub(super) fn endpoint(endpoint: &Endpoint) -> String {
    match endpoint.qpn {
        Some(qpn) => format!("{} QP 0x{qpn:06x}", endpoint.address),
        None => format!("{} QP unseen", endpoint.address),
    }
}

/// Both ends of a conversation in one line.
pub(super) fn ends(conversation: &Conversation) -> String {
    format!(
        "{} {} ↔ {}",
        conversation.transport,
        endpoint(&conversation.a),
        endpoint(&conversation.b)
    )
}

#[cfg(test)]
mod tests;
