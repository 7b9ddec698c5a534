//! Compares our requester with the kernel's: with the work requests that a capture of rdma_rxe implies, and given the
//! responses of the capture, it must send what rdma_rxe sent, except for a short list of explained differences, and
//! each work request must complete as it did there.
//!
//! | file | what |
//! |---|---|
//! | `work` | QP and work requests, as implied by the capture, and how each completed |
//! | `memory` | the bytes that are sent and received |
//! | `replay` | our requester, driven by the capture |
//! | `request` | the compared parts of a request |
//! | `differences` | the allowed differences |

mod differences;
mod memory;
mod replay;
mod request;
mod work;

use std::collections::BTreeMap;

use differences::{ALLOWED, judge};
use ferroce_tests::exchange::{self, Exchange};
use ferroce_tests::{capture, document};
use replay::{Change, Outcome, Pace, replay};
use request::Request;
use work::Situation;

/// The number of captures with RC, all of which are compared.
const CAPTURES: usize = 41;

/// A capture's exchanges, and the initial state of our requester in each.
type Capture = (String, Vec<(Exchange, Situation)>);

fn captures() -> Vec<Capture> {
    let mut captures = Vec::new();
    for path in capture::rxe() {
        let reliable = exchange::read(&path);
        let unanswered: usize = reliable.unanswered.iter().map(|one| one.requests.len()).sum();
        let name = capture::name(&path);
        assert_eq!(reliable.left_over, unanswered, "{name}: packets that are not compared");
        let exchanges: Vec<_> = (reliable.exchanges.into_iter().chain(reliable.unanswered))
            .map(|exchange| {
                let situation = Situation::of(&exchange);
                (exchange, situation)
            })
            .collect();
        if !exchanges.is_empty() {
            captures.push((name, exchanges));
        }
    }
    assert_eq!(captures.len(), CAPTURES, "a capture is missing");
    captures
}

/// What was compared in all captures together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    compared: BTreeMap<&'static str, usize>,
    retransmitted: usize,
    timer: usize,
    went_back: usize,
    waited: usize,
    completed: BTreeMap<&'static str, usize>,
    returned: usize,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        let Outcome { retransmitted, timer, went_back, waited, returned, .. } = outcome;
        for (class, count) in &outcome.compared {
            *self.compared.entry(class).or_default() += count;
        }
        for (status, count) in &outcome.completed {
            *self.completed.entry(status).or_default() += count;
        }
        self.retransmitted += retransmitted;
        self.timer += timer;
        self.went_back += went_back;
        self.waited += waited;
        self.returned += returned;
    }
}

