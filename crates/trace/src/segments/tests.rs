//! Joined packets are split, single packets are not.

use ferroce_wire::address::{Gid, Ip4};
use ferroce_wire::ethernet::{EtherType, Ethernet};
use ferroce_wire::frame::{Frame, Network};
use ferroce_wire::ip::{Identification, InternetChecksum, IpProtocol, Ipv4, Ipv6, Udp};
use ferroce_wire::number::{PKey, Psn, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;
use ferroce_wire::transport::Bth;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use super::carrier::Carrier;
use super::search::{MAX_CRC_BYTES_PER_BYTE, Work, search};
use super::*;
use crate::analysis::{self, FileReport, analyze};
use crate::file::{self, CaptureReader, PcapWriter, PcapngWriter, Timestamp};
use crate::render::sections::View;

const ETHERNET: usize = Ethernet::LEN;

/// Carrier of the packets.
#[derive(Clone, Copy, Debug)]
struct Carriage {
    v6: bool,
    /// Identification of the first packet.
    first: u16,
    /// Whether UDP checksums are computed.
    checksums: bool,
}

const V4: Carriage = Carriage { v6: false, first: 0, checksums: true };

/// One packet of a batch: its opcode, its PSN and its payload.
type Part = (Opcode, u32, Vec<u8>);

/// The frame of one packet.
fn frame(carriage: Carriage, identification: u16, (opcode, psn, payload): &Part) -> Vec<u8> {
    let info = opcode.info().unwrap();
    let pad = payload.len().wrapping_neg() % 4;
    let bth = Bth {
        opcode: *opcode,
        pad: pad as u8,
        partition: PKey(0xffff),
        destination: Qpn(0x12),
        psn: Psn::new(*psn),
        ..Bth::default()
    };
    // Headers of zeroes, except for the length in a WRITE's RETH.
    let mut headers = vec![0; Bth::LEN + info.extensions_len + ICRC];
    headers[0] = opcode.0;
    let mut extensions = Packet::parse(&headers).unwrap().extensions;
    if let Some(reth) = &mut extensions.reth {
        reth.length = payload.len() as u32;
    }
    let packet = Packet {
        bth,
        extensions,
        payload,
        payload_len: payload.len(),
        pad: &[0; 3][..pad],
        icrc: None,
    };
    let udp_len = Udp::LEN + packet.wire_len();
    let (ethertype, network) = if carriage.v6 {
        let ip = Ipv6 {
            version: 6,
            payload_length: udp_len as u16,
            next_header: IpProtocol::UDP,
            source: Gid([1; 16]),
            destination: Gid([2; 16]),
            ..Ipv6::default()
        };
        (EtherType::IPV6, Network::Ipv6(ip))
    } else {
        let ip = Ipv4 {
            version: 4,
            header_words: 5,
            total_length: (Ipv4::LEN + udp_len) as u16,
            identification: Identification(identification),
            dont_fragment: true,
            time_to_live: 64,
            protocol: IpProtocol::UDP,
            source: Ip4([10, 0, 0, 1]),
            destination: Ip4([10, 0, 0, 2]),
            ..Ipv4::default()
        };
        (EtherType::IPV4, Network::Ipv4(ip.with_checksum(), &[]))
    };
    let udp = Udp {
        source_port: 50_000,
        destination_port: 4791,
        length: udp_len as u16,
        ..Udp::default()
    };
    let frame = Frame {
        ethernet: Some(Ethernet { ethertype, ..Ethernet::default() }),
        network: Some(network),
        udp: Some(udp),
        packet: Some(packet),
        ..Frame::default()
    };
    let mut out = vec![0; payload.len() + 256];
    let len = frame.emit(&mut out).unwrap();
    out.truncate(len);
    if carriage.checksums {
        let at = transport(carriage) - Udp::LEN;
        let addresses = if carriage.v6 { ETHERNET + 8..at } else { ETHERNET + 12..at };
        let length = (udp_len as u32).to_be_bytes();
        let sum = InternetChecksum::default().over(&out[addresses]).over(&length).over(&[0, 17]);
        let sum = sum.over(&out[at..]).finish().0;
        out[at + 6..at + 8].copy_from_slice(&if sum == 0 { u16::MAX } else { sum }.to_be_bytes());
    }
    out
}

const ICRC: usize = 4;

/// Offset of the BTH.
fn transport(carriage: Carriage) -> usize {
    ETHERNET + if carriage.v6 { Ipv6::LEN } else { Ipv4::LEN } + Udp::LEN
}

fn frames(carriage: Carriage, parts: &[Part]) -> Vec<Vec<u8>> {
    let identifications = (0..).map(|index| carriage.first.wrapping_add(index));
    parts.iter().zip(identifications).map(|(part, id)| frame(carriage, id, part)).collect()
}

/// Joins frames as seen before segmentation or after GRO: the first packet's headers with the total length.
fn joined(carriage: Carriage, frames: &[Vec<u8>]) -> Vec<u8> {
    let start = transport(carriage);
    let mut out = frames[0][..start].to_vec();
    frames.iter().for_each(|frame| out.extend_from_slice(&frame[start..]));
    let udp_len = out.len() - (start - Udp::LEN);
    out[start - 4..start - 2].copy_from_slice(&(udp_len as u16).to_be_bytes());
    if carriage.v6 {
        out[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&(udp_len as u16).to_be_bytes());
    } else {
        let total = (Ipv4::LEN + udp_len) as u16;
        out[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&total.to_be_bytes());
    }
    out
}

/// A capture of these frames, truncated to `snap_len` bytes each.
fn pcap(frames: &[Vec<u8>], snap_len: usize) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET).unwrap();
    for (frame, time) in frames.iter().zip(1i64..) {
        let kept = &frame[..frame.len().min(snap_len)];
        let packet = file::Packet::new(Timestamp::from_nanoseconds(time * 10_000), kept);
        writer.write(&packet.cut_from(frame.len() as u32)).unwrap();
    }
    writer.finish().unwrap()
}

fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new()).unwrap();
    writer.add_interface(LinkType::ETHERNET, Some("lo")).unwrap();
    for frame in frames {
        writer.write(&file::Packet::new(Timestamp::default(), frame)).unwrap();
    }
    writer.finish().unwrap()
}

/// All packets of a capture, with joined ones split: their bytes and lengths on the wire.
fn split(file: &[u8]) -> Vec<(Vec<u8>, u32)> {
    let mut reader = CaptureReader::new(file).unwrap();
    let (mut packets, mut buffer) = (Vec::new(), Vec::new());
    while let Some(record) = reader.next_record().unwrap() {
        match PacketRun::find(&record) {
            None => packets.push((record.data.to_vec(), record.original_len)),
            Some(run) => {
                for index in 0..run.captured() {
                    let packet = run.packet(&record, index, &mut buffer);
                    let segment = Segment { number: index + 1, count: run.count() };
                    assert_eq!(packet.segment, Some(segment));
                    packets.push((packet.data.to_vec(), packet.original_len));
                }
            }
        }
    }
    packets
}

fn whole(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, u32)> {
    frames.iter().map(|frame| (frame.clone(), frame.len() as u32)).collect()
}

/// The packets of a WRITE after the first one, as batched by a sender.
fn middles(count: u32, mtu: usize, last: usize) -> Vec<Part> {
    let middle = |psn: u32| (Opcode::RC_RDMA_WRITE_MIDDLE, psn, vec![psn as u8; mtu]);
    let mut parts: Vec<_> = (0..count - 1).map(middle).collect();
    parts.push((Opcode::RC_RDMA_WRITE_LAST, count - 1, vec![9; last]));
    parts
}

prop_compose! {
    fn carriages()(v6 in any::<bool>(), first in any::<u16>(), checksums in any::<bool>()) -> Carriage {
        Carriage { v6, first, checksums }
    }
}

