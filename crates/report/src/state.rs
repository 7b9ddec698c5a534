//! Connection set-up of a conversation, and the states of its queue pairs as far as packets show them.

use ferroce_trace::analysis::anomaly::AnomalyKind;
use ferroce_trace::analysis::report::{Anomaly, Conversation, FileReport};

use crate::model::{Control, State};

/// The messages of the connection manager that belong to a conversation.
pub(crate) fn control(conversation: &Conversation, report: &FileReport) -> Vec<Control> {
    let own = report.cm.iter().filter(|event| event.conversation == Some(conversation.id));
    let own: Vec<_> = own.collect();
    // On a loopback both sides have the same address: the messages tell them apart, and A is the active side.
    let same = conversation.a.address == conversation.b.address;
    let request = own.iter().find(|event| matches!(event.message, "REQ" | "SIDR_REQ"));
    let active_id = request.and_then(|event| event.local_id);
    let events = own.iter().map(|event| Control {
        frame: event.frame,
        segment: event.segment,
        time_ns: event.time_ns,
        from_a: match same {
            true => event.local_id == active_id && event.message != "SIDR_REP",
            false => event.source == conversation.a.address,
        },
        message: event.message,
        summary: event.summary.clone(),
    });
    events.collect()
}

/// The states that the queue pairs enter. RDMA-CM modifies a queue pair to INIT before REQ, the passive one to RTR before
/// REP, the active one to RTS before RTU, the passive one to RTS when it receives RTU, and both to ERROR when they
/// disconnect. A fatal NAK and exhausted retries move the requester to ERROR (IBA 10.3.1, 9.9.2).
pub(crate) fn states(
    conversation: &Conversation,
    control: &[Control],
    report: &FileReport,
) -> Vec<State> {
    if !matches!(conversation.transport, "RC" | "UC" | "XRC") {
        return Vec::new();
    }
    let mut states: Vec<State> = Vec::new();
    let mut enter = |frame, segment, of_a, state| {
        // Repeated messages change nothing.
        let current = states.iter().rev().find(|it| it.of_a == of_a).map(|it| it.state);
        if current != Some(state) {
            states.push(State { frame, segment, of_a, state });
        }
    };
    let own = |anomaly: &&Anomaly| {
        let fatal = matches!(
            anomaly.kind,
            AnomalyKind::NakRemoteAccess
                | AnomalyKind::NakInvalidRequest
                | AnomalyKind::NakRemoteOperational
                | AnomalyKind::RetryExceeded
                | AnomalyKind::RnrRetryExceeded
        );
        anomaly.conversation == Some(conversation.id) && fatal
    };
    for event in control {
        let Control { frame, segment, from_a, .. } = *event;
        match event.message {
            "REQ" => enter(frame, segment, from_a, "INIT"),
            "REP" => enter(frame, segment, from_a, "RTR"),
            "RTU" => {
                enter(frame, segment, from_a, "RTS");
                enter(frame, segment, !from_a, "RTS");
            }
            "DREQ" | "DREP" => enter(frame, segment, from_a, "ERROR"),
            _ => {}
        }
    }
    if !control.iter().any(|event| event.message == "REQ") {
        // Connected before the capture, or by other means: whoever sends requests is in RTS.
        enter(conversation.first_frame, 0, true, "RTS");
    }
    for anomaly in report.anomalies.iter().filter(own) {
        // The NAK comes from the responder; exhausted retries end at a packet of the requester itself.
        let naked =
            !matches!(anomaly.kind, AnomalyKind::RetryExceeded | AnomalyKind::RnrRetryExceeded);
        let of_a = requester_is_a(conversation, report, anomaly);
        if naked {
            enter(anomaly.frame, anomaly.segment, !of_a, "ERROR");
        }
        enter(anomaly.frame, anomaly.segment, of_a, "ERROR");
    }
    states.sort_by_key(|state| (state.frame, state.segment));
    states
}

/// Whether `a` is the requester of the refused message; `a` if the message is not listed.
fn requester_is_a(conversation: &Conversation, report: &FileReport, anomaly: &Anomaly) -> bool {
    let messages = report.messages.iter().filter(|it| it.conversation == conversation.id);
    let psn = anomaly.psn.unwrap_or(0);
    let covers = |(first, last): (u32, u32)| {
        psn.wrapping_sub(first) & 0xff_ffff <= last.wrapping_sub(first) & 0xff_ffff
    };
    let refused = messages.filter(|it| covers(it.psn)).max_by_key(|it| it.first_frame);
    refused.is_none_or(|message| message.from_a)
}
