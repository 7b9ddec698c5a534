use core::net::{IpAddr, Ipv4Addr};
use std::vec::Vec;
use std::{format, vec};

use super::bytes;
use crate::ethernet::EtherType;
use crate::frame::{Frame, IcrcVerdict, Network};
use crate::infiniband::LinkNextHeader;
use crate::ip::{Identification, IpProtocol};
use crate::malformed::{Malformed, Problem};
use crate::number::{Msn, PKey, Psn, Qpn};
use crate::opcode::Opcode;
use crate::packet::Packet;
use crate::syndrome::Syndrome;

/// An ACK of rdma_rxe over IPv4.
pub(super) const ACKNOWLEDGE: &str = "525400770012 525400770011 0800\
    45000030a28b4000401183810a4d000b0a4d000c cb9a12b7001c0000\
    1100ffff0000003700001000 1f000001 e8e43653";
/// A read response with three pad bytes, over IPv6.
pub(super) const READ_RESPONSE: &str = "525400770012 525400770011 86dd\
    6000000000241140 fd770000000000000000000000000011fd770000000000000000000000000012\
    cc0812b700240000 1030ffff0000003800001011 1f000012 0001020304000000 85f9938a";
/// The local packet of the specification's example (IBA 7.8), with its variant CRC.
const NATIVE: &str = "7012375c000e17d2 0a2024870087b1b3000dec2a\
    01710a1c015d400238f27a05 0000000ebb884d85fd5cfba4728bc0690ed40000 9625b75a 2c14";

// Offsets of the layers of ACKNOWLEDGE.
const IP: usize = 14;
const UDP: usize = IP + 20;
const BTH: usize = UDP + 8;

fn ethernet(bytes: &[u8]) -> Frame<'_> {
    Frame::ethernet(bytes, bytes.len())
}

fn problem_of(bytes: &[u8]) -> Option<(usize, Problem)> {
    ethernet(bytes).problem.map(|malformed| (malformed.offset, malformed.problem))
}

/// ACKNOWLEDGE with some of its bytes replaced.
fn altered(at: usize, new: &[u8]) -> Vec<u8> {
    let mut frame = bytes(ACKNOWLEDGE);
    frame[at..at + new.len()].copy_from_slice(new);
    frame
}

fn emitted(frame: &Frame<'_>) -> Option<Vec<u8>> {
    let mut out = vec![0; 8192];
    let len = frame.emit(&mut out)?;
    out.truncate(len);
    Some(out)
}

#[test]
fn parses_an_acknowledge_over_ipv4() {
    let bytes = bytes(ACKNOWLEDGE);
    let frame = ethernet(&bytes);
    assert_eq!(frame.problem, None);
    assert_eq!((frame.at.network, frame.at.udp, frame.at.transport), (IP, UDP, BTH));
    assert_eq!(frame.ethertype, Some(EtherType::IPV4));
    let Some(Network::Ipv4(ip, [])) = frame.network else { panic!("{:?}", frame.network) };
    assert_eq!(
        (ip.identification, ip.dont_fragment, ip.time_to_live),
        (Identification(0xa28b), true, 64)
    );
    assert_eq!(ip.with_checksum(), ip);
    let [source, destination] = [11, 12].map(|host| IpAddr::V4(Ipv4Addr::new(10, 77, 0, host)));
    assert_eq!(frame.addresses(), Some((source, destination)));
    let packet = frame.packet.expect("a packet");
    assert_eq!(packet.bth.opcode, Opcode::RC_ACKNOWLEDGE);
    assert_eq!((packet.bth.partition, packet.bth.destination), (PKey(0xffff), Qpn(0x37)));
    assert_eq!((packet.bth.psn, packet.bth.ack_request), (Psn(0x1000), false));
    let aeth = packet.extensions.aeth.expect("an AETH");
    assert_eq!((aeth.syndrome, aeth.msn), (Syndrome::ACK, Msn(1)));
    assert_eq!((packet.payload, packet.pad), (&[][..], &[][..]));
    assert_eq!(packet.wire_len(), bytes.len() - BTH);
    assert_eq!(frame.check_icrc(), IcrcVerdict::Ok);
    assert_eq!(emitted(&frame), Some(bytes.clone()));
}

#[test]
fn parses_a_read_response_over_ipv6() {
    let bytes = bytes(READ_RESPONSE);
    let frame = ethernet(&bytes);
    assert_eq!(frame.problem, None);
    let packet = frame.packet.expect("a packet");
    assert_eq!((packet.payload, packet.pad), (&[0, 1, 2, 3, 4][..], &[0; 3][..]));
    assert_eq!((packet.payload_len, packet.icrc), (5, Some([0x85, 0xf9, 0x93, 0x8a])));
    assert_eq!(frame.check_icrc(), IcrcVerdict::Ok);
    assert_eq!(emitted(&frame), Some(bytes.clone()));
}

