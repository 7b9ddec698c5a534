//! The example of a topic, drawn from a run.

use ferroce::{ServiceType, State, rule};
use ferroce_proto::cm;
use ferroce_proto::qp::{Action, Permission};
use ferroce_trace::analysis::report::{Conversation, PacketRow};
use ferroce_trace::dissect::{Layer, Tree, dissect};
use ferroce_trace::file::CaptureReader;
use ferroce_trace::render::ladder::Ladders;
use ferroce_trace::render::{Line, Tone};
use serde_json::{Value, json};

use super::lab::Record;
use super::topic::Example;

/// Packets that a ladder shows.
const ROWS: usize = 24;

/// What is shown besides the steps.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) lines: Vec<Line>,
    /// A packet to dissect: its bytes, and the layer that the topic is about.
    pub(super) packet: Option<(Vec<u8>, &'static str)>,
    pub(super) json: Value,
}

/// Draws what an example is about.
pub(super) fn show(example: Example, record: &Record, columns: usize) -> Result<Shown, String> {
    let mut shown = Shown::default();
    match example {
        Example::Ladder(_) => ladder(record, columns, &mut shown.lines),
        Example::Header(_, layer) => {
            let bytes = packet_with(record, layer)
                .ok_or_else(|| format!("no packet of the example has the header {layer}"))?;
            shown.packet = Some((bytes, layer));
        }
        Example::Counter(_, name) => {
            shown.json = counter(record, name, &mut shown.lines);
            shown.lines.push(Line::new());
            ladder(record, columns, &mut shown.lines);
        }
        Example::State(_, state) => {
            rules(state, &mut shown.lines);
            if !record.report.packet_list.is_empty() {
                shown.lines.push(Line::new());
                ladder(record, columns, &mut shown.lines);
            }
        }
        Example::Connection(_, state) => {
            transitions(state, &mut shown.lines);
            shown.lines.push(Line::new());
            ladder(record, columns, &mut shown.lines);
        }
        Example::Steps(_) | Example::Impossible(_) => {}
    }
    Ok(shown)
}

fn is_ours(conversation: &Conversation, record: &Record) -> bool {
    let ends = [&conversation.a, &conversation.b];
    ends.iter().filter_map(|end| end.qpn).any(|number| record.queue_pairs.contains(&number))
}

/// The packets of the example, without those of other programs that share the device.
pub(super) fn packets(record: &Record) -> Vec<&PacketRow> {
    let ours: Vec<_> = record
        .report
        .conversations
        .iter()
        .filter(|conversation| is_ours(conversation, record))
        .map(|conversation| conversation.id)
        .collect();
    let is_ours = |row: &&PacketRow| row.conversation.is_some_and(|id| ours.contains(&id));
    record.report.packet_list.iter().filter(is_ours).collect()
}

fn ladder(record: &Record, columns: usize, lines: &mut Vec<Line>) {
    let ladders = Ladders::new(&record.report);
    let ours = record.report.conversations.iter().filter(|one| is_ours(one, record));
    for conversation in ours {
        lines.extend(ladders.draw(conversation, columns, Some(ROWS)));
    }
    if record.report.conversations.is_empty() && !record.report.cm.is_empty() {
        // A refused connection has no conversation of its own.
        for event in &record.report.cm {
            lines.push(Line::of(
                Tone::Plain,
                format!("  {} → {}  CM {}", event.source, event.destination, event.message),
            ));
        }
    } else if !record.report.conversations.iter().any(|one| is_ours(one, record)) {
        for row in &record.report.packet_list {
            lines.push(Line::of(Tone::Plain, format!("  {}", row.summary)));
        }
    }
}

