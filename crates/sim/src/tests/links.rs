//! Links: timing, loss, corruption, duplication and reordering.

use std::time::Duration;

use super::toys::{ECT0, HEADERS, NOT_ECT, RECEIVER, SENDER, Station, at, pair, uplink, v4, v6};
use crate::{
    Bandwidth, BurstLoss, Corruption, DropCause, Fabric, LinkConfig, Outcome, Probability,
    Reordering, Settings,
};

/// Bytes of a frame of [`pair`], over IPv4.
const FRAME: u64 = HEADERS as u64 + 100;

#[test]
fn a_clean_link_adds_serialisation_and_latency() {
    // 1 Gbit/s: 8 ns per byte. The switch stores and forwards, so a frame is serialised twice.
    let link = LinkConfig {
        bandwidth: Bandwidth::gigabits(1),
        latency: Duration::from_micros(5),
        ..LinkConfig::default()
    };
    let settings = Settings { uplink: link.clone(), downlink: link, ..Settings::default() };
    let mut fabric = pair(1, settings, NOT_ECT, 3);
    assert_eq!(fabric.run(), Outcome::Idle);
    let on_wire = (FRAME + 24) * 8;
    let times: Vec<_> =
        fabric.host(RECEIVER).unwrap().received.iter().map(|(time, _)| *time).collect();
    // The second and third frame follow back to back.
    let first = 2 * (on_wire + 5_000);
    assert_eq!(times, [first, first + on_wire, first + 2 * on_wire].map(at));
    assert_eq!(fabric.now(), at(first + 2 * on_wire));
    assert_eq!(fabric.host(RECEIVER).unwrap().numbers(), [0, 1, 2]);
}

#[test]
fn bandwidth_is_not_lost_to_rounding() {
    // 182 bytes at 100 Gbit/s take 14.56 ns: a million frames take 14.56 ms, not 15 ms.
    let link = LinkConfig { bandwidth: Bandwidth::gigabits(100), ..LinkConfig::default() };
    let mut fabric = pair(1, uplink(link), NOT_ECT, 10_000);
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.now(), at((FRAME + 24) * 8 * 10_000 / 100));
}

#[test]
fn a_perfect_link_takes_no_time() {
    let mut fabric = pair(1, Settings::default(), NOT_ECT, 5);
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!((fabric.now(), fabric.totals().delivered), (at(0), 5));
}

/// Asserts a count within five standard deviations of the binomial distribution.
fn assert_share(count: u64, of: u64, share: f64) {
    let (mean, n) = (share * of as f64, of as f64);
    let deviation = (n * share * (1.0 - share)).sqrt();
    assert!((count as f64 - mean).abs() < 5.0 * deviation, "{count} of {of}, expected {mean}");
}

#[test]
fn loss_has_the_configured_rate() {
    for (seed, share) in [(1, 0.001), (2, 0.01), (3, 0.1), (4, 0.5)] {
        let link = LinkConfig { loss: Probability::new(share), ..LinkConfig::default() };
        let mut fabric = pair(seed, uplink(link), NOT_ECT, 20_000);
        assert_eq!(fabric.run(), Outcome::Idle);
        let totals = fabric.totals();
        assert_share(totals.dropped.of(DropCause::Lost), 20_000, share);
        assert_eq!(totals.delivered + totals.dropped.of(DropCause::Lost), 20_000);
        let of_sender = fabric.host_statistics(SENDER).unwrap().dropped;
        assert_eq!(of_sender, totals.dropped);
        assert_eq!(fabric.uplink_statistics(SENDER).unwrap().dropped, totals.dropped);
    }
}

#[test]
fn loss_of_zero_and_one_are_exact() {
    for (loss, delivered) in [(Probability::NEVER, 100), (Probability::ALWAYS, 0)] {
        let mut fabric =
            pair(1, uplink(LinkConfig { loss, ..LinkConfig::default() }), NOT_ECT, 100);
        assert_eq!(fabric.run(), Outcome::Idle);
        assert_eq!(fabric.totals().delivered, delivered);
    }
}

