//! A topic, and the list of topics, as text and JSON.

use std::io::{self, Write};

use ferroce_trace::dissect::dissect;
use ferroce_trace::link::LinkType;
use ferroce_trace::render::text::wrap;
use serde_json::{Value, json};

use super::example::{self, Shown};
use super::lab::Record;
use super::lookup::Found;
use super::topic::{Example, Group, Topic};
use super::{status, topics};
use crate::analyze::output::{Alphabet, print};
use crate::decode::text::TreeWriter;
use crate::style::{Role, Screen};

/// The version of the JSON format.
const SCHEMA: &str = "ferroce-explain-1";

/// The texts are not wider than this, wherever they go.
const MAX_COLUMNS: usize = 100;

fn paragraph(text: &str, columns: usize, indent: usize, output: &mut dyn Write) -> io::Result<()> {
    for line in wrap(text, columns.saturating_sub(indent).max(20)) {
        writeln!(output, "{:indent$}{line}", "")?;
    }
    Ok(())
}

/// Prints what a topic is.
pub(super) fn text(found: &Found, screen: &Screen, output: &mut dyn Write) -> io::Result<()> {
    let topic = found.topic;
    let columns = screen.columns.min(MAX_COLUMNS);
    let paint = screen.paint;
    writeln!(
        output,
        "{}  {}",
        paint.role(Role::Title, topic.title),
        paint.role(Role::Quiet, format_args!("({})", topic.group.singular()))
    )?;
    if let Some(line) = opcode_line(found) {
        paragraph(&line, columns, 0, output)?;
    }
    paragraph(topic.plain, columns, 0, output)?;
    writeln!(output)?;
    paragraph(topic.precise, columns, 0, output)?;
    writeln!(output)?;
    writeln!(output, "{} {}", paint.role(Role::Quiet, "Specified in:"), topic.clause)?;
    if !topic.see.is_empty() {
        writeln!(output, "{} {}", paint.role(Role::Quiet, "See also:"), topic.see.join(", "))?;
    }
    Ok(())
}

/// What an opcode consists of.
fn opcode_line(found: &Found) -> Option<String> {
    let opcode = found.opcode?;
    let info = opcode.info()?;
    let headers: Vec<_> = info.extensions.iter().map(|header| header.name).collect();
    let headers = match headers.is_empty() {
        true => "no header behind the BTH".to_owned(),
        false => format!("behind the BTH: {}", headers.join(", ")),
    };
    Some(format!("Opcode {:#04x} is {}; {headers}.", opcode.0, opcode.name()))
}

/// Prints the example.
pub(super) fn example(
    record: &Record,
    shown: &Shown,
    ascii: bool,
    screen: &Screen,
    output: &mut impl Write,
) -> io::Result<()> {
    let columns = screen.columns.min(MAX_COLUMNS);
    let title = "Example, run just now between two QPs on 127.0.0.1";
    writeln!(output, "\n{}", screen.paint.role(Role::Heading, title))?;
    for step in &record.steps {
        paragraph(step, columns, 2, output)?;
    }
    if !shown.lines.is_empty() {
        writeln!(output)?;
        print(&shown.lines, screen.paint, Alphabet::choose(ascii), output)?;
    }
    if let Some((bytes, layer)) = &shown.packet {
        writeln!(output)?;
        let tree = dissect(LinkType::ETHERNET, bytes, bytes.len());
        TreeWriter::new(screen, false).write(output, &example::only(tree, layer))?;
    }
    Ok(())
}

/// Says why there is no example, if none is possible.
pub(super) fn without_example(
    topic: &Topic,
    screen: &Screen,
    output: &mut impl Write,
) -> io::Result<()> {
    let Example::Impossible(reason) = topic.example else { return Ok(()) };
    writeln!(output)?;
    paragraph(&format!("No example: {reason}."), screen.columns.min(MAX_COLUMNS), 0, output)
}

/// A topic and its example for programs.
pub(super) fn json(found: &Found, run: Option<(&Record, &Shown)>, failure: Option<&str>) -> Value {
    let topic = found.topic;
    let example = run.map(|(record, shown)| {
        let completions: Vec<_> = record
            .completions
            .iter()
            .map(|(end, status)| {
                let (number, name) = status::code(*status);
                json!({ "end": end, "status": number, "name": name })
            })
            .collect();
        let header = shown.packet.as_ref().map(|(bytes, layer)| {
            json!(example::only(dissect(LinkType::ETHERNET, bytes, bytes.len()), layer))
        });
        json!({
            "shows": topic.shows,
            "steps": record.steps,
            "completions": completions,
            "packets": example::packets(record),
            "header": header,
            "counter": shown.json,
        })
    });
    let impossible = match topic.example {
        Example::Impossible(reason) => Some(reason),
        _ => None,
    };
    json!({
        "schema": SCHEMA,
        "topic": topic.name,
        "group": topic.group,
        "title": topic.title,
        "opcode": found.opcode.map(|opcode| opcode.0),
        "plain": topic.plain,
        "precise": topic.precise,
        "clause": topic.clause,
        "see": topic.see,
        "example": example,
        "no_example": impossible.or(failure),
    })
}

/// All topics by group.
pub(super) fn list(screen: &Screen, output: &mut impl Write) -> io::Result<()> {
    let columns = screen.columns.min(MAX_COLUMNS);
    for group in Group::ALL {
        let names: Vec<_> =
            topics::all().filter(|topic| topic.group == group).map(|topic| topic.name).collect();
        writeln!(output, "{}", screen.paint.role(Role::Heading, group.title()))?;
        paragraph(&names.join("  "), columns, 2, output)?;
    }
    writeln!(
        output,
        "\n`ferroce explain TOPIC` explains one; numbers of statuses and opcodes (0x0a) work as well."
    )
}

/// The same for programs.
pub(super) fn list_json() -> Value {
    let topics: Vec<_> = topics::all()
        .map(|topic| {
            json!({ "topic": topic.name, "group": topic.group, "title": topic.title, "aliases": topic.aliases })
        })
        .collect();
    json!({ "schema": SCHEMA, "topics": topics })
}
