//! Compares our responder with the kernel's: given the requests of every capture of rdma_rxe, it must respond as
//! rdma_rxe did, except for a short list of explained differences.
//!
//! | file | what |
//! |---|---|
//! | `situation` | QP, memory and receive requests, as implied by the capture |
//! | `memory` | the bytes and keys that the capture reveals |
//! | `replay` | our responder's responses to the captured requests |
//! | `response` | the compared parts of a response |
//! | `differences` | the comparison, and the allowed differences |

mod differences;
mod memory;
mod replay;
mod response;
mod situation;

use std::collections::BTreeMap;

use differences::{ALLOWED, Comparison, compare, judge};
use ferroce_tests::exchange::{self, Exchange};
use ferroce_tests::{capture, document};
use ferroce_wire::number::{Msn, Qpn, Word};
use ferroce_wire::syndrome::Syndrome;
use replay::Pace;
use response::Response;

/// Captures with RC requests whose responses cannot be compared, and why.
const NOT_COMPARED: &[(&str, &str)] =
    &[("timeout", "the requests go to a queue pair that does not exist: there are no responses")];

/// Captures without RC.
const NOT_RELIABLE: &[&str] = &[
    "cm_reject",
    "imm_uc",
    "mckey",
    "send_uc",
    "send_ud",
    "uc_pingpong",
    "ud_imm",
    "ud_pingpong",
    "ud_pingpong_v6",
    "udaddy",
    "write_uc",
];

/// An exchange and our responses to it.
struct Replayed {
    exchange: Exchange,
    ours: Vec<Response>,
    theirs: Vec<Response>,
}

/// Replays the captures that can be compared.
fn replayed(pace: Pace) -> Vec<(String, Vec<Replayed>)> {
    let skipped = |name: &str| {
        NOT_RELIABLE.contains(&name) || NOT_COMPARED.iter().any(|(other, _)| *other == name)
    };
    let mut captures = Vec::new();
    let mut left_out = 0;
    for path in capture::rxe() {
        let name = capture::name(&path);
        let reliable = exchange::read(&path);
        if skipped(&name) {
            assert!(reliable.exchanges.is_empty(), "{name} can be compared");
            left_out += 1;
            continue;
        }
        assert_eq!(reliable.left_over, 0, "{name}: packets that are not compared");
        let exchanges = reliable.exchanges.into_iter().map(|exchange| {
            let (ours, theirs) = (replay::replay(&exchange, pace), response::expected(&exchange));
            Replayed { exchange, ours, theirs }
        });
        captures.push((name, exchanges.collect()));
    }
    assert_eq!(left_out, NOT_RELIABLE.len() + NOT_COMPARED.len(), "a capture is missing");
    captures
}

fn comparisons(capture: &str, exchanges: &[Replayed]) -> Vec<Comparison> {
    exchanges.iter().map(|one| compare(capture, &one.ours, &one.theirs)).collect()
}

/// Responses compared, by class, if our responder sends after every packet.
const IMMEDIATE: [(&str, usize); 5] =
    [("ACK", 310), ("NAK", 25), ("RNR NAK", 6), ("READ response", 365), ("atomic response", 38)];

/// The same if responses are delayed as in the capture.
const DELAYED: [(&str, usize); 5] =
    [("ACK", 246), ("NAK", 25), ("RNR NAK", 6), ("READ response", 360), ("atomic response", 38)];

#[test]
fn our_responder_responds_as_rdma_rxe_does() {
    report(Pace::EachPacket, IMMEDIATE);
}

#[test]
fn delayed_responses_match_those_of_rdma_rxe() {
    report(Pace::AsCaptured, DELAYED);
}