#[test]
fn burst_loss_drops_runs_of_frames() {
    let burst = BurstLoss {
        begin: Probability::percent(1),
        end: Probability::percent(10),
        loss_when_good: Probability::NEVER,
        loss_when_bad: Probability::ALWAYS,
    };
    let link = LinkConfig { burst: Some(burst), ..LinkConfig::default() };
    let mut fabric = pair(5, uplink(link), NOT_ECT, 50_000);
    assert_eq!(fabric.run(), Outcome::Idle);
    let lost = fabric.totals().dropped.of(DropCause::Burst);
    // The share of bad time is 0.01 / (0.01 + 0.1); losses are not independent, so the bounds are wide.
    assert!((3_700..5_400).contains(&lost), "{lost}");
    let received = fabric.host(RECEIVER).unwrap().numbers();
    let bursts = received.windows(2).filter(|pair| pair[1] - pair[0] > 1).count() as u64;
    // Ten frames each on average.
    assert!((8 * bursts..12 * bursts).contains(&lost), "{lost} frames in {bursts} bursts");
}

#[test]
fn duplicates_are_identical_and_counted() {
    let link = LinkConfig { duplication: Probability::percent(10), ..LinkConfig::default() };
    let mut fabric = pair(6, uplink(link), NOT_ECT, 20_000);
    assert_eq!(fabric.run(), Outcome::Idle);
    let totals = fabric.totals();
    assert_share(totals.duplicated, 20_000, 0.1);
    assert_eq!(totals.delivered, 20_000 + totals.duplicated);
    let receiver = fabric.host(RECEIVER).unwrap();
    let twice = receiver.received.windows(2).filter(|pair| pair[0].1 == pair[1].1).count() as u64;
    assert_eq!(twice, totals.duplicated);
}

#[test]
fn corruption_flips_up_to_the_configured_number_of_bits() {
    let corruption = Corruption { probability: Probability::percent(20), max_bits: 3 };
    let link = LinkConfig { corruption: Some(corruption), ..LinkConfig::default() };
    // On the downlink: on the uplink, a corrupted address would be routed elsewhere.
    let settings = Settings { downlink: link, ..Settings::default() };
    let mut fabric = pair(7, settings, NOT_ECT, 5_000);
    let sent: Vec<_> = Station::sending(v4(1), v4(0), NOT_ECT, 5_000, 100).to_send.into();
    assert_eq!(fabric.run(), Outcome::Idle);
    let mut by_bits = [0u64; 4];
    let mut hits_by_byte = vec![0u32; FRAME as usize];
    for ((_, sent), (_, received)) in sent.iter().zip(&fabric.host(RECEIVER).unwrap().received) {
        let difference =
            || sent.iter().zip(received).map(|(one, other)| (one ^ other).count_ones());
        by_bits[difference().sum::<u32>() as usize] += 1;
        for (hits, bits) in hits_by_byte.iter_mut().zip(difference()) {
            *hits += bits;
        }
    }
    let corrupted: u64 = by_bits[1..].iter().sum();
    assert_eq!(corrupted, fabric.totals().corrupted);
    assert_share(corrupted, 5_000, 0.2);
    for count in &by_bits[1..] {
        assert_share(*count, corrupted, 1.0 / 3.0);
    }
    // About 2,000 bits over 158 bytes: each byte is hit.
    assert!(hits_by_byte.iter().all(|hits| *hits > 0), "{hits_by_byte:?}");
}

#[test]
fn corruption_handles_tiny_and_empty_frames() {
    let corruption = Corruption { probability: Probability::ALWAYS, max_bits: u32::MAX };
    let link = LinkConfig { corruption: Some(corruption), ..LinkConfig::default() };
    let mut fabric = Fabric::new(1, uplink(link));
    fabric.add_host(Station::default(), &[]).unwrap();
    let mut sender = Station::default();
    for len in 0..20 {
        sender.to_send.push_back((crate::Destination::Host(RECEIVER), vec![0; len]));
    }
    fabric.add_host(sender, &[]).unwrap();
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!((fabric.totals().delivered, fabric.totals().corrupted), (20, 19));
}

