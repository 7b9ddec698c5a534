//! Random programs over every scenario.

use super::{Simulation, Transfer, Workload};
use crate::Scenario;

/// Runs seeds of a scenario; returns how many requests succeeded of how many.
fn seeds(scenario: Scenario, seeds: std::ops::Range<u64>) -> (u64, u64) {
    let (mut succeeded, mut requests) = (0, 0);
    for seed in seeds {
        let simulation = Simulation { scenario, seed, workload: Workload::default() };
        let summary = simulation.run();
        let replay = simulation.replay();
        assert!(summary.violations.is_empty(), "{summary}\nto see it again: {replay}");
        succeeded += summary.succeeded;
        requests += summary.requests;
    }
    (succeeded, requests)
}

#[test]
fn everything_succeeds_on_a_clean_network() {
    let (succeeded, requests) = seeds(Scenario::Clean, 0..100);
    assert_eq!(succeeded, requests);
}

#[test]
fn nearly_everything_succeeds_with_some_loss() {
    let (succeeded, requests) = seeds(Scenario::lossy(0.01), 0..300);
    assert!(succeeded * 100 > requests * 99, "{succeeded} of {requests}");
}

#[test]
fn nothing_wrong_happens_on_a_bad_network() {
    for scenario in [
        Scenario::lossy(0.1),
        Scenario::Bursty,
        Scenario::Reordering,
        Scenario::Duplicating,
        Scenario::Corrupting,
        Scenario::Congested,
        Scenario::Partitioned,
        Scenario::Pausing,
        Scenario::Crashing,
    ] {
        seeds(scenario, 0..100);
    }
}

#[test]
fn nothing_wrong_happens_on_a_hostile_network() {
    let (succeeded, requests) = seeds(Scenario::Hostile, 0..700);
    assert!(succeeded * 2 > requests, "{succeeded} of {requests}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let simulation =
        Simulation { scenario: Scenario::Hostile, seed: 42, workload: Workload::default() };
    assert_eq!(simulation.run().hash, simulation.run().hash);
    let other = Simulation { seed: 43, ..simulation };
    assert_ne!(simulation.run().hash, other.run().hash);
}

/// Goodput in Gbit/s of 4 MiB in WRITEs, by loss and path MTU: the middle one of seven seeds, so that one unlucky loss
/// does not stand for all.
fn recovery_table() -> String {
    let mut text = String::from("| loss | MTU 256 | MTU 1024 | MTU 4096 |\n|---|---|---|---|\n");
    for (name, loss) in [("0", 0.0), ("0.1 %", 0.001), ("1 %", 0.01), ("5 %", 0.05), ("10 %", 0.1)]
    {
        text += &format!("| {name} |");
        for mtu in [256, 1024, 4096] {
            let scenario = if loss == 0.0 { Scenario::Clean } else { Scenario::lossy(loss) };
            let mut times: Vec<_> = (0..7)
                .filter_map(|seed| Transfer { scenario, seed, mtu, bytes: 4 << 20 }.run())
                .collect();
            times.sort();
            let gigabits =
                |time: std::time::Duration| f64::from(4 << 20) * 8.0 / time.as_secs_f64() / 1e9;
            text += &match times.get(3) {
                Some(&time) => format!(" {:.3} |", gigabits(time)),
                None => " fails |".to_owned(),
            };
        }
        text.push('\n');
    }
    text
}

/// A snapshot: a change in how losses are repaired shows here. `FERROCE_UPDATE_DOCS=1` writes it anew.
#[test]
fn recovery_is_as_fast_as_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recovery.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (start, table) = (text.find("| loss").unwrap(), recovery_table());
    let end = start + text[start..].find("\n\n").map_or(text.len() - start, |end| end + 1);
    if std::env::var_os("FERROCE_UPDATE_DOCS").is_some() {
        std::fs::write(path, [&text[..start], &table, &text[end..]].concat()).unwrap();
        return;
    }
    assert_eq!(&text[start..end], table, "FERROCE_UPDATE_DOCS=1 writes docs/recovery.md anew");
}