/// Compares all captures, and prints what was compared.
fn report(pace: Pace, expected: [(&str, usize); 5]) {
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    for (name, exchanges) in replayed(pace) {
        let comparisons = comparisons(&name, &exchanges);
        let requests: usize = exchanges.iter().map(|one| one.exchange.requests.len()).sum();
        let compared: usize = comparisons.iter().map(|one| one.compared.len()).sum();
        assert!(compared > 0, "{name}: no responses to compare");
        println!("{name}: {requests} requests, {compared} responses compared");
        for (one, comparison) in exchanges.iter().zip(&comparisons) {
            for &index in &comparison.compared {
                *classes.entry(one.ours[index].class()).or_default() += 1;
            }
            for (difference, count) in &comparison.used {
                println!("    {difference}: {count}");
            }
            if let Some(difference) = &comparison.difference {
                println!("    {}: {difference}", one.exchange.title);
            }
        }
        failures
            .extend(judge(&name, pace, &comparisons).iter().map(|what| format!("{name}: {what}")));
    }
    for (name, reason) in NOT_COMPARED {
        println!("{name}: not compared: {reason}");
    }
    println!("responses compared: {classes:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(classes, BTreeMap::from(expected), "responses compared");
}

/// A mutation: changes the response at an index.
type Change = fn(&mut Vec<Response>, usize);

const CHANGES: &[(&str, Change)] = &[
    ("PSN", |responses, index| responses[index].bth.psn = responses[index].bth.psn.add(1)),
    ("MSN", |responses, index| {
        if let Some((_, msn)) = &mut responses[index].acknowledge {
            *msn = Msn(msn.0 + 1);
        }
    }),
    ("syndrome", |responses, index| {
        if let Some((syndrome, _)) = &mut responses[index].acknowledge {
            *syndrome = Syndrome(syndrome.0 ^ 1);
        }
    }),
    ("atomic", |responses, index| {
        if let Some(original) = &mut responses[index].original {
            *original = Word(!original.0);
        }
    }),
    ("payload", |responses, index| {
        if let Some(last) = responses[index].payload.last_mut() {
            *last ^= 1;
        }
    }),
    ("length", |responses, index| {
        responses[index].payload.pop();
    }),
    ("opcode", |responses, index| responses[index].bth.opcode.0 ^= 0x20),
    ("destination", |responses, index| responses[index].bth.destination = Qpn(0xff_fffe)),
    ("missing", |responses, index| drop(responses.remove(index))),
    ("twice", |responses, index| responses.insert(index, responses[index].clone())),
];

#[test]
fn every_wrong_response_is_detected() {
    let tried = [Pace::EachPacket, Pace::AsCaptured].map(try_changes);
    println!("{tried:?} wrong responses found");
    assert!(tried.iter().all(|&tried| tried > 5000), "{tried:?}");
}

/// Applies every mutation to every response, one at a time.
fn try_changes(pace: Pace) -> usize {
    let mut tried = 0;
    for (name, mut exchanges) in replayed(pace) {
        let found = comparisons(&name, &exchanges);
        for (place, comparison) in found.iter().enumerate() {
            for &index in &comparison.compared {
                for (change, apply) in CHANGES {
                    let right = exchanges[place].ours.clone();
                    apply(&mut exchanges[place].ours, index);
                    if exchanges[place].ours != right {
                        let wrong = judge(&name, pace, &comparisons(&name, &exchanges));
                        assert!(!wrong.is_empty(), "{name}: {change} of response {index}");
                        tried += 1;
                    }
                    exchanges[place].ours = right;
                }
            }
        }
    }
    tried
}

#[test]
fn every_allowed_difference_is_explained() {
    let document = document::differences_from_rxe("Our responder");
    let names: Vec<&str> = ALLOWED.iter().map(|allowed| allowed.name).collect();
    assert_eq!(document::titles(&document), names, "sections of the document and the list");
    for (capture, ..) in ALLOWED.iter().flat_map(|allowed| allowed.captures) {
        assert!(document.contains(&format!("`{capture}`")), "{capture}");
    }
    for counts in [IMMEDIATE, DELAYED] {
        let counts = counts.map(|(_, count)| count);
        let [ack, nak, rnr, read, atomic] = counts;
        let row = format!(
            "| {} | {ack} | {nak} | {rnr} | {read} | {atomic} |",
            counts.iter().sum::<usize>()
        );
        assert!(document.contains(&row), "{row}");
    }
}