/// The first packet of the example with this layer: a request if one has it, otherwise a response.
fn packet_with(record: &Record, layer: &str) -> Option<Vec<u8>> {
    let mut reader = CaptureReader::new(record.capture.as_slice()).ok()?;
    let mut response = None;
    while let Ok(Some(captured)) = reader.next_record() {
        let tree = dissect(captured.link, captured.data, captured.original_len as usize);
        let Some(destination) = destination(&tree).filter(|_| tree.layer(layer).is_some()) else {
            continue;
        };
        // The first QP is the requester; 1 is the connection manager.
        if destination == 1 || record.queue_pairs.iter().skip(1).any(|own| *own == destination) {
            return Some(captured.data.to_vec());
        }
        if record.queue_pairs.first() == Some(&destination) && response.is_none() {
            response = Some(captured.data.to_vec());
        }
    }
    response
}

/// The QPN in the BTH.
fn destination(tree: &Tree<'_>) -> Option<u32> {
    let value = &tree.layer("BTH")?.field("destination")?.value;
    u32::from_str_radix(value.trim_start_matches("0x"), 16).ok()
}

fn counter(record: &Record, name: &str, lines: &mut Vec<Line>) -> Value {
    let value = |statistics: &ferroce::Statistics| {
        statistics.iter().find(|(own, _)| *own == name).map_or(0, |(_, count)| count)
    };
    let (before, after) = (value(&record.counters.0), value(&record.counters.1));
    lines.push(Line::of(Tone::Strong, format!("  {name}: {before} before, {after} after")));
    json!({ "name": name, "before": before, "after": after })
}

/// The transitions from and to a state on RC (for SQE on UD), and what it permits.
fn rules(state: State, lines: &mut Vec<Line>) {
    let service = match state {
        State::SendQueueError => ServiceType::UnreliableDatagram,
        _ => ServiceType::ReliableConnection,
    };
    lines.push(Line::of(
        Tone::Title,
        format!("Transitions of {} with ibv_modify_qp ({})", state.name(), service.name()),
    ));
    for from in State::ALL {
        for to in State::ALL {
            if from != state && to != state || from == to {
                continue;
            }
            // RESET and ERR can be reached from everywhere: only those from this state are listed.
            if matches!(to, State::Reset | State::Error) && from != state {
                continue;
            }
            let Some(rule) = rule(service, from, to) else { continue };
            let names: Vec<_> = rule
                .required
                .iter()
                .map(|attribute| attribute.name())
                .filter(|name| *name != "state")
                .collect();
            let needs = if names.is_empty() {
                String::new()
            } else {
                format!(" needs {}", names.join(", "))
            };
            lines.push(Line::of(Tone::Plain, format!("  {} → {}{needs}", from.name(), to.name())));
        }
    }
    lines.push(Line::of(Tone::Title, format!("In {}", state.name())));
    for action in Action::ALL {
        let permission: Permission = service.permits(state, action);
        let tone = if permission.is_allowed() { Tone::Good } else { Tone::Plain };
        lines.push(
            Line::of(Tone::Plain, format!("  {}: ", action.name())).with(tone, permission.name()),
        );
    }
}

fn transitions(state: cm::State, lines: &mut Vec<Line>) {
    lines.push(Line::of(Tone::Title, format!("Transitions of {state:?}")));
    for (from, trigger, to) in
        cm::TRANSITIONS.iter().filter(|(from, _, to)| *from == state || *to == state)
    {
        lines.push(Line::of(Tone::Plain, format!("  {from:?} → {to:?}  ({})", words(trigger))));
    }
}

/// `RepArrives` as `rep arrives`.
fn words(trigger: &cm::Trigger) -> String {
    let mut text = String::new();
    for character in format!("{trigger:?}").chars() {
        if character.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(character.to_lowercase());
    }
    text
}

/// A tree of a packet with one layer only.
pub(super) fn only<'a>(tree: Tree<'a>, layer: &str) -> Tree<'a> {
    let keep = |one: &Layer<'_>| one.name == layer;
    Tree { layers: tree.layers.into_iter().filter(keep).collect(), ..tree }
}
