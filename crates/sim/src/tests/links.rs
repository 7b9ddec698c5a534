//! What the wire does: time, loss, damage, copies, order.

use std::time::Duration;

use super::toys::{ECT0, HEADERS, NOT_ECT, RECEIVER, SENDER, Station, at, pair, uplink, v4, v6};
use crate::{
    Bandwidth, BurstLoss, Corruption, DropCause, Fabric, LinkConfig, Outcome, Probability,
    Reordering, Settings,
};

/// Bytes of a frame of [`pair`], over IPv4.
const FRAME: u64 = HEADERS as u64 + 100;

#[test]
fn a_clean_link_takes_exactly_its_time() {
    // 1 Gbit/s: 8 ns a byte. The frame is stored and forwarded, so it is serialised twice.
    let link = LinkConfig {
        bandwidth: Bandwidth::gigabits(1),
        latency: Duration::from_micros(5),
        ..LinkConfig::default()
    };
    let settings = Settings { uplink: link.clone(), downlink: link, ..Settings::default() };
    let mut fabric = pair(1, settings, NOT_ECT, 3);
    assert_eq!(fabric.run(), Outcome::Idle);
    let on_wire = (FRAME + 24) * 8;
    let times: Vec<_> = fabric.host(RECEIVER).unwrap().got.iter().map(|(time, _)| *time).collect();
    // The second and third follow back to back.
    let first = 2 * (on_wire + 5_000);
    assert_eq!(times, [first, first + on_wire, first + 2 * on_wire].map(at));
    assert_eq!(fabric.now(), at(first + 2 * on_wire));
    assert_eq!(fabric.host(RECEIVER).unwrap().numbers(), [0, 1, 2]);
}

