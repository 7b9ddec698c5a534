//! Our requester against the kernel's: with the work requests that a capture of rdma_rxe implies, and fed with the
//! answers of the capture, it must send what rdma_rxe sent, but for a short list of explained differences, and each
//! work request must end as it did there.
//!
//! | file | what |
//! |---|---|
//! | `work` | queue pair and work requests as the capture implies them, and how each ended |
//! | `memory` | the bytes that are sent, and those that come back |
//! | `replay` | our requester, driven by the capture |
//! | `request` | what of a request is compared |
//! | `differences` | the differences that are allowed |

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

/// The captures of reliable connections: all of them are compared.
const CAPTURES: usize = 41;

/// A capture's exchanges, and what our requester starts with in each.
type Capture = (String, Vec<(Exchange, Situation)>);

fn captures() -> Vec<Capture> {
    let mut captures = Vec::new();
    for path in capture::rxe() {
        let reliable = exchange::read(&path);
        let told: usize = reliable.unanswered.iter().map(|one| one.requests.len()).sum();
        let name = capture::name(&path);
        assert_eq!(reliable.left_over, told, "{name}: packets that are not compared");
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
    again: usize,
    timer: usize,
    went_back: usize,
    waited: usize,
    completed: BTreeMap<&'static str, usize>,
    brought: usize,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        let Outcome { again, timer, went_back, waited, brought, .. } = outcome;
        for (class, count) in &outcome.compared {
            *self.compared.entry(class).or_default() += count;
        }
        for (status, count) in &outcome.completed {
            *self.completed.entry(status).or_default() += count;
        }
        self.again += again;
        self.timer += timer;
        self.went_back += went_back;
        self.waited += waited;
        self.brought += brought;
    }
}

/// What is compared at a pace: by class; of these, what both sent again; of these, what we sent for the timer.
struct Known {
    compared: [(&'static str, usize); 4],
    again: usize,
    timer: usize,
}

const AT_ONCE: Known = Known {
    compared: [("SEND", 441), ("WRITE", 441), ("READ", 99), ("atomic", 54)],
    again: 127,
    timer: 6,
};

const AS_CAPTURED: Known = Known {
    compared: [("SEND", 440), ("WRITE", 440), ("READ", 99), ("atomic", 54)],
    again: 125,
    timer: 12,
};

/// How the work requests ended.
const COMPLETED: [(&str, usize); 6] = [
    ("success", 404),
    ("remote access", 4),
    ("invalid request", 1),
    ("remote operation", 2),
    ("never ready", 1),
    ("no answer", 1),
];

/// Answers after which our next request must be the one that is missing: sequence NAKs, RNR NAKs but for the last of
/// `rnr_exceeded`, and the first READ response after a gap.
const WENT_BACK: usize = 26;
/// Answers after which our requester must not send: RNR NAKs, and the sequence NAKs that rdma_rxe sends after them.
const WAITED: usize = 9;
/// Bytes that READs and atomics brought.
const BROUGHT: usize = 476_769;

#[test]
fn our_requester_sends_as_rdma_rxe_does() {
    report(Pace::AtOnce, &AT_ONCE);
}

#[test]
fn a_requester_that_keeps_pace_sends_as_rdma_rxe_does() {
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
        again: known.again,
        timer: known.timer,
        went_back: WENT_BACK,
        waited: WAITED,
        completed: BTreeMap::from(COMPLETED),
        brought: BROUGHT,
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

/// Places are those of the BTH, and of what comes behind it: an address, or payload. The PSN is made wrong by 256, for
/// the next packet's can have the same bytes behind it, and then is no wrong one.
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
    ("wish for an acknowledgement", |mut request| {
        request.bytes_mut()[8] ^= 0x80;
        vec![request]
    }),
    ("missing", |_| vec![]),
    ("twice", |request| vec![request.clone(), request]),
];

#[test]
fn every_wrong_request_would_be_found() {
    let captures = captures();
    let tried = [Pace::AtOnce, Pace::AsCaptured]
        .map(|pace| captures.iter().map(|capture| try_changes(capture, pace)).sum::<usize>());
    println!("{tried:?} wrong requests found");
    assert!(tried.iter().all(|&tried| tried > 9000), "{tried:?}");
}

/// Makes every request that has its counterpart wrong in every way, one at a time.
fn try_changes((name, exchanges): &Capture, pace: Pace) -> usize {
    let run = |one: &(Exchange, Situation), change| replay(&one.0, &one.1, pace, change);
    let right: Vec<Outcome> = exchanges.iter().map(|one| run(one, None)).collect();
    let mut tried = 0;
    for (place, one) in exchanges.iter().enumerate() {
        for &index in &right[place].counterparts {
            for &(change, apply) in CHANGES {
                let changed = run(one, Some((index, apply)));
                // An empty SEND has nothing behind its BTH.
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
    for known in [AT_ONCE, AS_CAPTURED] {
        let [send, write, read, atomic] = known.compared.map(|(_, count)| count);
        let row = format!(
            "| {} | {send} | {write} | {read} | {atomic} | {} | {} |",
            send + write + read + atomic,
            known.again,
            known.timer
        );
        assert!(document.contains(&row), "{row}");
    }
}
