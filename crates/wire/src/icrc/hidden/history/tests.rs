use core::time::Duration;
use std::vec::Vec;

use proptest::prelude::*;

use super::super::Identification;
use super::Plausibility::{Expected, Implausible, Unproven};
use super::{
    BATCH_LIMIT, IdentificationHistory, MAX_BACKWARD, MAX_FORWARD, MAX_TRACKS, Plausibility,
    observe_flow,
};

fn observe(history: &mut IdentificationHistory, id: u16) -> Plausibility {
    history.observe(Identification { id, dont_fragment: true }, Duration::ZERO)
}

fn counting_from(id: u16) -> IdentificationHistory {
    let mut history = IdentificationHistory::new();
    assert_eq!(observe(&mut history, id), Unproven);
    history
}

#[test]
fn the_first_packet_of_a_counter_is_unproven() {
    let mut history = counting_from(47_664);
    assert_eq!(observe(&mut history, 47_665), Expected);
}

#[test]
fn a_counter_wraps_around() {
    let mut history = counting_from(65_534);
    for id in [65_535, 0, 1, 2, 130] {
        assert_eq!(observe(&mut history, id), Expected, "{id}");
    }
}

#[test]
fn losses_and_reordering_are_expected() {
    let mut history = counting_from(1000);
    assert_eq!(observe(&mut history, 1000 + MAX_FORWARD), Expected);
    assert_eq!(observe(&mut history, 1000 + MAX_FORWARD - MAX_BACKWARD), Expected);
    assert_eq!(observe(&mut history, 1000 + MAX_FORWARD), Expected, "the same twice");
    // A late packet does not set the counter back.
    assert_eq!(observe(&mut history, 1000 + 2 * MAX_FORWARD), Expected);
}

#[test]
fn distant_identifications_are_implausible() {
    let mut history = counting_from(30_000);
    assert_eq!(observe(&mut history, 30_001 + MAX_FORWARD), Implausible);
    assert_eq!(observe(&mut history, 29_999 - MAX_BACKWARD), Implausible);
    assert_eq!(observe(&mut history, 30_001), Expected, "the counter stays where it was");
}

#[test]
fn an_idle_counter_may_jump_by_the_elapsed_time() {
    let at = |id, seconds| {
        let seen = Identification { id, dont_fragment: true };
        counting_from(20_000).observe(seen, Duration::from_secs(seconds))
    };
    assert_eq!(at(21_500, 0), Implausible);
    assert_eq!(at(21_500, 1), Expected);
    assert_eq!(at(40_000, 10), Implausible);
    assert_eq!(at(40_000, 60), Unproven, "after a minute nothing is known");
}

#[test]
fn the_dont_fragment_flag_must_match() {
    let mut history = counting_from(500);
    let without_flag = Identification { id: 501, dont_fragment: false };
    assert_eq!(history.observe(without_flag, Duration::ZERO), Implausible);

    let mut fragmenting = IdentificationHistory::new();
    assert_eq!(fragmenting.observe(without_flag, Duration::ZERO), Unproven);
    let next = Identification { id: 502, dont_fragment: false };
    assert_eq!(fragmenting.observe(next, Duration::ZERO), Expected);
}

#[test]
fn batches_restart_at_zero() {
    let mut history = IdentificationHistory::new();
    for id in (0..BATCH_LIMIT).chain(0..3).chain([126, 0, 0, 5]) {
        assert_eq!(observe(&mut history, id), Expected, "{id}");
    }
    assert_eq!(observe(&mut history, BATCH_LIMIT), Implausible);
    assert_eq!(observe(&mut history, 0), Expected);
    let idle = Duration::from_secs(3600);
    let seen = Identification::of_segment(7);
    assert_eq!(history.observe(seen, idle), Expected, "indices do not age");
}

/// Below [`BATCH_LIMIT`] a counter looks like the first batch of a Ferroce sender.
#[test]
fn a_counter_may_start_below_the_batch_limit() {
    for start in 0..BATCH_LIMIT {
        let mut history = IdentificationHistory::new();
        for id in start..2000 {
            assert_eq!(observe(&mut history, id), Expected, "{id} from {start}");
        }
        assert_eq!(observe(&mut history, 40_000), Implausible, "from {start}");
    }
}

