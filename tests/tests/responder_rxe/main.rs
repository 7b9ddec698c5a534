//! Our responder against the kernel's: fed with the requests of every capture of rdma_rxe, it must answer as rdma_rxe
//! did, but for a short list of explained differences.
//!
//! | file | what |
//! |---|---|
//! | `situation` | queue pair, memory and receives as the capture implies them |
//! | `memory` | the bytes and keys that the capture tells |
//! | `replay` | our responder's answers to the captured requests |
//! | `answer` | what of an answer is compared |
//! | `differences` | the comparison, and the differences that are allowed |

mod answer;
mod differences;
mod memory;
mod replay;
mod situation;

use std::collections::BTreeMap;

use answer::Answer;
use differences::{ALLOWED, Comparison, compare, judge};
use ferroce_tests::exchange::{self, Exchange};
use ferroce_tests::{capture, document};
use ferroce_wire::number::{Msn, Qpn, Word};
use ferroce_wire::syndrome::Syndrome;
use replay::Pace;

/// Captures with requests over a reliable connection, none of whose answers can be compared, and why.
const NOT_COMPARED: &[(&str, &str)] =
    &[("timeout", "the requests go to a queue pair that does not exist: nobody answers")];

/// Captures that have no reliable connection in them.
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

/// An exchange and our answers to it.
struct Replayed {
    exchange: Exchange,
    ours: Vec<Answer>,
    theirs: Vec<Answer>,
}

/// The captures that can be compared, replayed.
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
            let (ours, theirs) = (replay::replay(&exchange, pace), answer::expected(&exchange));
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

/// Answers that are compared, by class, when our responder sends after every packet.
const PROMPT: [(&str, usize); 5] =
    [("ACK", 310), ("NAK", 25), ("RNR NAK", 6), ("READ response", 365), ("atomic response", 38)];

/// The same when answers wait.
const LATE: [(&str, usize); 5] =
    [("ACK", 246), ("NAK", 25), ("RNR NAK", 6), ("READ response", 360), ("atomic response", 38)];

#[test]
fn our_responder_answers_as_rdma_rxe_does() {
    report(Pace::EachPacket, PROMPT);
}

#[test]
fn answers_that_wait_are_as_rdma_rxe_sent_them() {
    report(Pace::AsCaptured, LATE);
}

/// Compares all captures, and prints what was compared.
fn report(pace: Pace, expected: [(&str, usize); 5]) {
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    for (name, exchanges) in replayed(pace) {
        let comparisons = comparisons(&name, &exchanges);
        let requests: usize = exchanges.iter().map(|one| one.exchange.requests.len()).sum();
        let compared: usize = comparisons.iter().map(|one| one.compared.len()).sum();
        assert!(compared > 0, "{name}: no answers to compare");
        println!("{name}: {requests} requests, {compared} answers compared");
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
    println!("answers compared: {classes:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(classes, BTreeMap::from(expected), "answers compared");
}

/// A way to be wrong: changes the answers at an index.
type Change = fn(&mut Vec<Answer>, usize);

const CHANGES: &[(&str, Change)] = &[
    ("PSN", |answers, index| answers[index].bth.psn = answers[index].bth.psn.add(1)),
    ("MSN", |answers, index| {
        if let Some((_, msn)) = &mut answers[index].acknowledge {
            *msn = Msn(msn.0 + 1);
        }
    }),
    ("syndrome", |answers, index| {
        if let Some((syndrome, _)) = &mut answers[index].acknowledge {
            *syndrome = Syndrome(syndrome.0 ^ 1);
        }
    }),
    ("atomic", |answers, index| {
        if let Some(original) = &mut answers[index].original {
            *original = Word(!original.0);
        }
    }),
    ("payload", |answers, index| {
        if let Some(last) = answers[index].payload.last_mut() {
            *last ^= 1;
        }
    }),
    ("length", |answers, index| {
        answers[index].payload.pop();
    }),
    ("opcode", |answers, index| answers[index].bth.opcode.0 ^= 0x20),
    ("destination", |answers, index| answers[index].bth.destination = Qpn(0xff_fffe)),
    ("missing", |answers, index| drop(answers.remove(index))),
    ("twice", |answers, index| answers.insert(index, answers[index].clone())),
];

#[test]
fn every_wrong_answer_would_be_found() {
    let tried = [Pace::EachPacket, Pace::AsCaptured].map(try_changes);
    println!("{tried:?} wrong answers found");
    assert!(tried.iter().all(|&tried| tried > 5000), "{tried:?}");
}

/// Makes every answer wrong in every way, one at a time.
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
                        assert!(!wrong.is_empty(), "{name}: {change} of answer {index}");
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
    for counts in [PROMPT, LATE] {
        let counts = counts.map(|(_, count)| count);
        let [ack, nak, rnr, read, atomic] = counts;
        let row = format!(
            "| {} | {ack} | {nak} | {rnr} | {read} | {atomic} |",
            counts.iter().sum::<usize>()
        );
        assert!(document.contains(&row), "{row}");
    }
}