#[test]
fn parses_native_infiniband() {
    let bytes = bytes(NATIVE);
    let frame = Frame::infiniband(&bytes, 0, bytes.len());
    assert_eq!(frame.problem, None);
    let Some(Network::Lrh(lrh, None)) = frame.network else { panic!("{:?}", frame.network) };
    assert_eq!((lrh.next_header, lrh.packet_length), (LinkNextHeader::BTH, 14));
    assert_eq!(frame.trailer, [0x2c, 0x14]);
    assert_eq!(frame.check_icrc(), IcrcVerdict::Ok);
    assert_eq!(emitted(&frame), Some(bytes.clone()));
}

#[test]
fn a_corrupted_packet_reports_both_icrcs() {
    let bytes = altered(BTH + 11, &[1]);
    let IcrcVerdict::Bad { computed, found } = ethernet(&bytes).check_icrc() else { panic!() };
    assert_eq!(found, [0xe8, 0xe4, 0x36, 0x53]);
    let mended = emitted(&ethernet(&bytes)).expect("a whole frame");
    assert_eq!(mended[..mended.len() - 4], bytes[..bytes.len() - 4]);
    assert_eq!(mended[mended.len() - 4..], computed);
    assert_eq!(ethernet(&mended).check_icrc(), IcrcVerdict::Ok);
}

#[test]
fn bytes_after_the_packet_are_the_trailer() {
    let mut bytes = bytes(ACKNOWLEDGE);
    bytes.extend([1, 2, 3]);
    let frame = ethernet(&bytes);
    assert_eq!((frame.trailer, frame.check_icrc()), (&[1, 2, 3][..], IcrcVerdict::Ok));
    assert_eq!(emitted(&frame), Some(bytes.clone()));
}

#[test]
fn parses_up_to_two_vlan_tags() {
    let plain = bytes(ACKNOWLEDGE);
    for tags in 0..4 {
        let mut bytes = plain[..12].to_vec();
        bytes.extend([0x81, 0x00, 0x60, 0x0a].repeat(tags));
        bytes.extend(&plain[12..]);
        let frame = ethernet(&bytes);
        if tags == 3 {
            let at = 14 + 2 * 4;
            assert_eq!(problem_of(&bytes), Some((at, Problem::VlanDepth)));
            continue;
        }
        assert_eq!((frame.problem, frame.check_icrc()), (None, IcrcVerdict::Ok));
        assert_eq!(frame.vlans.iter().flatten().count(), tags);
        for vlan in frame.vlans.iter().flatten() {
            assert_eq!((vlan.priority, vlan.drop_eligible, vlan.identifier), (3, false, 10));
        }
        assert_eq!(emitted(&frame), Some(bytes.clone()));
    }
}

#[test]
fn parses_a_vlan_tag_after_a_cooked_header() {
    let tagged = [&[0x20, 0x05, 0x08, 0x00][..], &bytes(ACKNOWLEDGE)[IP..]].concat();
    let frame = Frame::network(EtherType::VLAN, &tagged, 0, tagged.len());
    assert_eq!((frame.problem, frame.check_icrc()), (None, IcrcVerdict::Ok));
    assert_eq!(frame.vlans[0].map(|vlan| (vlan.priority, vlan.identifier)), Some((1, 5)));
}

#[test]
fn invalid_lengths_are_reported() {
    let invalid = |field, value, min, max| Problem::Length { field, value, min, max };
    let on_wire = bytes(ACKNOWLEDGE).len() - IP;
    let table = [
        (altered(IP, &[0x44]), IP, invalid("IPv4 header length", 16, 20, on_wire)),
        (altered(IP, &[0x4f]), IP, invalid("IPv4 header length", 60, 20, on_wire)),
        (altered(IP + 2, &[0x00, 0x31]), IP, invalid("IPv4 total length", 49, 20, on_wire)),
        (altered(IP + 2, &[0x00, 0x13]), IP, invalid("IPv4 total length", 19, 20, on_wire)),
        (altered(UDP + 4, &[0x00, 0x1d]), UDP, invalid("UDP length", 29, 8, 28)),
        (altered(UDP + 4, &[0x00, 0x07]), UDP, invalid("UDP length", 7, 8, 28)),
        (altered(BTH + 1, &[0x10]), BTH + 16, Problem::Pad { pad: 1, available: 0 }),
    ];
    for (bytes, offset, problem) in table {
        assert_eq!(problem_of(&bytes), Some((offset, problem)));
        assert_eq!(ethernet(&bytes).check_icrc(), IcrcVerdict::Unverifiable);
        assert_eq!(emitted(&ethernet(&bytes)), None, "{problem}");
    }
    // The UDP length is too short for the AETH, or for the ICRC after it.
    for (length, header, needed, available) in [(22u8, "AETH", 4, 2), (26, "ICRC", 4, 2)] {
        let problem = Problem::Short { header, needed, available };
        let at = if header == "AETH" { BTH + 12 } else { BTH + 16 };
        assert_eq!(problem_of(&altered(UDP + 5, &[length])), Some((at, problem)));
    }
}