/// Batches of a sender: packets of equal length, the last one possibly shorter.
fn batches() -> impl Strategy<Value = Vec<Part>> {
    let payload =
        |len: usize| prop_oneof![Just(vec![0; len]), prop::collection::vec(any::<u8>(), len)];
    let long = (prop::sample::select(&PATH_MTUS[..]), 1..8usize, 0.0..=1.0f64, any::<u32>());
    let long = long.prop_flat_map(move |(mtu, count, part, psn)| {
        let last = (mtu as f64 * part) as usize;
        (prop::collection::vec(payload(mtu), count), payload(last), Just(psn))
    });
    let long = long.prop_map(|(middles, last, psn)| {
        let psns = (0..).map(move |index| psn.wrapping_add(index) & 0xff_ffff);
        let middles = middles.into_iter().map(|payload| (Opcode::RC_SEND_MIDDLE, payload));
        let parts = middles.chain([(Opcode::RC_SEND_LAST, last)]);
        parts.zip(psns).map(|((opcode, payload), psn)| (opcode, psn, payload)).collect()
    });
    let short = (
        prop::sample::select(vec![
            Opcode::RC_SEND_ONLY,
            Opcode::RC_RDMA_WRITE_ONLY,
            Opcode::RC_RDMA_READ_RESPONSE_ONLY,
            Opcode::UD_SEND_ONLY,
        ]),
        0..600usize,
        2..12usize,
    );
    let short = short.prop_flat_map(move |(opcode, len, count)| {
        (Just(opcode), prop::collection::vec(payload(len), count))
    });
    let short = short.prop_map(|(opcode, payloads)| {
        payloads.into_iter().zip(0..).map(|(payload, psn)| (opcode, psn, payload)).collect()
    });
    let acknowledgements = (2..20u32).prop_map(|count| {
        (0..count).map(|psn| (Opcode::RC_ACKNOWLEDGE, psn, Vec::new())).collect()
    });
    prop_oneof![long, short, acknowledgements]
}

/// Deterministic cases.
fn config() -> Config {
    Config { rng_seed: RngSeed::Fixed(4791), failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn joined_packets_are_split_exactly(carriage in carriages(), parts in batches()) {
        let frames = frames(carriage, &parts);
        let joined = [joined(carriage, &frames)];
        prop_assert_eq!(split(&pcap(&joined, usize::MAX)), whole(&frames));
        prop_assert_eq!(split(&pcapng(&joined)), whole(&frames));
    }

    /// A truncated batch yields only parts of what was sent.
    #[test]
    fn a_truncated_batch_yields_only_captured_packets(
        carriage in carriages(),
        parts in batches(),
        snap_len in 60..9000usize,
    ) {
        let frames = frames(carriage, &parts);
        let joined = joined(carriage, &frames);
        let packets = split(&pcap(std::slice::from_ref(&joined), snap_len));
        if packets.len() == 1 && packets[0].1 == joined.len() as u32 {
            // No packet could be verified, so nothing was split.
            let cut = &joined[..joined.len().min(snap_len)];
            prop_assert_eq!(&packets[0].0, cut);
        } else {
            for (at, ((packet, len), frame)) in packets.iter().zip(&frames).enumerate() {
                prop_assert_eq!(*len as usize, frame.len());
                let last = at + 1 == packets.len();
                prop_assert!(last || packet.len() == frame.len());
                // The checksum of a truncated packet cannot be computed.
                let udp = transport(carriage);
                prop_assert_eq!(&packet[..udp - 2], &frame[..udp - 2]);
                prop_assert_eq!(&packet[udp..], &frame[udp..packet.len()]);
            }
        }
    }

    #[test]
    fn search_cost_is_bounded_for_any_bytes(
        opcode in any::<u8>(),
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 32..3000),
            // A BTH at every position that the search tries.
            (20..1000usize).prop_map(|count| [0x04, 0x00, 0xff, 0xff].repeat(count)),
            (20..1000usize).prop_map(|count| vec![0; 4 * count]),
        ],
    ) {
        let mut frame = frame(V4, 0, &(Opcode::RC_SEND_ONLY, 0, bytes));
        frame[transport(V4)] = opcode;
        let mut buffer = Vec::new();
        let record_len = frame.len();
        let (_, parsed) = dissect::read(LinkType::ETHERNET, &frame, record_len).unwrap().unwrap();
        if let Some(carrier) = Carrier::of(&parsed) {
            let mut work = Work::default();
            let _ = search(&carrier, &mut work);
            prop_assert!(work.bytes <= MAX_CRC_BYTES_PER_BYTE * record_len, "{:?} for {}", work, record_len);
            prop_assert!(work.headers <= 4 * record_len, "{:?} for {}", work, record_len);
        }
        // Splitting must not panic either.
        let file = pcap(&[frame], usize::MAX);
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        let record = reader.next_record().unwrap().unwrap();
        if let Some(run) = PacketRun::find(&record) {
            for index in 0..run.captured() {
                run.packet(&record, index, &mut buffer);
            }
        }
    }
}