#[test]
fn jitter_reorders_only_if_configured() {
    for reorders in [false, true] {
        let link = LinkConfig {
            bandwidth: Bandwidth::gigabits(10),
            jitter: Duration::from_micros(10),
            jitter_reorders: reorders,
            ..LinkConfig::default()
        };
        let mut fabric = pair(8, uplink(link), NOT_ECT, 1_000);
        assert_eq!(fabric.run(), Outcome::Idle);
        let received = fabric.host(RECEIVER).unwrap().numbers();
        assert_eq!(received.len(), 1_000);
        assert_eq!(!received.is_sorted(), reorders);
        assert_eq!(fabric.totals().reordered > 0, reorders);
    }
}

#[test]
fn delayed_frames_are_overtaken() {
    let reordering = Reordering {
        probability: Probability::percent(10),
        min_delay: Duration::from_micros(1),
        max_delay: Duration::from_micros(3),
    };
    let link = LinkConfig {
        bandwidth: Bandwidth::gigabits(10),
        reordering: Some(reordering),
        ..LinkConfig::default()
    };
    let mut fabric = pair(9, uplink(link), NOT_ECT, 5_000);
    assert_eq!(fabric.run(), Outcome::Idle);
    let statistics = fabric.uplink_statistics(SENDER).unwrap();
    assert_share(statistics.delayed, 5_000, 0.1);
    assert!(statistics.reordered > statistics.delayed, "{statistics:?}");
    // A frame takes 146 ns: at most 3,000 / 146 others overtake it.
    let received = fabric.host(RECEIVER).unwrap().numbers();
    assert!(received.iter().zip(0..).all(|(number, position)| number.abs_diff(position) <= 21));
}

/// Which frames are lost depends on the loss probability alone.
#[test]
fn one_kind_of_fault_does_not_affect_another() {
    let lossy = LinkConfig { loss: Probability::percent(5), ..LinkConfig::default() };
    let reordering = Reordering {
        probability: Probability::percent(5),
        min_delay: Duration::ZERO,
        max_delay: Duration::ZERO,
    };
    let worse = LinkConfig {
        duplication: Probability::percent(5),
        jitter: Duration::from_nanos(10),
        reordering: Some(reordering),
        ..lossy.clone()
    };
    let received = |link| {
        let mut fabric = pair(10, uplink(link), ECT0, 2_000);
        assert_eq!(fabric.run(), Outcome::Idle);
        let mut numbers = fabric.host(RECEIVER).unwrap().numbers();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    assert_eq!(received(lossy), received(worse));
}

#[test]
fn ipv6_is_routed_like_ipv4() {
    let mut fabric = Fabric::new(1, Settings::default());
    let receiver = fabric.add_host(Station::default(), &[v4(1), v6(1)]).unwrap();
    let sender = Station::sending(v6(2), v6(1), NOT_ECT, 4, 64);
    fabric.add_host(sender, &[v6(2)]).unwrap();
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host(receiver).unwrap().numbers(), [0, 1, 2, 3]);
}

/// Extreme settings are harmless: the run ends, if need be at a limit.
#[test]
fn extreme_settings_are_harmless() {
    let forever = Duration::MAX;
    let probability = Probability::percent(50);
    let link = LinkConfig {
        queue_limit: Some(usize::MAX),
        bandwidth: Bandwidth(1),
        overhead: u32::MAX,
        latency: forever,
        jitter: forever,
        jitter_reorders: true,
        duplication: Probability::ALWAYS,
        reordering: Some(Reordering { probability, min_delay: forever, max_delay: forever }),
        corruption: Some(Corruption { probability, max_bits: 0 }),
        ..LinkConfig::default()
    };
    let nothing_fits = LinkConfig { queue_limit: Some(0), ..LinkConfig::default() };
    for (uplink, downlink) in [
        (link.clone(), link.clone()),
        (LinkConfig { bandwidth: Bandwidth(u64::MAX), ..link.clone() }, link.clone()),
        (nothing_fits, link),
    ] {
        let settings = Settings { uplink, downlink, send_buffer: Some(0), ..Settings::default() };
        let mut fabric = pair(1, settings, ECT0, 20);
        let outcome = fabric.run();
        assert!(matches!(outcome, Outcome::LimitReached(_) | Outcome::Idle), "{outcome}");
        assert!(fabric.totals().are_conserved());
    }
}