#[test]
fn unknown_versions_are_reported() {
    let version = |header, found| Some(Problem::Version { header, found });
    let of = |bytes: &[u8]| problem_of(bytes).map(|(_, problem)| problem);
    assert_eq!(of(&altered(IP, &[0x55])), version("IPv4", 5));
    assert_eq!(of(&altered(12, &[0x86, 0xdd])), version("IPv6", 4));
    assert_eq!(of(&altered(12, &[0x89, 0x15])), version("GRH", 4));
    let newer = altered(BTH + 1, &[0x01]);
    assert_eq!(of(&newer), version("BTH", 1));
    assert_eq!(ethernet(&newer).packet.map(|packet| packet.bth.psn), Some(Psn(0x1000)));
    assert_eq!(emitted(&ethernet(&newer)), None);
}

#[test]
fn fragments_are_not_parsed() {
    let first = altered(IP + 6, &[0x20, 0x00]);
    assert_eq!(problem_of(&first), Some((IP, Problem::Fragment { offset: 0 })));
    assert!(ethernet(&first).packet.is_none() && ethernet(&first).is_roce());
    // A later fragment cannot be identified as RoCE.
    let later = altered(IP + 6, &[0x00, 0x01]);
    assert!(problem_of(&later).is_none() && !ethernet(&later).is_roce());
}

#[test]
fn other_traffic_is_not_a_problem() {
    let arp = altered(12, &[0x08, 0x06]);
    let tcp = altered(IP + 9, &[6]);
    let dns = altered(UDP + 2, &[0, 53]);
    for bytes in [arp, tcp, dns] {
        let frame = ethernet(&bytes);
        assert!(frame.problem.is_none() && frame.packet.is_none() && !frame.is_roce());
        assert_eq!(frame.check_icrc(), IcrcVerdict::Unverifiable);
        assert_eq!(emitted(&frame), None);
    }
    assert_eq!(IpProtocol::UDP, IpProtocol(17));
}

#[test]
fn reserved_opcodes_have_no_extensions() {
    let bytes = altered(BTH, &[0x1f]);
    let packet = ethernet(&bytes).packet.expect("a packet");
    assert!(packet.extensions.set().is_empty());
    assert_eq!(packet.payload, [0x1f, 0, 0, 1]);
    assert_eq!(ethernet(&bytes).problem, None);
}

/// Truncates the acknowledge at every length.
#[test]
fn truncation_names_the_header() {
    let whole = bytes(ACKNOWLEDGE);
    for kept in 0..whole.len() {
        let frame = Frame::ethernet(&whole[..kept], whole.len());
        let (header, at, needed) = match kept {
            0..14 => ("Ethernet", 0, 14),
            14..34 => ("IPv4", IP, 20),
            34..42 => ("UDP", UDP, 8),
            42..54 => ("BTH", BTH, 12),
            54..58 => ("AETH", BTH + 12, 4),
            _ => {
                let packet = frame.packet.expect("its headers are whole");
                assert!(frame.problem.is_none() && !packet.is_whole());
                assert!(emitted(&frame).is_some(), "only the ICRC is missing");
                continue;
            }
        };
        let problem = Problem::Snapped { header, needed, available: kept - at };
        assert_eq!(frame.problem, Some(Malformed { offset: at, problem }), "{kept} kept");
        assert_eq!(frame.check_icrc(), IcrcVerdict::Unverifiable);
        assert_eq!(emitted(&frame), None);
    }
}

#[test]
fn a_truncated_payload_is_not_emitted() {
    let whole = bytes(READ_RESPONSE);
    for missing in 5..12 {
        let frame = Frame::ethernet(&whole[..whole.len() - missing], whole.len());
        let packet = frame.packet.expect("its headers are whole");
        assert_eq!((packet.payload_len, packet.is_whole()), (5, false));
        assert_eq!(emitted(&frame), None, "{missing} missing");
    }
}

#[test]
fn a_packet_round_trips_without_a_frame() {
    let frame = bytes(ACKNOWLEDGE);
    let packet = Packet::parse(&frame[BTH..]).expect("a packet");
    assert_eq!(packet.bth.opcode, Opcode::RC_ACKNOWLEDGE);
    for len in 0..20 {
        let malformed = Packet::parse(&frame[BTH..BTH + len]).expect_err("too short");
        assert!(matches!(malformed.problem, Problem::Short { .. }), "{malformed}");
        assert!(format!("{malformed}").starts_with("at byte "));
    }
    // A header required by the opcode is missing.
    let without = Packet { extensions: Default::default(), ..packet };
    assert_eq!(without.emit(&mut [0; 64]), None);
    assert_eq!(packet.emit(&mut [0; 15]), None);
    assert_eq!(packet.emit(&mut [0; 16]), Some(16));
}
