//! The same seed gives the same run, byte for byte; and every dropped frame has a cause.

use std::net::IpAddr;

use proptest::prelude::*;

use super::toys::{StopAndWait, exchange, v4, v6};
use crate::{Capture, Fabric, HostId, Outcome, RunHash, Scenario, Settings, Vantage};

/// Runs four hosts, and returns the hash and the capture.
fn run(scenario: Scenario, seed: u64, address: fn(u32) -> IpAddr) -> (u64, Vec<u8>) {
    let event_log = Capture::new(Vec::new(), Vantage::Everything, "").unwrap();
    let mut fabric = Fabric::with_event_log(seed, scenario.settings(seed, 4), event_log);
    exchange(&mut fabric, 2, 200, address);
    fabric.on_restart(move |id, _| StopAndWait::new(address(id.0), address(id.0 ^ 1), 0));
    let outcome = fabric.run_for(std::time::Duration::from_millis(100));
    assert!(!matches!(outcome, Outcome::LimitReached(_)), "{scenario} {seed}: {outcome}");
    assert!(fabric.totals().are_conserved(), "{scenario} {seed}: {}", fabric.totals());
    (fabric.hash(), fabric.into_event_log().finish().unwrap())
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for scenario in Scenario::ALL {
        for seed in 0..3 {
            assert!(run(scenario, seed, v4) == run(scenario, seed, v4), "{scenario} {seed}");
            assert!(run(scenario, seed, v6) == run(scenario, seed, v6), "{scenario} {seed}");
        }
    }
}

#[test]
fn another_seed_gives_other_bytes() {
    let mut hashes: Vec<u64> = (0..50).map(|seed| run(Scenario::Hostile, seed, v4).0).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 50);
}

/// Changing these hashes changes the meaning of every seed that was written down.
#[test]
fn seeds_give_the_recorded_hashes() {
    let hashes = [Scenario::Clean, Scenario::lossy(0.01), Scenario::Hostile]
        .map(|scenario| run(scenario, 7, v4).0);
    assert_eq!(
        hashes,
        [15_448_864_337_216_328_606, 7_029_429_950_204_635_597, 798_376_944_085_670_646]
    );
}

/// An event log does not affect the run.
#[test]
fn an_event_log_does_not_change_the_run() {
    let mut fabric = Fabric::new(3, Scenario::lossy(0.1).settings(3, 4));
    exchange(&mut fabric, 2, 200, v4);
    assert_eq!(fabric.run_for(std::time::Duration::from_millis(100)), Outcome::Idle);
    assert_eq!(fabric.hash(), run(Scenario::lossy(0.1), 3, v4).0);
}

/// Other hosts do not affect a pair that shares no link with them.
#[test]
fn other_hosts_do_not_affect_a_pair() {
    let statistics = |pairs| {
        let mut fabric: Fabric<StopAndWait> = Fabric::new(9, Scenario::lossy(0.2).settings(9, 4));
        exchange(&mut fabric, pairs, 100, v4);
        assert_eq!(fabric.run(), Outcome::Idle);
        (fabric.uplink_statistics(HostId(0)), fabric.host_statistics(HostId(1)))
    };
    assert_eq!(statistics(1), statistics(10));
}

#[test]
fn hashes_depend_on_every_bit_and_boundary() {
    let hash = |parts: &[&[u8]]| {
        let mut hash = RunHash::default();
        parts.iter().for_each(|part| hash.bytes(part));
        hash.value()
    };
    let bytes: Vec<u8> = (0..100).collect();
    let whole = hash(&[&bytes]);
    for bit in 0..800 {
        let mut other = bytes.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(hash(&[&other]), whole);
    }
    assert_ne!(hash(&[&bytes[..50], &bytes[50..]]), whole);
    assert_ne!(hash(&[&[0; 3]]), hash(&[&[0; 4]]));
    assert_ne!(hash(&[&bytes[..9], &bytes[9..]]), hash(&[&bytes[..10], &bytes[10..]]));
}

/// The cost of a frame does not depend on the number of hosts.
#[test]
fn a_thousand_hosts_exchange_messages() {
    let mut fabric: Fabric<StopAndWait> = Fabric::new(1, Settings::default());
    exchange(&mut fabric, 1_000, 5, v6);
    assert_eq!(fabric.run(), Outcome::Idle);
    assert!(fabric.hosts().all(|(_, host)| host.is_done() && host.received.len() == 5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Frames are conserved after every event, and a protocol that retransmits delivers everything once and in order,
    /// unless a host crashes.
    #[test]
    fn hostile_networks_conserve_frames(seed: u64) {
        let mut settings = Scenario::Hostile.settings(seed, 6);
        settings.faults.crashes.clear();
        let mut fabric: Fabric<StopAndWait> = Fabric::new(seed, settings);
        exchange(&mut fabric, 3, 50, v4);
        let outcome = fabric.run_until(|fabric| {
            assert!(fabric.totals().are_conserved(), "{}", fabric.totals());
            false
        });
        prop_assert_eq!(outcome, Outcome::Idle);
        prop_assert_eq!(fabric.totals().in_flight, 0);
        let expected: Vec<u32> = (0..50u32).map(|number| number.wrapping_mul(77)).collect();
        for (_, host) in fabric.hosts() {
            prop_assert!(host.is_done());
            prop_assert_eq!(&host.received, &expected);
        }
        let by_host: u64 = (0..6)
            .filter_map(|host| fabric.host_statistics(HostId(host)))
            .map(|statistics| statistics.dropped.total())
            .sum();
        prop_assert_eq!(by_host, fabric.totals().dropped.total());
    }
}
