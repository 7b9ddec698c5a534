//! Conversations and their traffic.

use super::more;
use crate::analysis::report::{Conversation, Endpoint, FileReport, JoinedBy, Traffic};
use crate::render::table::{Align, Table, cell};
use crate::render::text::{Line, Tone, wrap};
use crate::render::{endpoint, units};

/// Three lines per conversation: one per endpoint, then common properties.
pub(super) fn table(file: &FileReport, columns: usize, limit: usize) -> Vec<Line> {
    if file.conversations.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&[
        ("", Align::Right),
        ("", Align::Left),
        ("", Align::Left),
        ("sender", Align::Left),
        ("packets", Align::Right),
        ("bytes", Align::Right),
        ("payload", Align::Right),
        ("rate", Align::Right),
    ]);
    for conversation in file.conversations.iter().take(limit) {
        let id = Line::of(Tone::Strong, format!("#{}", conversation.id));
        let transport = Line::of(Tone::Strong, conversation.transport);
        let a = side(Tone::Forth, "A", &conversation.a, &conversation.a_to_b, conversation);
        let b = side(Tone::Back, "B", &conversation.b, &conversation.b_to_a, conversation);
        table.row([vec![id, transport], a].concat());
        if rows(conversation) == 2 {
            table.row([vec![Line::new(), Line::new()], b].concat());
        }
    }
    // Common properties would widen a column, so they are inserted between the rows.
    let table = table.without_columns_that_do_not_fit(columns, &["payload", "rate"]);
    let mut table_rows = table.lines(columns).into_iter();
    let mut lines: Vec<Line> = table_rows.next().into_iter().collect();
    let indent = 2 + table_indent(file, limit);
    for conversation in file.conversations.iter().take(limit) {
        lines.extend(table_rows.by_ref().take(rows(conversation)));
        for text in wrap(&about(conversation), columns.saturating_sub(indent).max(24)) {
            let mut line = Line::new();
            line.pad_to(indent);
            line.push(Tone::Faint, text);
            lines.push(line);
        }
    }
    let hidden = file.conversations.len().saturating_sub(limit) as u64;
    lines.extend(more(hidden, ("conversation", "conversations"), "--all"));
    lines
}

/// Table rows of a conversation: one per side, or one if both sides are the same endpoint.
fn rows(conversation: &Conversation) -> usize {
    if conversation.joined_by == JoinedBy::SameEndpoint { 1 } else { 2 }
}

/// Width of the id and transport columns.
fn table_indent(file: &FileReport, limit: usize) -> usize {
    let shown = || file.conversations.iter().take(limit);
    let id = shown().map(|conversation| 1 + digits(conversation.id)).max().unwrap_or(0);
    let transport = shown().map(|conversation| conversation.transport.len()).max().unwrap_or(0);
    id + 2 + transport + 2
}

fn digits(number: u32) -> usize {
    number.to_string().len()
}

fn side(
    tone: Tone,
    name: &str,
    endpoint: &Endpoint,
    traffic: &Traffic,
    conversation: &Conversation,
) -> Vec<Line> {
    let rate = units::bit_rate(traffic.bytes, conversation.duration_ns).unwrap_or_default();
    vec![
        Line::of(tone, name),
        cell(endpoint::endpoint(endpoint)),
        cell(units::count(traffic.packets)),
        cell(units::bytes(traffic.bytes)),
        cell(units::bytes(traffic.payload)),
        cell(if traffic.packets == 0 { String::new() } else { rate }),
    ]
}

/// Properties common to both sides.
fn about(conversation: &Conversation) -> String {
    let messages = conversation.operations.values().map(|stats| stats.messages).sum();
    let mut parts = vec![units::counted(messages, "message")];
    if let Some(mtu) = conversation.path_mtu {
        parts.push(format!("MTU {mtu}"));
    }
    parts.push(units::duration(conversation.duration_ns));
    parts.push(format!("frames {}–{}", conversation.first_frame, conversation.last_frame));
    parts.push(joined(conversation.joined_by).to_owned());
    parts.join(" · ")
}

fn joined(by: JoinedBy) -> &'static str {
    match by {
        JoinedBy::Cm => "joined by the CM handshake",
        JoinedBy::Acknowledgement => "joined by acknowledgements",
        JoinedBy::Address => "joined by address",
        JoinedBy::Datagram => "joined by its datagrams",
        JoinedBy::OneWay => "one way only",
        JoinedBy::SameEndpoint => "a queue pair that sends to itself",
    }
}
