//! `emit` is the inverse of `parse` for every captured frame and for generated frames of every shape. For any bytes,
//! the parser reports exactly what is wrong.

use std::ops::RangeInclusive;

use ferroce_tests::capture;
use ferroce_tests::random::Random;
use ferroce_tests::sample::{Carrier, Recipe, Sample, emit};
use ferroce_wire::cm::CmMessage;
use ferroce_wire::ethernet::EtherType;
use ferroce_wire::frame::{Frame, IcrcVerdict, Network};
use ferroce_wire::infiniband::{Grh, Lrh};
use ferroce_wire::ip::Ipv6;
use ferroce_wire::mad::Mad;
use ferroce_wire::malformed::Problem;
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ICRC_LEN, Packet};
use ferroce_wire::rdmacm;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The same cases in every run.
fn config() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(4791),
        failure_persistence: None,
        cases: 2048,
        ..ProptestConfig::default()
    }
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let payload_len = prop_oneof![0..64usize, 0..=4096usize];
    let carrier = prop::sample::select(Carrier::ALL.to_vec());
    (carrier, 0..3usize, any::<u8>(), payload_len, 0..9usize, any::<u64>()).prop_map(
        |(carrier, tags, opcode, payload_len, trailer_len, seed)| Recipe {
            carrier,
            tags,
            opcode: Opcode(opcode),
            payload_len,
            trailer_len,
            seed,
        },
    )
}

/// A recipe for a short frame, of which every prefix is tested.
fn short_recipe() -> impl Strategy<Value = Recipe> {
    (recipe(), 0..12usize).prop_map(|(recipe, payload_len)| Recipe { payload_len, ..recipe })
}

#[test]
fn captured_frames_are_emitted_unchanged() {
    let (mut frames, mut messages) = (0, 0);
    for path in capture::rxe() {
        for recorded in capture::read(&path) {
            let name = format!("{}, packet {}", capture::name(&path), recorded.number);
            let (_, frame) = recorded.frame();
            assert_eq!(frame.problem, None, "{name}");
            assert_eq!(emit(&frame).as_ref(), Some(&recorded.data), "{name}");
            if let Some(Network::Ipv4(ip, [])) = frame.network {
                assert_eq!(ip.with_checksum(), ip, "{name}");
            }
            let packet = frame.packet.expect("only RoCE was captured");
            if packet.bth.destination == Qpn::GENERAL_SERVICES {
                management_datagram(&name, packet.payload);
                messages += 1;
            }
            frames += 1;
        }
    }
    println!("{frames} frames, {messages} messages of the connection manager");
    assert!(frames > 1900 && messages > 30, "{frames} frames, {messages} messages");
}