/// The expected counts at a pace: requests compared, by class; retransmissions among them; timer retransmissions among
/// those.
struct Known {
    compared: [(&'static str, usize); 4],
    retransmitted: usize,
    timer: usize,
}

const IMMEDIATE: Known = Known {
    compared: [("SEND", 441), ("WRITE", 441), ("READ", 99), ("atomic", 54)],
    retransmitted: 127,
    timer: 6,
};

const AS_CAPTURED: Known = Known {
    compared: [("SEND", 440), ("WRITE", 440), ("READ", 99), ("atomic", 54)],
    retransmitted: 125,
    timer: 12,
};

/// How the work requests completed.
const COMPLETED: [(&str, usize); 6] = [
    ("success", 404),
    ("remote access", 4),
    ("invalid request", 1),
    ("remote operation", 2),
    ("never ready", 1),
    ("no response", 1),
];

/// Responses after which our next request must be the missing one: sequence NAKs, RNR NAKs except the last of
/// `rnr_exceeded`, and the first READ response after a gap.
const WENT_BACK: usize = 26;
/// Responses after which our requester must not send: RNR NAKs, and the sequence NAKs that rdma_rxe sends after them.
const WAITED: usize = 9;
/// Bytes that READs and atomics returned.
const RETURNED_BYTES: usize = 476_769;

#[test]
fn our_requester_sends_as_rdma_rxe_does() {
    report(Pace::Immediate, &IMMEDIATE);
}

#[test]
fn our_requester_at_the_captured_pace_sends_as_rdma_rxe_does() {
    report(Pace::AsCaptured, &AS_CAPTURED);
}

/// Compares all captures, and prints what was compared.
fn report(pace: Pace, known: &Known) {
    let mut totals = Totals::default();
    let mut failures = Vec::new();
    for (name, exchanges) in captures() {
        let outcomes: Vec<Outcome> =
            exchanges.iter().map(|(one, start)| replay(one, start, pace, None)).collect();
        for outcome in &outcomes {
            let compared: usize = outcome.compared.values().sum();
            assert!(compared > 0 || outcome.wrong.is_some(), "{name}: nothing compared");
            println!("{name}: {compared} compared, differences {:?}", outcome.differences);
            totals.add(outcome);
        }
        let wrong = judge(&name, pace, &outcomes.iter().collect::<Vec<_>>());
        failures.extend(wrong.iter().map(|what| format!("{name}: {what}")));
    }
    println!("{totals:#?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let known = Totals {
        compared: BTreeMap::from(known.compared),
        retransmitted: known.retransmitted,
        timer: known.timer,
        went_back: WENT_BACK,
        waited: WAITED,
        completed: BTreeMap::from(COMPLETED),
        returned: RETURNED_BYTES,
    };
    assert_eq!(totals, known, "what was compared");
}

/// Changes a byte, where there is one.
fn flip(mut request: Request, at: usize) -> Vec<Request> {
    if let Some(byte) = request.bytes_mut().get_mut(at) {
        *byte ^= 1;
    }
    vec![request]
}

/// Mutations of the BTH and of what follows it: an address, or payload. The PSN is changed by 256, because the next
/// packet may have the same payload, and then its PSN would not be wrong.
const CHANGES: &[(&str, Change)] = &[
    ("opcode", |request| flip(request, 0)),
    ("solicited, pad or version", |request| flip(request, 1)),
    ("destination", |request| flip(request, 7)),
    ("PSN", |request| flip(request, 10)),
    ("header or payload", |request| flip(request, 12)),
    ("last byte", |mut request| {
        let last = request.bytes_mut().len() - 1;
        flip(request, last)
    }),
    ("length", |mut request| {
        request.bytes_mut().pop();
        vec![request]
    }),
    ("acknowledge request bit", |mut request| {
        request.bytes_mut()[8] ^= 0x80;
        vec![request]
    }),
    ("missing", |_| vec![]),
    ("twice", |request| vec![request.clone(), request]),
];

#[test]
fn every_wrong_request_is_detected() {
    let captures = captures();
    let tried = [Pace::Immediate, Pace::AsCaptured]
        .map(|pace| captures.iter().map(|capture| try_changes(capture, pace)).sum::<usize>());
    println!("{tried:?} wrong requests found");
    assert!(tried.iter().all(|&tried| tried > 9000), "{tried:?}");
}

/// Applies every mutation to every request with a counterpart, one at a time.
fn try_changes((name, exchanges): &Capture, pace: Pace) -> usize {
    let run = |one: &(Exchange, Situation), change| replay(&one.0, &one.1, pace, change);
    let right: Vec<Outcome> = exchanges.iter().map(|one| run(one, None)).collect();
    let mut tried = 0;
    for (place, one) in exchanges.iter().enumerate() {
        for &index in &right[place].counterparts {
            for &(change, apply) in CHANGES {
                let changed = run(one, Some((index, apply)));
                // An empty SEND has nothing after its BTH.
                if !changed.changed {
                    continue;
                }
                let mut outcomes: Vec<&Outcome> = right.iter().collect();
                outcomes[place] = &changed;
                let wrong = judge(name, pace, &outcomes);
                assert!(!wrong.is_empty(), "{name}, {pace:?}: {change} of request {index}");
                tried += 1;
            }
        }
    }
    tried
}

#[test]
fn every_allowed_difference_is_explained() {
    let document = document::differences_from_rxe("Our requester");
    let names: Vec<&str> = ALLOWED.iter().map(|allowed| allowed.name).collect();
    assert_eq!(document::titles(&document), names, "sections of the document and the list");
    for (capture, ..) in ALLOWED.iter().flat_map(|allowed| allowed.captures) {
        assert!(document.contains(&format!("`{capture}`")), "{capture}");
    }
    for known in [IMMEDIATE, AS_CAPTURED] {
        let [send, write, read, atomic] = known.compared.map(|(_, count)| count);
        let row = format!(
            "| {} | {send} | {write} | {read} | {atomic} | {} | {} |",
            send + write + read + atomic,
            known.retransmitted,
            known.timer
        );
        assert!(document.contains(&row), "{row}");
    }
}
