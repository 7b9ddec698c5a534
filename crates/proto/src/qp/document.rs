//! The tables as a document.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::attribute::{Attribute, AttributeMask};
use super::incident::{Incident, react};
use super::permission::{Action, Permission};
use super::service::ServiceType;
use super::state::State;
use super::transition::rule;

const INTRODUCTION: &str = "\
# The states of a queue pair

Written by `ferroce_proto::qp::markdown` from the tables that the code uses; a test keeps this file identical.
`FERROCE_UPDATE_DOCS=1 cargo test -p ferroce-proto qp` writes it anew. The rules are those of the InfiniBand
specification (volume 1, 10.3.1 and 11.2.5.2; annex A14 for XRC).

";

const TRANSITIONS: &str = "\
## What each change takes

One table for each service. All required attributes must be given, optional ones may be, any other is refused by its
name. `state` itself is always allowed; when it is not given, the state stays and the row from a state to itself
applies. From any state, RESET and ERR take nothing but `state`.

";

const INCIDENTS: &str = "\
## What happens without being asked

In a state that is not listed an incident changes nothing. \"Drained\" does not leave SQD: it ends its first half, in
which requests are still under way and nothing can be changed but to RESET or ERR. The owner is told of it if
`drain notice` was given.

";

const DIFFERENCES: &str = "\
## Where this is not what Linux does

- RESET to ERR is allowed, as the specification has it; Linux refuses it.
- SQE to RTS exists only for UC and UD, which alone can be in SQE; Linux allows it for all, and tells no difference.
- `current state` must be the true one, or the change is refused; Linux believes it.
- A PSN of more than 24 bits is refused by its name; Linux warns and takes the low 24 bits.
- In SQD with requests under way, RESET is allowed, as the specification has it; rdma_rxe allows only ERR.

Alternate paths are in the tables because they are the specification's. Linux passes them here and refuses them later,
on every RoCE port: that is the device's decision, and not in these tables.
";

/// The whole of `docs/queue-pair-states.md`.
pub fn markdown() -> String {
    let parts = [
        String::from(INTRODUCTION),
        states(),
        mermaid(),
        drawing(),
        services(),
        transitions(),
        incidents(),
        permissions(),
        attributes(),
        String::from(DIFFERENCES),
    ];
    parts.concat()
}

/// A Markdown table.
fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let header: Vec<_> = header.iter().map(|&cell| String::from(cell)).collect();
    let mut text = line(&header);
    text.push_str(&format!("|{}\n", "---|".repeat(header.len())));
    for row in rows {
        text.push_str(&line(&row));
    }
    text.push('\n');
    text
}

fn states() -> String {
    let rows = State::ALL.map(|state| vec![state.name().into(), state.words().into()]);
    table(&["state", "in words"], rows)
}

/// The services for which `holds`, as a label; nothing when it holds for all.
fn whose(holds: impl Fn(ServiceType) -> bool) -> String {
    let names: Vec<_> = ServiceType::ALL.into_iter().filter(|&service| holds(service)).collect();
    if names.len() == ServiceType::ALL.len() {
        return String::new();
    }
    format!(" ({})", names.into_iter().map(ServiceType::name).collect::<Vec<_>>().join(", "))
}

/// All pairs of states.
fn pairs() -> impl Iterator<Item = (State, State)> {
    State::ALL.into_iter().flat_map(|from| State::ALL.map(|to| (from, to)))
}

/// Whether every state leads here: an arrow from each would hide the others.
fn is_always_reachable(to: State) -> bool {
    let leads = |from| ServiceType::ALL.iter().all(|&service| rule(service, from, to).is_some());
    State::ALL.into_iter().all(leads)
}

/// What takes a queue pair from one state to the other, with the services it takes; nothing when nothing does.
fn causes(from: State, to: State) -> Vec<String> {
    let mut causes = Vec::new();
    let modify =
        |service: ServiceType| service.has_state(from) && rule(service, from, to).is_some();
    // ERR has no other way out: that one arrow to RESET is worth its place.
    let drawn = !is_always_reachable(to) || (from, to) == (State::Error, State::Reset);
    if drawn && ServiceType::ALL.into_iter().any(modify) {
        causes.push(format!("modify{}", whose(modify)));
    }
    for incident in Incident::ALL {
        let happens = |service| moves(service, incident).any(|pair| pair == (from, to));
        if !is_universal(incident) && ServiceType::ALL.into_iter().any(happens) {
            causes.push(format!("{incident}{}", whose(happens)));
        }
    }
    causes
}

