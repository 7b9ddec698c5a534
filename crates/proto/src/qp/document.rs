//! The tables as a document.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::attribute::{Attribute, Attributes};
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

const DIFFERENCES: &str = "\
## Where this is not what Linux does

- RESET to ERR is allowed, as the specification has it; Linux refuses it.
- SQE to RTS exists only for UC and UD, which alone can be in SQE; Linux allows it for all, and tells no difference.
- `current state` must be the true one, or the change is refused; Linux believes it.
- A PSN of more than 24 bits is refused by its name; Linux warns and takes the low 24 bits.
- In SQD with requests under way, RESET is allowed, as the specification has it; rdma_rxe allows only ERR.

Alternate paths and path migration are in the tables because they are the specification's. Linux refuses them on RoCE
ports after this check; here a device does the same.
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
    let names: Vec<_> = names.into_iter().map(ServiceType::name).collect();
    format!(" ({})", names.join(", "))
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

/// Whether any service's owner can cause this transition.
fn is_modifiable(from: State, to: State) -> bool {
    ServiceType::ALL.iter().any(|&service| rule(service, from, to).is_some())
}

fn mermaid() -> String {
    let mut text = String::from("```mermaid\nstateDiagram-v2\n    [*] --> RESET: create\n");
    let drawn = |&(from, to): &(State, State)| {
        // ERR has no other way out: that one arrow is worth its place.
        is_modifiable(from, to)
            && (!is_always_reachable(to) || (from, to) == (State::Error, State::Reset))
    };
    for (from, to) in pairs().filter(drawn) {
        let services = whose(|service| rule(service, from, to).is_some());
        text.push_str(&format!("    {from} --> {to}: modify{services}\n"));
    }
    for incident in Incident::ALL {
        for from in State::ALL {
            for to in State::ALL.into_iter().filter(|&to| to != from) {
                let happens = |service| react(service, from, incident) == to;
                if ServiceType::ALL.into_iter().any(happens) {
                    let services = whose(happens);
                    text.push_str(&format!("    {from} --> {to}: {incident}{services}\n"));
                }
            }
        }
    }
    for to in State::ALL.into_iter().filter(|&to| is_always_reachable(to)) {
        text.push_str(&format!("    note right of {to}: modify, from any state\n"));
    }
    text.push_str("```\n\n");
    text
}

/// The same for a terminal. Every arrow is asked of the tables, only the places are fixed.
fn drawing() -> String {
    use State::{Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError};
    let row = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrain];
    let mut line = String::from("create --> RESET");
    for step in row.windows(2) {
        if let &[left, right] = step {
            let back = is_modifiable(right, left) && !is_always_reachable(left);
            let arrow = match (back, is_modifiable(left, right)) {
                (false, false) => "     ",
                (false, true) => " --> ",
                (true, false) => " <-- ",
                (true, true) => " <-> ",
            };
            line.push_str(&format!("{arrow}{right}"));
        }
    }
    let fails = |from| {
        ServiceType::ALL
            .into_iter()
            .any(|service| react(service, from, Incident::SendFailed) == SendQueueError)
    };
    let glyph = |exists, arrow| if exists { arrow } else { ' ' };
    let up = glyph(is_modifiable(SendQueueError, ReadyToSend), '^');
    let (left, right) = (glyph(fails(ReadyToSend), ':'), glyph(fails(SendQueueDrain), ':'));
    let labels = format!(
        "{up} modify   {left} {right} {}{}",
        Incident::SendFailed,
        whose(|service| react(service, ReadyToSend, Incident::SendFailed) == SendQueueError)
    );
    let always: Vec<_> = State::ALL
        .into_iter()
        .filter(|&to| is_always_reachable(to))
        .map(|to| format!("any state --> {to}"))
        .collect();
    let pad = " ".repeat(32);
    format!(
        "```\n{line}\n{pad}{up} {left}       {right}\n{}{labels}\n{pad}SQE  <....'\n\n{}\n```\n\n",
        pad,
        always.join("      ")
    )
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
            mark(service.has_send_queue_error()),
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

fn list(attributes: Attributes) -> String {
    if attributes.is_empty() { String::from("–") } else { format!("{attributes}") }
}

fn incidents() -> String {
    let mut rows = Vec::new();
    for service in ServiceType::ALL {
        let mut row = vec![String::from(service.name())];
        for incident in Incident::ALL {
            let moves: Vec<_> = State::ALL
                .into_iter()
                .map(|from| (from, react(service, from, incident)))
                .filter(|(from, to)| from != to)
                .map(|(from, to)| format!("{from} → {to}"))
                .collect();
            row.push(if moves.is_empty() { String::from("–") } else { moves.join(", ") });
        }
        rows.push(row);
    }
    let mut header = vec!["service"];
    header.extend(Incident::ALL.map(Incident::name));
    String::from(
        "## What happens without being asked\n\n\
         A queue pair in another state stays in it. \"Drained\" does not leave SQD: it ends its first half, in which \
         requests are still\nunder way and neither the path nor the state can change but to RESET or ERR; the owner \
         is told if `drain notice` was given.\n\n",
    ) + &table(&header, rows)
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
    let used = |permission: &Permission| *permission != Permission::Inapplicable;
    for permission in Permission::ALL.iter().filter(|permission| used(permission)) {
        text.push_str(&format!("- {permission}: {}.\n", permission.meaning()));
    }
    text.push_str(
        "\nReceives in a shared receive queue belong to no queue pair: no state of one flushes or discards them.\n\n",
    );
    let mut header = vec!["part of the service"];
    header.extend(ServiceType::ALL.map(ServiceType::name));
    let rows = Action::ALL.map(|action| {
        let mut row = vec![String::from(action.name())];
        row.extend(ServiceType::ALL.map(|service| {
            String::from(if service.has(action) { "yes" } else { "" })
        }));
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
        .fold(Attributes::NONE, |all, attribute| all | attribute.into());
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
