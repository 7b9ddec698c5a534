//! The long lists: every message, every packet.

use super::more;
use crate::analysis::report::{CapturedMessage, FileReport, MessageStatus};
use crate::render::table::{Align, Table, cell};
use crate::render::text::{Line, Tone};
use crate::render::units::{self, Clock};

/// Every message, in order of completion.
pub(super) fn messages(file: &FileReport, columns: usize) -> Vec<Line> {
    if file.messages.is_empty() {
        return Vec::new();
    }
    let clock = Clock::for_times(file.messages.iter().map(|message| message.time_ns));
    let mut table = Table::new(&[
        (clock.unit(), Align::Right),
        ("", Align::Right),
        ("", Align::Left),
        ("operation", Align::Left),
        ("size", Align::Right),
        ("packets", Align::Right),
        ("frames", Align::Left),
        ("PSN", Align::Left),
        ("latency", Align::Right),
        ("", Align::Rest),
    ]);
    for message in &file.messages {
        let (direction, tone) =
            if message.from_a { ("A→B", Tone::Forth) } else { ("B→A", Tone::Back) };
        table.row(vec![
            Line::of(Tone::Faint, clock.time(message.time_ns)),
            Line::of(Tone::Faint, format!("#{}", message.conversation)),
            Line::of(tone, direction),
            cell(message.operation),
            cell(units::bytes(message.size)),
            cell(units::count(message.packets)),
            Line::of(Tone::Faint, range(message.first_frame, message.last_frame)),
            cell(psns(message.psn)),
            cell(message.latency_ns.map(units::duration).unwrap_or_default()),
            outcome(message),
        ]);
    }
    let table = table.without_columns_that_do_not_fit(columns, &["packets", "frames"]);
    let mut lines = table
        .without_columns_that_do_not_fit(columns, &["PSN", "frames", "packets"])
        .lines(columns);
    let hidden = file.messages_total.saturating_sub(file.messages.len() as u64);
    lines.extend(more(hidden, ("message", "messages"), "--max-messages"));
    lines
}

fn range(first: u64, last: u64) -> String {
    if first == last { first.to_string() } else { format!("{first}–{last}") }
}

fn psns((first, last): (u32, u32)) -> String {
    if first == last { format!("{first:06x}") } else { format!("{first:06x}–{last:06x}") }
}

/// Status and further fields of a message.
fn outcome(message: &CapturedMessage) -> Line {
    let (text, tone) = match message.status {
        MessageStatus::Acknowledged => ("ok", Tone::Good),
        MessageStatus::Refused => ("refused", Tone::Bad),
        MessageStatus::Unacknowledged => ("unacknowledged", Tone::Warning),
        MessageStatus::Sent => ("sent", Tone::Plain),
        MessageStatus::Incomplete => ("incomplete", Tone::Warning),
    };
    let mut line = Line::of(tone, text);
    if message.retransmitted > 0 {
        line.push(Tone::Warning, format!(", {} retransmitted", message.retransmitted));
    }
    if let Some(immediate) = message.immediate {
        line.push(Tone::Faint, format!(", imm 0x{immediate:08x}"));
    }
    if let Some(key) = message.invalidate {
        line.push(Tone::Faint, format!(", invalidates 0x{key:08x}"));
    }
    line
}

/// Every packet with its ICRC verdict and anomalies.
pub(super) fn packets(file: &FileReport, columns: usize) -> Vec<Line> {
    if file.packet_list.is_empty() {
        return Vec::new();
    }
    let clock = Clock::for_times(file.packet_list.iter().map(|row| row.time_ns));
    let mut table = Table::new(&[
        ("frame", Align::Right),
        (clock.unit(), Align::Right),
        ("", Align::Right),
        ("", Align::Left),
        ("ICRC", Align::Left),
        ("packet", Align::Rest),
    ]);
    for row in &file.packet_list {
        let (conversation, direction) = match (row.conversation, row.from_a) {
            (Some(id), true) => (format!("#{id}"), Line::of(Tone::Forth, "A→B")),
            (Some(id), false) => (format!("#{id}"), Line::of(Tone::Back, "B→A")),
            (None, _) => Default::default(),
        };
        let (verdict, tone) = match row.icrc {
            "ok" => ("ok", Tone::Good),
            "unverifiable" => ("?", Tone::Warning),
            other => (other, Tone::Bad),
        };
        table.row(vec![
            cell(units::frame(row.frame, row.segment)),
            Line::of(Tone::Faint, clock.time(row.time_ns)),
            Line::of(Tone::Faint, conversation),
            direction,
            Line::of(tone, verdict),
            cell(&row.summary),
        ]);
        for note in &row.notes {
            let mut cells = vec![Line::new(); 5];
            cells.push(Line::of(Tone::Warning, format!("↳ {note}")));
            table.row(cells);
        }
    }
    let mut lines = table.lines(columns);
    let traffic = file.conversations.iter().flat_map(|it| [it.a_to_b, it.b_to_a]);
    let total: u64 = traffic.map(|traffic| traffic.packets).sum();
    // Conversations are counted in full, and the list has only what the filter selects.
    let total = total.min(file.roce_packets);
    let hidden = total.saturating_sub(file.packet_list.len() as u64);
    lines.extend(more(hidden, ("packet", "packets"), "--max-packets"));
    lines
}