#[test]
fn a_counter_below_the_batch_limit_may_jump_after_a_pause() {
    let mut history = IdentificationHistory::new();
    assert_eq!(observe(&mut history, 100), Expected);
    let seen = Identification { id: 2000, dont_fragment: true };
    assert_eq!(history.observe(seen, Duration::from_secs(1)), Expected);
}

#[test]
fn a_sender_that_jumps_loses_one_packet() {
    let mut history = counting_from(1000);
    assert_eq!(observe(&mut history, 1001), Expected);
    assert_eq!(observe(&mut history, 40_000), Implausible);
    assert_eq!(observe(&mut history, 40_001), Expected);
    assert_eq!(observe(&mut history, 40_002), Expected);
    // And one that changes to batches.
    assert_eq!(observe(&mut history, 90), Implausible);
    assert_eq!(observe(&mut history, 0), Expected);
    assert_eq!(observe(&mut history, 1), Expected);
}

#[test]
fn a_sender_of_random_identifications_is_not_locked_out() {
    let mut history = IdentificationHistory::new();
    let verdicts: Vec<_> =
        (1..100_u16).map(|n| observe(&mut history, n.wrapping_mul(40_503))).collect();
    assert_eq!(verdicts[0], Unproven);
    assert_eq!(verdicts.iter().filter(|&&verdict| verdict == Implausible).count(), 4);
    assert!(verdicts[5..].iter().all(|&verdict| verdict == Unproven));
    // If it starts counting, it is tracked again.
    for id in 100..200 {
        let _ = observe(&mut history, id);
    }
    assert_eq!(observe(&mut history, 200), Expected);
    assert_eq!(observe(&mut history, 9_000), Implausible);
}

/// Dropped packets of a sender that alternates between counters, with `run` packets from each.
fn dropped(counters: u16, run: u16, turns: u16) -> usize {
    let mut history = IdentificationHistory::new();
    let ids = (0..turns).flat_map(|turn| {
        let (counter, round) = (turn % counters, turn / counters);
        (0..run).map(move |n| {
            let start = 1000 + counter.wrapping_mul(65_000 / counters);
            start.wrapping_add(round.wrapping_mul(run)).wrapping_add(n)
        })
    });
    ids.filter(|&id| observe(&mut history, id) == Implausible).count()
}

#[test]
fn a_second_counter_costs_one_packet_in_total() {
    for run in [1, 2, 3, 4, 5, 100] {
        assert_eq!(dropped(2, run, 4000), 1, "runs of {run}");
    }
    let tracks = MAX_TRACKS as u16;
    for run in [2, 3, 4, 5, 100] {
        assert_eq!(
            dropped(tracks, run, 2000),
            MAX_TRACKS - 1,
            "{MAX_TRACKS} counters, runs of {run}"
        );
    }
}

#[test]
fn more_counters_than_tracks_are_not_locked_out() {
    for (run, most) in [(1, 8), (2, 8), (5, 16), (50, 16), (100, 32), (1000, 64)] {
        let dropped = dropped(20, run, 2000);
        assert!(dropped <= most, "{dropped} of {} dropped, runs of {run}", 2000 * u32::from(run));
    }
}

/// Histories of an address pair and of the flows between them.
struct Receiver {
    pair: IdentificationHistory,
    flows: Vec<IdentificationHistory>,
}

impl Receiver {
    fn new(flows: usize) -> Self {
        let pair = IdentificationHistory::new();
        Self { pair, flows: std::vec![IdentificationHistory::new(); flows] }
    }

    fn observe(&mut self, flow: usize, id: u16) -> Plausibility {
        let seen = Identification { id, dont_fragment: true };
        observe_flow(&mut self.pair, &mut self.flows[flow], seen, Duration::ZERO)
    }
}

#[test]
fn a_host_that_counts_per_flow_loses_nothing() {
    let mut receiver = Receiver::new(50);
    for round in 0..1000_u16 {
        for flow in 0..50_u16 {
            let id = (flow + 1).wrapping_mul(40_503).wrapping_add(round);
            assert_ne!(receiver.observe(flow.into(), id), Implausible, "{round}, flow {flow}");
        }
    }
    let wrong = 8_u16.wrapping_mul(40_503).wrapping_add(20_000);
    assert_eq!(receiver.observe(7, wrong), Implausible, "it is held to its counters");
}