/// Where an incident takes a queue pair of the service, from each state that it can be in.
fn moves(service: ServiceType, incident: Incident) -> impl Iterator<Item = (State, State)> {
    State::ALL
        .into_iter()
        .filter(move |&from| service.has_state(from))
        .map(move |from| (from, react(service, from, incident)))
        .filter(|(from, to)| from != to)
}

/// Whether an incident takes all states but RESET to ERR: an arrow from each would hide the others.
fn is_universal(incident: Incident) -> bool {
    State::ALL.into_iter().all(|from| {
        let to = if from == State::Reset { State::Reset } else { State::Error };
        ServiceType::ALL.into_iter().all(|service| react(service, from, incident) == to)
    })
}

fn mermaid() -> String {
    let mut text = String::from("```mermaid\nstateDiagram-v2\n    [*] --> RESET: create\n");
    for (from, to) in pairs() {
        let causes = causes(from, to);
        if !causes.is_empty() {
            text.push_str(&format!("    {from} --> {to}: {}\n", causes.join(", ")));
        }
    }
    for to in State::ALL.into_iter().filter(|&to| is_always_reachable(to)) {
        text.push_str(&format!("    note right of {to}: {}\n", always(to)));
    }
    text.push_str("```\n\n");
    text
}

/// What leads to this state from anywhere.
fn always(to: State) -> String {
    let mut text = String::from("from any state by modify");
    for incident in Incident::ALL.into_iter().filter(|&incident| is_universal(incident)) {
        if to == State::Error {
            text.push_str(&format!(", from any but RESET by {incident}"));
        }
    }
    text
}

/// The same for a terminal. Every arrow is asked of the tables, only the places are fixed.
fn drawing() -> String {
    use State::{Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError};
    let mut line = String::from("create --> RESET");
    for step in [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrain].windows(2) {
        if let &[left, right] = step {
            let arrow = match (causes(right, left).is_empty(), causes(left, right).is_empty()) {
                (true, true) => "     ",
                (true, false) => " --> ",
                (false, true) => " <-- ",
                (false, false) => " <-> ",
            };
            line.push_str(&format!("{arrow}{right}"));
        }
    }
    let column = line.find(ReadyToSend.name()).unwrap_or_default();
    let part = |from, to, glyph| if causes(from, to).is_empty() { " " } else { glyph };
    let up = |glyph| part(SendQueueError, ReadyToSend, glyph);
    let down = |glyph| part(ReadyToSend, SendQueueError, glyph);
    let bend = |glyph| part(SendQueueDrain, SendQueueError, glyph);
    let below = [
        format!("{:column$}{} {}     {}", "", up("^"), down(":"), bend(":")),
        format!(
            "{:>column$}{} {}     {} {}",
            causes(SendQueueError, ReadyToSend).join(", ") + " ",
            up("|"),
            down(":"),
            bend(":"),
            causes(ReadyToSend, SendQueueError).join(", ")
        ),
        format!("{:column$}{} {}     {}", "", up("|"), down("v"), bend(":")),
        format!("{:column$}{SendQueueError} {}{}", "", bend("<..."), bend("'")),
    ];
    let mut text = format!("```\n{line}\n");
    for line in below {
        text.push_str(&format!("{}\n", line.trim_end()));
    }
    text.push('\n');
    for to in State::ALL.into_iter().filter(|&to| is_always_reachable(to)) {
        text.push_str(&format!("{to}: {}\n", always(to)));
    }
    text.push_str("```\n\n");
    text
}