fn report(file: &[u8]) -> FileReport {
    let options = analysis::Options { packet_list: true, ..analysis::Options::default() };
    analyze("test", file, &options, &mut |_| {})
}

/// A SEND of 70 packets and its acknowledgement: as single packets and as two batches.
#[test]
fn analysis_of_batches_equals_that_of_their_packets() {
    let mut parts = vec![(Opcode::RC_SEND_FIRST, 0, vec![1; 1024])];
    parts.extend((1..69).map(|psn| (Opcode::RC_SEND_MIDDLE, psn, vec![psn as u8; 1024])));
    parts.push((Opcode::RC_SEND_LAST, 69, vec![7; 100]));
    let (first, second) = parts.split_at(40);
    let [first, second] = [first, second].map(|parts| frames(V4, parts));
    let batches = [joined(V4, &first), joined(V4, &second)];
    let apart = report(&pcap(&[first, second].concat(), usize::MAX));
    let together = report(&pcapng(&batches));
    assert_eq!((together.frames, together.packets, together.bytes), (2, 70, apart.bytes));
    assert_eq!((together.offload.frames, together.offload.packets), (2, 70));
    assert_eq!(together.icrc, apart.icrc);
    assert_eq!((together.icrc.ok, together.icrc.bad), (70, 0));
    assert_eq!(together.opcodes, apart.opcodes);
    assert_eq!(together.messages.len(), 1);
    assert_eq!(together.messages[0].size, apart.messages[0].size);
    assert_eq!(together.messages[0].size, 69 * 1024 + 100);
    assert_eq!((&together.anomalies[..], &together.problems[..]), (&[][..], &[][..]));
    let places: Vec<_> = together.packet_list.iter().map(|row| (row.frame, row.segment)).collect();
    let expected = (1..=40).map(|at| (1, at)).chain((1..=30).map(|at| (2, at)));
    assert_eq!(places, expected.collect::<Vec<_>>());

    let text =
        crate::render::sections::report(&together, &View { columns: 120, ..View::default() });
    let text = text.iter().map(|line| line.to_string() + "\n").collect::<String>();
    assert_eq!(text.matches("segmentation offload").count(), 1, "{text}");
    assert!(text.contains("70 packets in 2 frames"), "{text}");
    let conversation = &together.conversations[0];
    let ladder = crate::render::ladder::ladder(&together, conversation, 100, None);
    let ladder = ladder.iter().map(|line| line.to_string() + "\n").collect::<String>();
    assert!(ladder.contains(" 2.30 ") && ladder.contains("RC SEND Last"), "{ladder}");
}

/// GRO may join packets of several batches.
#[test]
fn restarted_identifications_are_solved() {
    let parts = middles(9, 256, 256);
    let identifications = [3, 4, 5, 0, 1, 2, 3, 0, 700];
    let frames: Vec<_> =
        parts.iter().zip(identifications).map(|(part, id)| frame(V4, id, part)).collect();
    assert_eq!(split(&pcap(&[joined(V4, &frames)], usize::MAX)), whole(&frames));
}