#[test]
fn a_host_with_one_counter_for_all_flows_loses_nothing() {
    let mut receiver = Receiver::new(3);
    let mut id = 5000_u16;
    for round in 0..200_u16 {
        // The first flow sends many packets while the others are idle.
        for _ in 0..3000 {
            id = id.wrapping_add(1);
            assert_ne!(receiver.observe(0, id), Implausible, "{round}");
        }
        for flow in 1..3 {
            id = id.wrapping_add(1);
            assert_ne!(receiver.observe(flow, id), Implausible, "{round}, flow {flow}");
        }
    }
    for flow in 0..3 {
        assert_eq!(
            receiver.observe(flow, id.wrapping_add(20_000 + 3000 * flow as u16)),
            Implausible
        );
    }
}

#[test]
fn a_shared_counter_may_start_below_the_batch_limit() {
    for start in 0..BATCH_LIMIT {
        // Each flow sends a run of packets, so none of them sees all identifications.
        for run in [1, 2, 5, 40] {
            let mut receiver = Receiver::new(3);
            for id in start..2000 {
                let flow = usize::from(id / run % 3);
                assert_eq!(
                    receiver.observe(flow, id),
                    Expected,
                    "{id} from {start}, runs of {run}"
                );
            }
        }
    }
}

#[test]
fn batches_of_many_flows_are_expected() {
    let mut receiver = Receiver::new(3);
    for round in 0..100 {
        for flow in 0..3 {
            for id in 0..=u16::from(round % 7 == 0) * 20 {
                assert_eq!(receiver.observe(flow, id), Expected, "{id}, flow {flow}");
            }
        }
    }
    assert_eq!(receiver.observe(1, BATCH_LIMIT), Implausible);
}

#[test]
fn a_shared_counter_that_jumps_is_tracked_again() {
    let mut receiver = Receiver::new(100);
    for id in 1000..1100 {
        assert_ne!(receiver.observe(usize::from(id % 100), id), Implausible);
    }
    let lost = (40_000..40_100)
        .filter(|&id| receiver.observe(usize::from(id % 100), id) == Implausible)
        .count();
    assert_eq!(lost, 1);
}

#[test]
fn a_host_of_random_identifications_loses_no_packet_of_a_new_flow() {
    let mut receiver = Receiver::new(2);
    let random = |n: u16| n.wrapping_mul(40_503);
    let lost = (1..100).filter(|&n| receiver.observe(0, random(n)) == Implausible).count();
    assert_eq!(lost, 4);
    assert!((100..200).all(|n| receiver.observe(1, random(n)) == Unproven));
}

proptest! {
    /// A corrupt packet does not affect the following valid ones.
    #[test]
    fn corruption_does_not_displace_a_counter(start: u16, wrong: u16, flag: bool) {
        prop_assume!(start >= BATCH_LIMIT);
        let mut history = counting_from(start);
        let seen = Identification { id: wrong, dont_fragment: flag };
        let verdict = history.observe(seen, Duration::ZERO);
        prop_assume!(verdict == Implausible);
        for n in 1..200 {
            prop_assert_eq!(observe(&mut history, start.wrapping_add(n)), Expected);
        }
    }

    /// Any sequence is processed without a panic, and a counter is accepted after one loss, or four if the others had another
    /// flag.
    #[test]
    fn any_sequence_is_handled(
        ids: Vec<(u16, bool, u32)>,
        next in BATCH_LIMIT..60_000,
    ) {
        let mut history = IdentificationHistory::new();
        let mut now = Duration::ZERO;
        for (id, dont_fragment, milliseconds) in ids {
            now += Duration::from_millis(milliseconds.into());
            let _ = history.observe(Identification { id, dont_fragment }, now);
        }
        let mut observe = |id| history.observe(Identification { id, dont_fragment: true }, now);
        let lost = (next..next + 10).filter(|&id| observe(id) == Implausible).count();
        prop_assert!(lost <= 5, "{lost} lost");
    }
}