#[test]
fn bandwidth_is_not_lost_to_rounding() {
    // 182 bytes at 100 Gbit/s are 14.56 ns: a million frames are 14.56 ms, not 15.
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

/// Within five standard deviations of the binomial distribution.
fn assert_share(count: u64, of: u64, share: f64) {
    let (mean, n) = (share * of as f64, of as f64);
    let deviation = (n * share * (1.0 - share)).sqrt();
    assert!((count as f64 - mean).abs() < 5.0 * deviation, "{count} of {of}, expected {mean}");
}

#[test]
fn loss_is_as_often_as_configured() {
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
fn all_or_nothing() {
    for (loss, delivered) in [(Probability::NEVER, 100), (Probability::ALWAYS, 0)] {
        let mut fabric =
            pair(1, uplink(LinkConfig { loss, ..LinkConfig::default() }), NOT_ECT, 100);
        assert_eq!(fabric.run(), Outcome::Idle);
        assert_eq!(fabric.totals().delivered, delivered);
    }
}

#[test]
fn bursts_are_longer_than_chance() {
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
    let got = fabric.host(RECEIVER).unwrap().numbers();
    let bursts = got.windows(2).filter(|pair| pair[1] - pair[0] > 1).count() as u64;
    // Ten frames each on average.
    assert!((8 * bursts..12 * bursts).contains(&lost), "{lost} frames in {bursts} bursts");
}

#[test]
fn copies_are_counted_and_equal() {
    let link = LinkConfig { duplication: Probability::percent(10), ..LinkConfig::default() };
    let mut fabric = pair(6, uplink(link), NOT_ECT, 20_000);
    assert_eq!(fabric.run(), Outcome::Idle);
    let totals = fabric.totals();
    assert_share(totals.duplicated, 20_000, 0.1);
    assert_eq!(totals.delivered, 20_000 + totals.duplicated);
    let receiver = fabric.host(RECEIVER).unwrap();
    let twice = receiver.got.windows(2).filter(|pair| pair[0].1 == pair[1].1).count() as u64;
    assert_eq!(twice, totals.duplicated);
}

#[test]
fn corruption_flips_as_many_bits_as_it_says() {
    let corruption = Corruption { probability: Probability::percent(20), most_bits: 3 };
    let link = LinkConfig { corruption: Some(corruption), ..LinkConfig::default() };
    // On the downlink: on the uplink some would go elsewhere.
    let settings = Settings { downlink: link, ..Settings::default() };
    let mut fabric = pair(7, settings, NOT_ECT, 5_000);
    let sent: Vec<_> = Station::sending(v4(1), v4(0), NOT_ECT, 5_000, 100).to_send.into();
    assert_eq!(fabric.run(), Outcome::Idle);
    let mut by_bits = [0u64; 4];
    let mut places = vec![0u32; FRAME as usize];
    for ((_, sent), (_, got)) in sent.iter().zip(&fabric.host(RECEIVER).unwrap().got) {
        let difference = || sent.iter().zip(got).map(|(one, other)| (one ^ other).count_ones());
        by_bits[difference().sum::<u32>() as usize] += 1;
        for (place, bits) in places.iter_mut().zip(difference()) {
            *place += bits;
        }
    }
    let corrupted: u64 = by_bits[1..].iter().sum();
    assert_eq!(corrupted, fabric.totals().corrupted);
    assert_share(corrupted, 5_000, 0.2);
    for count in &by_bits[1..] {
        assert_share(*count, corrupted, 1.0 / 3.0);
    }
    // About 2,000 bits over 158 bytes: each byte is hit.
    assert!(places.iter().all(|hits| *hits > 0), "{places:?}");
}

#[test]
fn corruption_of_tiny_and_empty_frames() {
    let corruption = Corruption { probability: Probability::ALWAYS, most_bits: u32::MAX };
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
fn jitter_keeps_the_order_unless_told() {
    for reorders in [false, true] {
        let link = LinkConfig {
            bandwidth: Bandwidth::gigabits(10),
            jitter: Duration::from_micros(10),
            jitter_reorders: reorders,
            ..LinkConfig::default()
        };
        let mut fabric = pair(8, uplink(link), NOT_ECT, 1_000);
        assert_eq!(fabric.run(), Outcome::Idle);
        let got = fabric.host(RECEIVER).unwrap().numbers();
        assert_eq!(got.len(), 1_000);
        assert_eq!(!got.is_sorted(), reorders);
        assert_eq!(fabric.totals().reordered > 0, reorders);
    }
}

#[test]
fn the_longer_way_is_overtaken() {
    let way = Reordering {
        probability: Probability::percent(10),
        least: Duration::from_micros(1),
        most: Duration::from_micros(3),
    };
    let link = LinkConfig {
        bandwidth: Bandwidth::gigabits(10),
        reordering: Some(way),
        ..LinkConfig::default()
    };
    let mut fabric = pair(9, uplink(link), NOT_ECT, 5_000);
    assert_eq!(fabric.run(), Outcome::Idle);
    let statistics = fabric.uplink_statistics(SENDER).unwrap();
    assert_share(statistics.delayed, 5_000, 0.1);
    assert!(statistics.reordered > statistics.delayed, "{statistics:?}");
    // A frame takes 146 ns: at most 3,000 / 146 others overtake it.
    let got = fabric.host(RECEIVER).unwrap().numbers();
    assert!(got.iter().zip(0..).all(|(number, place)| number.abs_diff(place) <= 21));
}

/// Which frames are lost depends on the loss alone.
#[test]
fn one_kind_of_fault_does_not_shift_another() {
    let lossy = LinkConfig { loss: Probability::percent(5), ..LinkConfig::default() };
    let reordering = Reordering {
        probability: Probability::percent(5),
        least: Duration::ZERO,
        most: Duration::ZERO,
    };
    let worse = LinkConfig {
        duplication: Probability::percent(5),
        jitter: Duration::from_nanos(10),
        reordering: Some(reordering),
        ..lossy.clone()
    };
    let got = |link| {
        let mut fabric = pair(10, uplink(link), ECT0, 2_000);
        assert_eq!(fabric.run(), Outcome::Idle);
        let mut numbers = fabric.host(RECEIVER).unwrap().numbers();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    assert_eq!(got(lossy), got(worse));
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

/// Settings that make no sense do no harm: the run ends, at a limit if need be.
#[test]
fn extreme_settings() {
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
        reordering: Some(Reordering { probability, least: forever, most: forever }),
        corruption: Some(Corruption { probability, most_bits: 0 }),
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
