//! The transition table and its copy in the documentation.

use std::collections::HashSet;
use std::string::ToString;

use super::super::{Phase, State, TRANSITIONS, TransitionTable, Trigger};

#[test]
fn the_document_contains_the_transition_table() {
    let document = include_str!("../../../../../docs/connection-manager.md");
    let table = TransitionTable.to_string();
    assert!(
        document.contains(&table),
        "docs/connection-manager.md shall have this table:\n{table}"
    );
}

#[test]
fn transitions_are_deterministic() {
    let pairs: HashSet<_> = TRANSITIONS.iter().map(|&(from, by, _)| (from, by)).collect();
    assert_eq!(pairs.len(), TRANSITIONS.len());
}

#[test]
fn every_state_is_reachable_and_can_be_left() {
    let mut reached = HashSet::from([State::Idle]);
    for _ in State::ALL {
        let next = TRANSITIONS.iter().filter(|(from, ..)| reached.contains(from));
        reached.extend(next.map(|&(_, _, to)| to).collect::<std::vec::Vec<_>>());
    }
    assert_eq!(reached, HashSet::from(State::ALL));
    // Every state leads back to Idle.
    let mut leaves = HashSet::from([State::Idle]);
    for _ in State::ALL {
        let before = TRANSITIONS.iter().filter(|(.., to)| leaves.contains(to));
        leaves.extend(before.map(|&(from, ..)| from).collect::<std::vec::Vec<_>>());
    }
    assert_eq!(leaves, HashSet::from(State::ALL));
}

#[test]
fn refuses_pairs_that_are_not_in_the_table() {
    for from in State::ALL {
        for &(_, trigger, _) in TRANSITIONS {
            let listed = TRANSITIONS.iter().find(|way| (way.0, way.1) == (from, trigger));
            assert_eq!(from.next(trigger), listed.map(|way| way.2));
        }
    }
    assert_eq!(State::Established.next(Trigger::RtuArrives), None);
}

#[test]
fn phases_follow_their_order() {
    // The consumer's phases follow each other: CONNECTED never leads back to CONNECTING.
    for &(from, _, to) in TRANSITIONS {
        let allowed = match from.phase() {
            Phase::Disconnected => [Phase::Disconnected, Phase::Connecting].as_slice(),
            // A peer that disconnects before its RTU arrived skips CONNECTED.
            Phase::Connecting => {
                &[Phase::Connecting, Phase::Connected, Phase::Disconnecting, Phase::Disconnected]
            }
            Phase::Connected => &[Phase::Disconnecting, Phase::Disconnected],
            Phase::Disconnecting => &[Phase::Disconnecting, Phase::Disconnected],
        };
        assert!(allowed.contains(&to.phase()), "{from:?} → {to:?}");
    }
}