fn management_datagram(name: &str, bytes: &[u8]) {
    let mad = Mad::parse(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(mad.to_bytes(), bytes, "{name}");
    let message = CmMessage::from_mad(&mad).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(message.to_bytes(), *mad.data, "{name}");
    assert_eq!(message.to_mad(mad.header.transaction), bytes, "{name}");
    let CmMessage::Req(req) = message else { return };
    let split = rdmacm::split_private_data(req.service_id, &req.private_data.0);
    let (header, consumer) = split.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(rdmacm::private_data(&header, consumer), Some(req.private_data), "{name}");
}

/// Asserts that `bytes` parse to the sample, layer by layer, and are emitted unchanged.
fn expect_same(sample: &Sample, bytes: &[u8]) {
    let (made, read) = (sample.frame(), sample.parse(bytes, bytes.len()));
    assert_eq!(read.problem, None);
    assert_eq!((read.ethernet, read.vlans), (made.ethernet, made.vlans));
    assert_eq!((read.ethertype, read.network), (made.ethertype, made.network));
    assert_eq!((read.udp, read.at, read.trailer), (made.udp, made.at, made.trailer));
    let icrc = read.packet.expect("a packet").icrc;
    assert_eq!(read.packet, made.packet.map(|packet| Packet { icrc, ..packet }));
    assert!(read.is_roce());
    assert_eq!(read.check_icrc(), IcrcVerdict::Ok);
    assert_eq!(emit(&read).as_deref(), Some(bytes));
}

#[test]
fn every_opcode_round_trips_over_every_carrier() {
    for carrier in Carrier::ALL {
        for tags in 0..3 {
            for opcode in Opcode::all() {
                for payload_len in [0, 1, 2, 3, 4096] {
                    let seed = u64::from(opcode.0) << 16 | payload_len as u64;
                    let recipe =
                        Recipe { carrier, tags, opcode, payload_len, trailer_len: tags * 2, seed };
                    let sample = recipe.make();
                    expect_same(&sample, &sample.bytes());
                }
            }
        }
    }
}

/// Asserts that the readable part of a truncated frame is unchanged, and that the missing part is reported.
fn expect_prefix(sample: &Sample, whole: &[u8], kept: usize) {
    let made = sample.frame();
    let packet = made.packet.expect("a sample has a packet");
    let end = made.at.transport + packet.wire_len();
    let read = sample.parse(&whole[..kept], whole.len());
    assert!(read.ethernet.is_none() || read.ethernet == made.ethernet);
    assert!(read.udp.is_none() || read.udp == made.udp);
    assert_eq!(read.check_icrc() == IcrcVerdict::Ok, kept >= end);

    let headers_end = end - ICRC_LEN - packet.pad.len() - packet.payload_len;
    match read.problem.map(|malformed| malformed.problem) {
        Some(Problem::Snapped { needed, available, .. }) => {
            assert!(kept < headers_end && available < needed, "{available} of {needed}");
            assert_eq!(emit(&read), None);
        }
        Some(other) => panic!("{kept} of {}: {other}", whole.len()),
        None => {
            assert!(kept >= headers_end, "{kept} of {}: no problem", whole.len());
            let cut = read.packet.expect("its headers are there");
            assert_eq!((cut.bth, cut.extensions), (packet.bth, packet.extensions));
            assert_eq!(cut.payload_len, packet.payload_len);
            assert!(packet.payload.starts_with(cut.payload));
            assert_eq!(cut.is_whole(), kept >= end);
            assert_eq!(emit(&read).is_some(), kept >= end - ICRC_LEN);
        }
    }

    // The same bytes as a complete record: now the lengths in the headers are wrong.
    let short = sample.parse(&whole[..kept], kept);
    match short.problem.map(|malformed| malformed.problem) {
        Some(Problem::Short { needed, available, .. }) => assert!(kept < end && available < needed),
        Some(Problem::Length { value: says, min: least, max: most, .. }) => {
            assert!(kept < end && !(least..=most).contains(&says), "{says} in {least}..={most}");
        }
        Some(other) => panic!("{kept} of {}: {other}", whole.len()),
        None => assert!(kept >= end, "{kept} of {}: no problem", whole.len()),
    }
}

/// Parses bytes with every entry point.
fn every_parse(bytes: &[u8], original_len: usize) -> Vec<Frame<'_>> {
    let types = [EtherType::IPV4, EtherType::IPV6, EtherType::ROCE_V1, EtherType::VLAN];
    let mut frames: Vec<Frame<'_>> =
        types.iter().map(|ethertype| Frame::network(*ethertype, bytes, 0, original_len)).collect();
    frames.push(Frame::ethernet(bytes, original_len));
    frames.push(Frame::infiniband(bytes, 0, original_len));
    frames.push(Frame::infiniband(bytes, bytes.len() / 2, original_len));
    frames.push(Frame::network(EtherType::IPV4, bytes, bytes.len() + 1, original_len));
    frames
}

