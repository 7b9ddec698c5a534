//! Compares two sequences of responses, and lists the allowed differences.
//!
//! Each difference has its section, with the reason, in `docs/differences-from-rxe.md`.

use std::collections::BTreeMap;

use ferroce_wire::opcode::{Opcode, Operation};
use ferroce_wire::syndrome::NakCode;
use ferroce_wire::transport::Bth;

use crate::replay::Pace;
use crate::response::Response;

/// A known and explained difference.
pub(crate) struct Allowed {
    /// The title of its section in the document.
    pub(crate) name: &'static str,
    /// The captures in which it occurs, with exact counts: if our responder sends after every packet, and if it sends
    /// when rdma_rxe did.
    pub(crate) captures: &'static [(&'static str, usize, usize)],
    matches: fn(&Point<'_>) -> Option<Step>,
}

/// A point at which two sequences differ.
struct Point<'a> {
    ours: Option<&'a Response>,
    theirs: Option<&'a Response>,
    /// Their earlier responses.
    before: &'a [Response],
}

/// The number of responses of each side that the difference covers.
#[derive(Clone, Copy)]
struct Step {
    ours: usize,
    theirs: usize,
}

pub(crate) const ALLOWED: &[Allowed] = &[
    Allowed {
        name: "Coalesced acknowledgements",
        captures: &[
            ("cm_tos", 0, 2),
            ("duplicate", 0, 9),
            ("loss_requests", 0, 7),
            ("loss_responses", 0, 4),
            ("reorder", 0, 11),
            ("rstream", 0, 6),
            ("send_rc", 0, 1),
            ("ucmatose", 0, 8),
            ("write_4096_mtu1024", 0, 3),
            ("write_4096_mtu4096", 0, 4),
            ("write_64_mtu1024", 0, 4),
            ("write_64_mtu4096", 0, 4),
            ("write_65536_mtu4096", 0, 1),
        ],
        matches: acknowledgements_combined,
    },
    Allowed {
        name: "Duplicate READ answered once",
        captures: &[("duplicate", 0, 5)],
        matches: doubled_read_answered_once,
    },
    Allowed {
        name: "Sequence NAK after an RNR NAK",
        captures: &[("rnr", 3, 3)],
        matches: sequence_nak_after_rnr_nak,
    },
    Allowed {
        name: "Message longer than the receive",
        captures: &[("too_long", 1, 1)],
        matches: message_longer_than_receive,
    },
    Allowed {
        name: "Restarted READ answered from the middle",
        captures: &[("loss_responses", 3, 3)],
        matches: restarted_read_from_the_middle,
    },
    Allowed {
        name: "Responses lost before the capture",
        captures: &[("loss_responses", 6, 5)],
        matches: lost_before_the_capture,
    },
];

/// Our response acknowledges at least as much as theirs.
fn acknowledgements_combined(point: &Point<'_>) -> Option<Step> {
    let (ours, theirs) = (point.ours?, point.theirs?);
    let (syndrome, msn) = theirs.acknowledge?;
    let acknowledges = theirs.bth.opcode == Opcode::RC_ACKNOWLEDGE && syndrome.is_ack();
    let covered =
        !ours.bth.psn.is_before(theirs.bth.psn) && ours.msn().is_some_and(|ours| ours.0 >= msn.0);
    (acknowledges && covered).then_some(Step { ours: 0, theirs: 1 })
}

/// The duplicate request arrived before the response was sent.
fn doubled_read_answered_once(point: &Point<'_>) -> Option<Step> {
    let theirs = point.theirs?;
    let operation = theirs.bth.opcode.info()?.operation;
    let again = operation == Operation::ReadResponse && point.before.contains(theirs);
    again.then_some(Step { ours: 0, theirs: 1 })
}

/// rxe reports the gap that its own RNR NAK caused.
fn sequence_nak_after_rnr_nak(point: &Point<'_>) -> Option<Step> {
    let (theirs, before) = (point.theirs?, point.before.last()?);
    let same = before.is_rnr_nak() && (theirs.bth, theirs.msn()) == (before.bth, before.msn());
    let extra = same && theirs.nak() == Some(NakCode::PsnSequenceError);
    extra.then_some(Step { ours: 0, theirs: 1 })
}