fn services() -> String {
    let mark = |has: bool| String::from(if has { "yes" } else { "" });
    let rows = ServiceType::ALL.map(|service| {
        vec![
            format!("{service} (`{}`)", service.verbs_name()),
            mark(service.has_send_queue()),
            mark(service.has_receive_queue()),
            mark(service.accepts_requests()),
            mark(service.acknowledges()),
            mark(service.has_rdma_write()),
            mark(service.has_rdma_read()),
            mark(service.has_atomics()),
            mark(service.has_state(State::SendQueueError)),
        ]
    });
    let header = [
        "service",
        "send queue",
        "receive queue",
        "executes requests",
        "acknowledges",
        "RDMA WRITE",
        "RDMA READ",
        "atomics",
        "SQE",
    ];
    String::from("## The services\n\n") + &table(&header, rows)
}

fn transitions() -> String {
    let mut text = String::from(TRANSITIONS);
    for service in ServiceType::ALL {
        let rows = pairs().filter(|&(_, to)| !is_always_reachable(to)).filter_map(|(from, to)| {
            let rule = rule(service, from, to)?;
            Some(vec![format!("{from} → {to}"), list(rule.required), list(rule.optional)])
        });
        text.push_str(&format!("### {service}: {}\n\n", service.words()));
        text.push_str(&table(&["change", "required", "optional"], rows));
    }
    text
}

fn list(attributes: AttributeMask) -> String {
    if attributes.is_empty() { String::from("–") } else { format!("{attributes}") }
}

fn incidents() -> String {
    let cell = |service, incident| {
        let mut parts = Vec::new();
        for target in State::ALL {
            let from = moves(service, incident).filter(|&(_, to)| to == target);
            let from: Vec<_> = from.map(|(from, _)| from.name()).collect();
            if !from.is_empty() {
                parts.push(format!("{} → {target}", from.join(", ")));
            }
        }
        if parts.is_empty() { String::from("–") } else { parts.join("; ") }
    };
    let rows = ServiceType::ALL.map(|service| {
        let mut row = vec![String::from(service.name())];
        row.extend(Incident::ALL.map(|incident| cell(service, incident)));
        row
    });
    let mut header = vec!["service"];
    header.extend(Incident::ALL.map(Incident::name));
    String::from(INCIDENTS) + &table(&header, rows)
}

fn permissions() -> String {
    let mut header = vec![""];
    header.extend(State::ALL.map(State::name));
    let rows = Action::ALL.map(|action| {
        let mut row = vec![String::from(action.name())];
        row.extend(State::ALL.map(|state| String::from(state.permits(action).name())));
        row
    });
    let mut text = String::from("## What each state permits\n\n") + &table(&header, rows);
    // The last one is a service's, not a state's.
    for permission in Permission::ALL.into_iter().filter(|&it| it != Permission::Inapplicable) {
        text.push_str(&format!("- {permission}: {}.\n", permission.meaning()));
    }
    text.push_str(
        "\nReceives in a shared receive queue belong to no queue pair: no state of one flushes or discards them.\n\n",
    );
    let mut header = vec!["part of the service"];
    header.extend(ServiceType::ALL.map(ServiceType::name));
    let rows = Action::ALL.map(|action| {
        let mut row = vec![String::from(action.name())];
        row.extend(
            ServiceType::ALL
                .map(|service| String::from(if service.has(action) { "yes" } else { "" })),
        );
        row
    });
    text + &table(&header, rows)
}

fn attributes() -> String {
    let rows = Attribute::ALL.iter().map(|attribute| {
        vec![
            attribute.name().into(),
            format!("`{}`", attribute.verbs_name()),
            attribute.range().into(),
        ]
    });
    let unused = Attribute::ALL
        .iter()
        .copied()
        .filter(|&attribute| attribute != Attribute::State && !is_taken(attribute))
        .fold(AttributeMask::NONE, |all, attribute| all | attribute.into());
    let mut text =
        String::from("## The attributes\n\n") + &table(&["attribute", "libibverbs", "value"], rows);
    text.push_str(&format!("No change takes these, as in Linux for these services: {unused}.\n\n"));
    text
}

/// Whether any transition of any service takes the attribute.
fn is_taken(attribute: Attribute) -> bool {
    pairs().any(|(from, to)| {
        let takes = |service: &ServiceType| {
            rule(*service, from, to)
                .is_some_and(|rule| (rule.required | rule.optional).contains(attribute))
        };
        ServiceType::ALL.iter().any(takes)
    })
}