/// Asserts the invariants of any parsed frame.
fn expect_invariants(frame: &Frame<'_>) {
    let _ = (frame.check_icrc(), frame.addresses(), frame.is_roce());
    if let Some(malformed) = frame.problem {
        assert!(malformed.offset <= frame.bytes.len(), "{malformed}");
        assert!(!malformed.to_string().is_empty());
    }
    let Some(packet) = frame.packet else { return };
    assert!(packet.payload.len() <= packet.payload_len);
    assert!(packet.pad.len() <= usize::from(packet.bth.pad));
    let room = frame.bytes.len() - frame.at.transport;
    assert!(!packet.is_whole() || packet.wire_len() <= room);
    assert!(frame.check_icrc() != IcrcVerdict::Ok || packet.is_whole());
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn generated_frames_round_trip(recipe in recipe()) {
        let sample = recipe.make();
        expect_same(&sample, &sample.bytes());
    }

    #[test]
    fn every_truncation_is_reported(recipe in short_recipe()) {
        let sample = recipe.make();
        let bytes = sample.bytes();
        for kept in 0..=bytes.len() {
            expect_prefix(&sample, &bytes[..], kept);
        }
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), more in 0..200usize) {
        for frame in every_parse(&bytes, bytes.len() + more) {
            expect_invariants(&frame);
        }
        // Lengths on the wire below the captured length are invalid too.
        for frame in every_parse(&bytes, more) {
            expect_invariants(&frame);
        }
        let _ = (Packet::parse(&bytes), Mad::parse(&bytes).map(|mad| CmMessage::from_mad(&mad)));
    }

    /// Frames that were valid before reach deeper into the parser than random bytes.
    #[test]
    fn corrupted_frames_keep_their_bytes(recipe in short_recipe(), damages in 1..6usize, seed in any::<u64>()) {
        let sample = recipe.make();
        let mut bytes = sample.bytes();
        let mut random = Random::new(seed);
        for _ in 0..damages {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        let frame = sample.parse(&bytes, bytes.len());
        expect_invariants(&frame);
        if let (Some(emitted), Some(packet)) = (emit(&frame), frame.packet) {
            let icrc_at = frame.at.transport + packet.wire_len() - ICRC_LEN;
            prop_assert_eq!(&emitted[..icrc_at], &bytes[..icrc_at]);
            prop_assert_eq!(&emitted[icrc_at + ICRC_LEN..], &bytes[icrc_at + ICRC_LEN..]);
        }
    }

    /// A wrong length field is reported, whatever its value.
    #[test]
    fn wrong_lengths_are_reported(recipe in short_recipe(), too_long in any::<bool>(), by in any::<u16>()) {
        let sample = recipe.make();
        let right = sample.bytes();
        for Length { field, at, mask, valid } in lengths(&sample.frame(), right.len()) {
            let says = match (too_long, *valid.start()) {
                (true, _) => valid.end() + 1 + by % (mask - valid.end()),
                (false, 0) => continue,
                (false, least) => by % least,
            };
            let mut lying = right.clone();
            let around = u16::from_be_bytes([right[at], right[at + 1]]) & !mask;
            lying[at..at + 2].copy_from_slice(&(around | says).to_be_bytes());
            let read = sample.parse(&lying, lying.len());
            let problem = read.problem.map(|malformed| malformed.problem);
            let named = matches!(problem, Some(Problem::Length { field: named, .. }) if named == field);
            prop_assert!(named, "{} says {}: {:?}", field, says, problem);
            prop_assert_eq!(emit(&read), None);
        }
    }
}

/// A length field.
struct Length {
    /// Its name in the parser.
    field: &'static str,
    /// The offset of its two bytes.
    at: usize,
    /// The mask of its bits in them.
    mask: u16,
    /// Its valid values, in its own unit.
    valid: RangeInclusive<u16>,
}

/// Returns the length fields of a frame of `len` bytes.
fn lengths(frame: &Frame<'_>, len: usize) -> Vec<Length> {
    let at = frame.at.network;
    let bytes = |field, offset, valid: RangeInclusive<usize>| {
        let valid = *valid.start() as u16..=*valid.end() as u16;
        Length { field, at: at + offset, mask: u16::MAX, valid }
    };
    match frame.network.expect("a sample has a network layer") {
        Network::Ipv4(ip, _) => {
            let header_len = ip.header_len();
            let udp = 8..=usize::from(ip.total_length) - header_len;
            vec![
                bytes("IPv4 total length", 2, header_len..=len - at),
                bytes("UDP length", header_len + 4, udp),
            ]
        }
        Network::Ipv6(ip) => vec![
            bytes("IPv6 payload length", 4, 0..=len - at - Ipv6::LEN),
            bytes("UDP length", Ipv6::LEN + 4, 8..=usize::from(ip.payload_length)),
        ],
        Network::Grh(_) => vec![bytes("GRH payload length", 4, 0..=len - at - Grh::LEN)],
        Network::Lrh(lrh, grh) => {
            // In words of 4 bytes, in 11 bits.
            let (least, most) = (Lrh::LEN / 4, len / 4);
            let words = Length { mask: 0x7ff, ..bytes("LRH packet length", 4, least..=most) };
            let behind_grh = usize::from(lrh.packet_length) * 4 - Lrh::LEN;
            let grh =
                grh.map(|_| bytes("GRH payload length", Lrh::LEN + 4, 0..=behind_grh - Grh::LEN));
            [words].into_iter().chain(grh).collect()
        }
    }
}
