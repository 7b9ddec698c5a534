//! The control plane: the connection manager's timeline and the set-up exchange.

use super::more;
use crate::analysis::report::FileReport;
use crate::render::table::{Align, Table, cell};
use crate::render::text::{Line, Tone, wrap};
use crate::render::units::{self, Clock};

/// CM messages in order of time.
pub(super) fn cm(file: &FileReport, columns: usize, limit: usize) -> Vec<Line> {
    let shown = &file.cm[..file.cm.len().min(limit)];
    if shown.is_empty() {
        return Vec::new();
    }
    let clock = Clock::for_times(shown.iter().map(|event| event.time_ns));
    let mut table = timeline(clock);
    for event in shown {
        let message = match event.repeated {
            true => Line::of(Tone::Warning, format!("{} repeated", event.message)),
            false => Line::of(tone(event.message), event.message),
        };
        let conversation = event.conversation.map(|id| format!("#{id}")).unwrap_or_default();
        table.row(vec![
            cell(units::count(event.frame)),
            Line::of(Tone::Faint, clock.time(event.time_ns)),
            route(&event.source, &event.destination),
            Line::of(Tone::Faint, conversation),
            message,
            cell(&event.summary),
        ]);
        if !event.private_data.is_empty() {
            let text = format!("private data {}", hexadecimal(&event.private_data));
            let mut row = vec![Line::new(); 5];
            row.push(Line::of(Tone::Faint, text));
            table.row(row);
        }
    }
    let mut lines = table.lines(columns);
    let hidden = (file.cm.len() - shown.len()) as u64 + file.cm_omitted;
    lines.extend(more(hidden, ("message", "messages"), "--all"));
    lines
}

/// Fields implied by the message's name, or equal in every message of this protocol.
const IMPLIED: [&str; 3] = ["message_type", "version", "magic"];

/// Messages of the set-up exchange in order of time.
pub(super) fn setup(file: &FileReport, columns: usize, limit: usize) -> Vec<Line> {
    let shown = &file.setup[..file.setup.len().min(limit)];
    if shown.is_empty() {
        return Vec::new();
    }
    let clock = Clock::for_times(shown.iter().map(|event| event.time_ns));
    let mut table = timeline(clock);
    for event in shown {
        let details: Vec<_> = event
            .details
            .iter()
            .filter(|(name, _)| !IMPLIED.contains(name))
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        table.row(vec![
            cell(units::count(event.frame)),
            Line::of(Tone::Faint, clock.time(event.time_ns)),
            route(&event.source, &event.destination),
            Line::new(),
            Line::of(Tone::Control, event.message),
            cell(details.join(", ")),
        ]);
    }
    let mut lines = table.lines(columns);
    lines.extend(more((file.setup.len() - shown.len()) as u64, ("message", "messages"), "--all"));
    lines
}

fn timeline(clock: Clock) -> Table {
    Table::new(&[
        ("frame", Align::Right),
        (clock.unit(), Align::Right),
        ("", Align::Left),
        ("", Align::Right),
        ("", Align::Left),
        ("", Align::Rest),
    ])
}

fn route(source: &str, destination: &str) -> Line {
    Line::of(Tone::Plain, source).with(Tone::Drawing, " → ").plain(destination)
}

fn tone(message: &str) -> Tone {
    match message {
        "REJ" => Tone::Bad,
        _ => Tone::Control,
    }
}

/// Splits hexadecimal digits into groups of four bytes, for wrapping.
fn hexadecimal(digits: &str) -> String {
    wrap(digits, 8).join(" ")
}