#[test]
fn a_corrupted_packet_in_a_batch_is_found() {
    let frames = frames(V4, &middles(6, 1024, 12));
    for damaged in 0..6usize {
        let mut joined = joined(V4, &frames);
        let len = frames[0].len() - transport(V4);
        joined[transport(V4) + damaged * len + 13] ^= 1;
        let report = report(&pcap(&[joined], usize::MAX));
        assert_eq!((report.packets, report.icrc.ok, report.icrc.bad), (6, 5, 1), "{damaged}");
        let bad: Vec<_> =
            report.anomalies.iter().filter(|one| one.kind.name() == "bad_icrc").collect();
        assert_eq!(bad.len(), 1);
        assert_eq!((bad[0].frame, bad[0].segment as usize), (1, damaged + 1));
        // The offset in the file: after 24 bytes of file header and 16 of record header.
        let at = 40 + transport(V4) + damaged * len;
        assert_eq!(report.problems[0].offset, Some(at as u64), "{:?}", report.problems);
    }
}

/// A single packet is never split, corrupted or not.
#[test]
fn a_single_packet_is_not_split() {
    for len in [0, 64, 1024, 4096] {
        let sound = frame(V4, 0, &(Opcode::RC_SEND_ONLY, 0, vec![0; len]));
        assert_eq!(
            split(&pcap(std::slice::from_ref(&sound), usize::MAX)),
            whole(std::slice::from_ref(&sound))
        );
        let mut damaged = sound;
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(split(&pcap(&[damaged.clone()], usize::MAX)), whole(&[damaged]));
    }
}

/// A batch whose first packet was truncated is not analysed: no size is derived from the frame length.
#[test]
fn a_batch_truncated_in_its_first_packet_is_not_analysed() {
    let frames = frames(V4, &middles(6, 1024, 12));
    let cut = report(&pcap(&[joined(V4, &frames)], 96));
    assert_eq!((cut.packets, cut.icrc.unverifiable), (1, 1));
    assert_eq!(cut.messages, []);
    assert_eq!(cut.problems.len(), 1, "{:?}", cut.problems);
    assert!(cut.problems[0].text.contains("cannot be separated"), "{:?}", cut.problems);
}

/// Complete packets of a truncated batch are analysed, and the others count as lost by the capture.
#[test]
fn complete_packets_of_a_truncated_batch_are_analysed() {
    let mut parts = middles(6, 1024, 1024);
    parts[0].0 = Opcode::RC_SEND_FIRST;
    parts[1..5].iter_mut().for_each(|part| part.0 = Opcode::RC_SEND_MIDDLE);
    parts[5].0 = Opcode::RC_SEND_LAST;
    let (first, second) = (frames(V4, &parts), frames(V4, &parts));
    let second: Vec<_> = second
        .into_iter()
        .zip(&parts)
        .map(|(_, (opcode, psn, payload))| {
            frame(V4, *psn as u16, &(*opcode, psn + 6, payload.clone()))
        })
        .collect();
    let batches = [joined(V4, &first), joined(V4, &second)];
    let report = report(&pcap(&batches, 2 * 1082 + 100));
    assert_eq!(report.packets, 6, "{report:?}");
    assert_eq!((report.icrc.ok, report.icrc.unverifiable), (4, 2));
    assert_eq!(report.dropped, 6);
    let kinds: Vec<_> = report.anomalies.iter().map(|one| one.kind.name()).collect();
    assert_eq!(kinds, ["capture_gap"], "{:?}", report.anomalies);
    // Two incomplete messages, not one of twice the size.
    let sizes: Vec<_> = report.messages.iter().map(|message| message.size).collect();
    assert_eq!(sizes, [3 * 1024, 3 * 1024]);
}
