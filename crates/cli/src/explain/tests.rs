//! Every topic: its example runs and shows what the text claims.

use std::sync::Mutex;

use ferroce_trace::dissect::dissect;
use ferroce_trace::link::LinkType;

use super::example::{only, show};
use super::lab::{Record, SCENARIOS};
use super::topic::Example;
use super::topics;
use crate::analyze::output::{Alphabet, print};
use crate::decode::text::TreeWriter;
use crate::style::{ColorChoice, Paint, Screen};

/// The examples of a process share its devices: one at a time keeps their captures apart.
static ONE: Mutex<()> = Mutex::new(());

fn rendered(example: Example, record: &Record) -> String {
    let shown = show(example, record, 200).unwrap();
    let mut out = record.steps.join("\n").into_bytes();
    out.push(b'\n');
    print(&shown.lines, Paint::PLAIN, Alphabet::Unicode, &mut out).unwrap();
    if let Some((bytes, layer)) = &shown.packet {
        let tree = only(dissect(LinkType::ETHERNET, bytes, bytes.len()), layer);
        TreeWriter::new(&Screen::new(ColorChoice::Never), true).write(&mut out, &tree).unwrap();
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn every_example_shows_what_its_text_claims() {
    let _one = ONE.lock();
    let mut wrong = Vec::new();
    for scenario in SCENARIOS {
        let of_scenario: Vec<_> =
            topics::all().filter(|topic| topic.example.scenario() == Some(*scenario)).collect();
        assert!(!of_scenario.is_empty(), "no topic uses {scenario:?}");
        let record = match scenario.run() {
            Ok(record) => record,
            Err(error) => {
                wrong.push(format!("{scenario:?}: {error}"));
                continue;
            }
        };
        assert_eq!(record.report.icrc.bad, 0, "{scenario:?}");
        for topic in of_scenario {
            let text = rendered(topic.example, &record);
            for words in topic.shows {
                if !text.contains(words) {
                    wrong.push(format!("{}: {words:?} is not in:\n{text}", topic.name));
                }
            }
            if let Example::Counter(_, name) = topic.example {
                let value = |one: &ferroce::Statistics| {
                    one.iter().find(|(own, _)| *own == name).map(|(_, count)| count)
                };
                let grew = value(&record.counters.1) > value(&record.counters.0);
                assert!(grew, "{name} did not grow");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_topic_has_its_texts() {
    for topic in topics::all() {
        assert!(
            !topic.plain.is_empty() && !topic.precise.is_empty() && !topic.clause.is_empty(),
            "{}",
            topic.name
        );
        let possible = topic.example.scenario().is_some();
        assert_eq!(
            possible,
            !topic.shows.is_empty(),
            "{}: what does its example show?",
            topic.name
        );
        assert!(topic.plain.len() + topic.precise.len() < 700, "{}: a screenful", topic.name);
    }
}

#[test]
fn all_counters_of_linux_are_explained() {
    let names: Vec<_> = topics::all().map(|topic| topic.name).collect();
    for (counter, _) in ferroce::Statistics::default().hw_counters() {
        assert!(names.contains(&counter), "{counter}");
    }
}

#[test]
fn all_statuses_and_headers_are_explained() {
    for number in 0..=23 {
        assert!(super::lookup::find(&format!("status {number}")).is_ok(), "{number}");
    }
    for header in ferroce_wire::opcode::Extensions::ALL.iter().map(|header| header.name) {
        // RDETH belongs to the reliable datagram service, which nobody implements.
        assert!(header == "RDETH" || super::lookup::find(header).is_ok(), "{header}");
    }
}
