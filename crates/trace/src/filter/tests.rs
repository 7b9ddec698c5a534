//! Filters on the captures of rdma_rxe and on built frames.

use std::path::PathBuf;

use super::*;
use crate::file::CaptureReader;

fn capture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/rxe").join(name);
    std::fs::read(path).unwrap()
}

/// Calls `visit` with each frame of a capture and its one-line summary.
fn frames(name: &str, mut visit: impl FnMut(&Frame<'_>, &str)) {
    let bytes = capture(name);
    let mut reader = CaptureReader::new(&*bytes).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        let read = dissect::read(record.link, record.data, record.original_len as usize);
        let (_, frame) = read.unwrap().unwrap();
        visit(&frame, &dissect::summary(&frame));
    }
}

fn operations(kinds: &[OperationKind]) -> Filter {
    Filter { operations: kinds.to_vec(), ..Filter::default() }
}

fn planes(planes: &[Plane]) -> Filter {
    Filter { planes: planes.to_vec(), ..Filter::default() }
}

fn queue_pairs(numbers: &[u32]) -> Filter {
    Filter { queue_pairs: numbers.iter().copied().map(Qpn).collect(), ..Filter::default() }
}

/// The kinds are compared with the text that `decode` shows, which is derived independently.
#[test]
fn operations_agree_with_the_summary() {
    use OperationKind::*;
    let expected = |summary: &str| -> &[OperationKind] {
        let words: Vec<_> = summary.split("  ").next().unwrap().split(' ').collect();
        match words[..] {
            [_, "SEND", ..] => &[Send],
            [_, "RDMA", "WRITE", ..] => &[Write],
            [_, "RDMA", "READ", ..] => &[Read],
            [_, "COMPARE", ..] | [_, "FETCH", ..] | [_, "ATOMIC", "ACK"] => &[Atomic],
            [_, "ACK"] => &[Ack],
            [_, "RNR", "NAK"] => &[Nak, Rnr],
            [_, "NAK"] => &[Nak],
            ["CM", _] => &[Cm, Mad],
            ["MAD"] => &[Mad],
            _ => &[],
        }
    };
    let mut seen = [0; OperationKind::ALL.len()];
    for name in [
        "rping.pcap",
        "atomic.pcap",
        "rnr.pcap",
        "sizes.pcap",
        "bad_rkey_write.pcap",
        "udaddy.pcap",
    ] {
        frames(name, |frame, summary| {
            let found: Vec<_> = (OperationKind::ALL.iter().copied())
                .filter(|kind| operations(&[*kind]).matches(frame))
                .collect();
            assert_eq!(found, expected(summary), "{name}: {summary}");
            let control = found.contains(&Mad);
            assert_eq!(planes(&[Plane::Control]).matches(frame), control, "{summary}");
            // Frames other than RoCE are in neither plane.
            let data = frame.packet.is_some() && !control;
            assert_eq!(planes(&[Plane::Data]).matches(frame), data, "{summary}");
            for (count, kind) in seen.iter_mut().zip(OperationKind::ALL) {
                *count += u32::from(found.contains(kind));
            }
        });
    }
    for kind in [Send, Write, Read, Atomic, Ack, Nak, Rnr, Cm, Mad] {
        assert!(seen[kind as usize] > 0, "no packet of kind {}", kind.name());
    }
}

#[test]
fn values_of_a_criterion_are_alternatives_and_criteria_are_combined() {
    let both = operations(&[OperationKind::Ack, OperationKind::Nak]);
    let neither = Filter { planes: vec![Plane::Control], ..both.clone() };
    let either_plane = Filter { planes: vec![Plane::Control, Plane::Data], ..both.clone() };
    frames("rnr.pcap", |frame, summary| {
        let answer = summary.contains("ACK") || summary.contains("NAK");
        assert_eq!(both.matches(frame), answer, "{summary}");
        assert_eq!(either_plane.matches(frame), answer);
        assert!(!neither.matches(frame));
        assert!(Filter::default().matches(frame));
    });
}

#[test]
fn a_queue_pair_matches_its_destination_its_datagrams_and_its_set_up() {
    let mut count = 0;
    frames("rping.pcap", |frame, summary| {
        let Some(packet) = frame.packet else { return };
        for number in [0x1a, 0x3c, 0x3d] {
            let filter = queue_pairs(&[number]);
            let named = packet.bth.destination == Qpn(number)
                || summary.starts_with("CM ") && summary.contains(&format!("QP {}", Qpn(number)));
            assert_eq!(filter.matches(frame), named, "{number:#x}: {summary}");
            count += u32::from(named);
            // The source is known from an analysis.
            assert!(filter.matches_from(frame, Some(Qpn(number))));
            assert_eq!(filter.matches_from(frame, Some(Qpn(0x99))), named);
        }
        let general = queue_pairs(&[1]);
        assert_eq!(general.matches(frame), packet.bth.destination == Qpn(1));
    });
    assert!(count > 0, "none of these queue pairs is in the capture");
}

#[test]
fn datagrams_match_by_their_source() {
    frames("ud_pingpong.pcap", |frame, summary| {
        let Some(deth) = frame.packet.and_then(|packet| packet.extensions.deth) else { return };
        assert!(queue_pairs(&[deth.source.0]).matches(frame), "{summary}");
        assert!(!queue_pairs(&[0xabcdef]).matches(frame));
    });
}

#[test]
fn hosts_match_either_end_and_ranges() {
    let host = |text: &str| Filter { hosts: vec![text.parse().unwrap()], ..Filter::default() };
    frames("rnr.pcap", |frame, summary| {
        for text in ["10.77.0.11", "10.77.0.12", "10.77.0.0/24", "0.0.0.0/0"] {
            assert_eq!(host(text).matches(frame), frame.network.is_some(), "{text}: {summary}");
        }
        for text in ["10.77.0.13", "10.77.1.0/24", "::/0", "::ffff:10.77.0.13"] {
            assert!(!host(text).matches(frame), "{text}: {summary}");
        }
        assert!(host("::ffff:10.77.0.11").matches(frame), "the mapped form");
    });
}

#[test]
fn hosts_are_parsed_and_printed() {
    for text in ["10.0.0.1", "10.0.0.0/8", "fe80::1", "2001:db8::/32"] {
        assert_eq!(text.parse::<Host>().unwrap().to_string(), text);
    }
    assert_eq!("host".parse::<Host>(), Err(HostError::Address));
    assert_eq!("10.0.0.0/33".parse::<Host>(), Err(HostError::Prefix { bits: 32 }));
    assert_eq!("::/x".parse::<Host>(), Err(HostError::Prefix { bits: 128 }));
}

#[test]
fn records_match_as_their_frames() {
    for (name, filter) in [
        ("rping.pcap", planes(&[Plane::Control])),
        ("sizes.pcap", operations(&[OperationKind::Write])),
        ("sizes_v6.pcap", Filter::default()),
    ] {
        let (mut by_record, mut by_frame) = (Vec::new(), Vec::new());
        frames(name, |frame, _| by_frame.push(filter.matches(frame)));
        let bytes = capture(name);
        let mut reader = CaptureReader::new(&*bytes).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            by_record.push(filter.matches_record(&record));
        }
        assert_eq!(by_record, by_frame, "{name}");
    }
}