/// The same NAK with another code.
fn message_longer_than_receive(point: &Point<'_>) -> Option<Step> {
    let (ours, theirs) = (point.ours?, point.theirs?);
    let codes = (ours.nak(), theirs.nak());
    let same = Response { acknowledge: theirs.acknowledge, ..ours.clone() } == *theirs;
    let codes_differ =
        codes == (Some(NakCode::InvalidRequest), Some(NakCode::RemoteOperationalError));
    (same && codes_differ && ours.msn() == theirs.msn()).then_some(Step { ours: 1, theirs: 1 })
}

/// The same bytes with the opcode of the first response. A middle response has no AETH: ours must equal that of the
/// response before, because no message was completed since.
fn restarted_read_from_the_middle(point: &Point<'_>) -> Option<Step> {
    let (ours, theirs) = (point.ours?, point.theirs?);
    let opcodes = (ours.bth.opcode, theirs.bth.opcode);
    let first_and_middle =
        opcodes == (Opcode::RC_RDMA_READ_RESPONSE_FIRST, Opcode::RC_RDMA_READ_RESPONSE_MIDDLE);
    let bth = Bth { opcode: theirs.bth.opcode, ..ours.bth };
    let same = Response { bth, acknowledge: None, ..ours.clone() } == *theirs
        && ours.acknowledge == point.before.last()?.acknowledge;
    (same && first_and_middle).then_some(Step { ours: 1, theirs: 1 })
}

/// rxe sent it too, but it is not in the file.
fn lost_before_the_capture(point: &Point<'_>) -> Option<Step> {
    point.ours.map(|_| Step { ours: 1, theirs: 0 })
}

/// The outcome of a comparison.
#[derive(Default)]
pub(crate) struct Comparison {
    /// Our responses with a counterpart, by index.
    pub(crate) compared: Vec<usize>,
    /// Allowed differences by name, and how often each was used.
    pub(crate) used: BTreeMap<&'static str, usize>,
    /// The first difference that is not allowed: nothing behind it is compared.
    pub(crate) difference: Option<String>,
}

/// Compares our responses in a capture with those of rdma_rxe.
pub(crate) fn compare(capture: &str, ours: &[Response], theirs: &[Response]) -> Comparison {
    let mut outcome = Comparison::default();
    let (mut our, mut their) = (0, 0);
    while our < ours.len() || their < theirs.len() {
        let point =
            Point { ours: ours.get(our), theirs: theirs.get(their), before: &theirs[..their] };
        let step = if point.ours == point.theirs {
            Step { ours: 1, theirs: 1 }
        } else if let Some((allowed, step)) = excuse(capture, &point) {
            *outcome.used.entry(allowed.name).or_default() += 1;
            step
        } else {
            let show = |response: Option<&Response>| {
                response.map_or("nothing".into(), Response::to_string)
            };
            let (mine, others) = (show(point.ours), show(point.theirs));
            let (my_place, place) = (our + 1, their + 1);
            outcome.difference = Some(format!(
                "our response {my_place} is {mine}; rdma_rxe's response {place} is {others}"
            ));
            break;
        };
        if (step.ours, step.theirs) == (1, 1) {
            outcome.compared.push(our);
        }
        our += step.ours;
        their += step.theirs;
    }
    outcome
}

fn excuse(capture: &str, point: &Point<'_>) -> Option<(&'static Allowed, Step)> {
    let here = |allowed: &&Allowed| allowed.captures.iter().any(|(name, ..)| *name == capture);
    ALLOWED.iter().filter(here).find_map(|one| Some((one, (one.matches)(point)?)))
}

/// Returns the errors of a capture's comparisons: differences that are not allowed, and allowed ones that occurred more
/// or less often than expected.
pub(crate) fn judge(capture: &str, pace: Pace, comparisons: &[Comparison]) -> Vec<String> {
    let mut wrong: Vec<String> =
        comparisons.iter().filter_map(|one| one.difference.clone()).collect();
    for allowed in ALLOWED {
        let known = allowed.captures.iter().find(|(name, ..)| *name == capture);
        let known = known.map_or(0, |(_, each, captured)| match pace {
            Pace::EachPacket => *each,
            Pace::AsCaptured => *captured,
        });
        let found = comparisons.iter().filter_map(|one| one.used.get(allowed.name)).sum::<usize>();
        if found != known {
            wrong.push(format!("\"{}\" occurred {found} times, not {known}", allowed.name));
        }
    }
    wrong
}
