//! Queues: drop-tail, ECN marking and the send buffer; header parsing.

use ferroce_wire::frame::{Frame, IcrcVerdict, Network};
use ferroce_wire::ip::{Checksum, Ecn, InternetChecksum};
use proptest::prelude::*;

use super::toys::{ECT0, HEADERS, NOT_ECT, RECEIVER, SENDER, Station, at, pair, roce, v4, v6};
use crate::header;
use crate::{Bandwidth, DropCause, Fabric, LinkConfig, Marking, Outcome, Probability, Settings};

const FRAME: usize = HEADERS + 100;

/// Returns a slow downlink with a queue for `frames` frames.
fn slow(frames: usize) -> LinkConfig {
    LinkConfig {
        bandwidth: Bandwidth::gigabits(1),
        queue_limit: Some(frames * FRAME),
        ..LinkConfig::default()
    }
}

#[test]
fn a_full_queue_drops_the_tail() {
    let settings = Settings { downlink: slow(4), ..Settings::default() };
    let mut fabric = pair(1, settings, ECT0, 10);
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host(RECEIVER).unwrap().numbers(), [0, 1, 2, 3]);
    assert_eq!(fabric.totals().dropped.of(DropCause::QueueFull), 6);
    let statistics = fabric.downlink_statistics(RECEIVER).unwrap();
    assert_eq!((statistics.frames, statistics.peak_backlog), (10, 4 * FRAME));
    assert_eq!(statistics.dropped.to_string(), "6 queue full");
}

#[test]
fn a_queue_drains_at_the_link_rate() {
    let settings = Settings { downlink: slow(2), ..Settings::default() };
    let mut fabric = pair(1, settings, ECT0, 2);
    let on_wire = (FRAME as u64 + 24) * 8;
    for burst in 1..=3u64 {
        assert_eq!(fabric.run(), Outcome::Idle);
        assert_eq!(fabric.now(), at(burst * 2 * on_wire));
        let more = Station::sending(v4(1), v4(0), ECT0, 2, 100).to_send;
        fabric.with_host(SENDER, |sender, _| sender.to_send = more).unwrap();
    }
    assert_eq!(fabric.totals().dropped.total(), 0);
}

#[test]
fn a_full_send_buffer_blocks_the_sender() {
    let uplink = LinkConfig { queue_limit: Some(3 * FRAME), ..slow(3) };
    let settings = Settings { uplink, send_buffer: Some(2 * FRAME), ..Settings::default() };
    let mut fabric = pair(1, settings, ECT0, 100);
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.totals().delivered, 100);
    assert!(fabric.uplink_statistics(SENDER).unwrap().peak_backlog <= 3 * FRAME);
    // The link was never idle.
    assert_eq!(fabric.now(), at(100 * (FRAME as u64 + 24) * 8));
}

/// Returns the sum over the IPv4 header, which is zero if its checksum is right.
fn checksum(frame: &[u8]) -> Checksum {
    InternetChecksum::default().over(&frame[14..34]).finish()
}

#[test]
fn only_ecn_capable_frames_are_marked() {
    for (ecn, address) in [
        (ECT0, v4 as fn(u32) -> _),
        (Ecn(1), v4),
        (NOT_ECT, v4),
        (Ecn(3), v4),
        (ECT0, v6),
        (NOT_ECT, v6),
    ] {
        let marking = Some(Marking::threshold(3 * FRAME));
        let downlink = LinkConfig { marking, queue_limit: None, ..slow(0) };
        let mut fabric = Fabric::new(1, Settings { downlink, ..Settings::default() });
        fabric.add_host(Station::default(), &[address(0)]).unwrap();
        let sender = Station::sending(address(1), address(0), ecn, 10, 100);
        fabric.add_host(sender, &[address(1)]).unwrap();
        assert_eq!(fabric.run(), Outcome::Idle);
        let marks: Vec<u8> = fabric
            .host(RECEIVER)
            .unwrap()
            .received
            .iter()
            .map(|(_, bytes)| {
                let frame = Frame::ethernet(bytes, bytes.len());
                // The ICRC does not cover the mark.
                assert_eq!(frame.check_icrc(), IcrcVerdict::Ok);
                match frame.network {
                    Some(Network::Ipv4(ip, _)) => {
                        assert_eq!(checksum(bytes), Checksum(0));
                        ip.ecn.0
                    }
                    Some(Network::Ipv6(ip)) => ip.ecn.0,
                    _ => panic!("no network layer"),
                }
            })
            .collect();
        let capable = matches!(ecn, Ecn(1 | 2));
        // IPv6 frames are longer, so that the threshold is reached no later.
        let before = marks.iter().take_while(|mark| **mark == ecn.0).count();
        if capable {
            assert_eq!(before, 3);
            assert!(marks[before..].iter().all(|mark| *mark == 3), "{marks:?}");
            assert_eq!(fabric.totals().marked, 7);
        } else {
            assert_eq!((before, fabric.totals().marked), (10, 0));
        }
    }
}

#[test]
fn marking_probability_follows_the_queue_length() {
    let marking =
        Some(Marking { start: 0, full: usize::MAX, max_probability: Probability::ALWAYS });
    let downlink = LinkConfig { marking, queue_limit: None, ..slow(0) };
    let mut fabric = pair(3, Settings { downlink, ..Settings::default() }, ECT0, 100);
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.totals().marked, 0, "the queue is nearly empty");
    let marking =
        Some(Marking { start: 0, full: 200 * FRAME, max_probability: Probability::ALWAYS });
    let downlink = LinkConfig { marking, queue_limit: None, ..slow(0) };
    let mut fabric = pair(3, Settings { downlink, ..Settings::default() }, ECT0, 100);
    assert_eq!(fabric.run(), Outcome::Idle);
    // A quarter on average: the queue is up to half full.
    assert!((10..45).contains(&fabric.totals().marked), "{}", fabric.totals());
}

proptest! {
    /// An incremental update gives the same checksum as a new computation.
    #[test]
    fn marking_keeps_the_ipv4_checksum_valid(source: u32, destination: u32, ecn in 1..3u8, dscp in 0..64u8) {
        let mut frame = roce(v4(source), v4(destination), Ecn(ecn), &[0; 8]);
        frame[15] |= dscp << 2;
        frame[24..26].fill(0);
        let fresh = checksum(&frame).0.to_be_bytes();
        frame[24..26].copy_from_slice(&fresh);
        header::mark_congestion(&mut frame);
        prop_assert_eq!(header::ecn(&frame), Some(Ecn(3)));
        prop_assert_eq!(checksum(&frame), Checksum(0));
        // A wrong checksum stays wrong.
        frame[15] &= !1;
        header::mark_congestion(&mut frame);
        prop_assert_eq!(header::ecn(&frame), Some(Ecn(3)));
    }

    /// Parsing never panics, and agrees with the full parser where that finds an address.
    #[test]
    fn header_parsing_accepts_any_bytes(mut frame in prop::collection::vec(any::<u8>(), 0..120), kind in 0..5usize) {
        if frame.len() > 15 {
            let ethertype = [0x0800u16, 0x86dd, 0x8915, 0x8100, 0x88a8][kind];
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            frame[14] = if kind == 0 { 0x45 } else { 0x60 };
        }
        let _ = header::ecn(&frame);
        if let Some(address) = header::destination(&frame) {
            if let Some((_, parsed)) = Frame::ethernet(&frame, frame.len()).addresses() {
                prop_assert_eq!(parsed, address);
            }
        }
        let before = frame.clone();
        header::mark_congestion(&mut frame);
        prop_assert_eq!(before.len(), frame.len());
    }
}
