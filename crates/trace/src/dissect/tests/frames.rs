//! Frames built for cases that no capture in the repository has.

use ferroce_wire::address::{Gid, Ip4, Mac};
use ferroce_wire::ethernet::{EtherType, Ethernet, Vlan};
use ferroce_wire::icrc::{self, Encapsulation};
use ferroce_wire::infiniband::{Grh, LinkNextHeader, Lrh};
use ferroce_wire::ip::{Ecn, IpProtocol, Ipv4, ROCE_PORT, Udp};
use ferroce_wire::number::{Lid, Psn, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::setup::{self, ExchangeId, QpCreateReq, TransactionId};
use ferroce_wire::transport::{Bth, Deth};

use super::*;

fn ethernet(ethertype: EtherType) -> Vec<u8> {
    let (destination, source) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    Ethernet { destination, source, ethertype }.to_bytes().to_vec()
}

fn bth(opcode: Opcode) -> Vec<u8> {
    Bth { opcode, destination: Qpn(0x12), psn: Psn(7), ..Bth::default() }.to_bytes().to_vec()
}

/// An IPv4 frame of `options` and `packet`, with space for an ICRC.
fn ipv4(options: &[u8], packet: &[u8]) -> Vec<u8> {
    let udp = Udp {
        source_port: 0xc000,
        destination_port: ROCE_PORT,
        length: (Udp::LEN + packet.len() + 4) as u16,
        ..Udp::default()
    };
    let ip = Ipv4 {
        version: 4,
        header_words: 5 + options.len() as u8 / 4,
        total_length: (Ipv4::LEN + options.len()) as u16 + udp.length,
        time_to_live: 64,
        protocol: IpProtocol::UDP,
        source: Ip4([10, 0, 0, 1]),
        destination: Ip4([10, 0, 0, 2]),
        ..Ipv4::default()
    };
    let mut bytes = ip.with_checksum().to_bytes().to_vec();
    bytes.extend(options);
    bytes.extend(udp.to_bytes());
    bytes.extend(packet);
    with_icrc(Encapsulation::Ipv4, bytes)
}

fn with_icrc(encapsulation: Encapsulation, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend([0; 4]);
    let check = icrc::check(encapsulation, &bytes).unwrap();
    let end = bytes.len() - 4;
    bytes[end..].copy_from_slice(&check.computed);
    bytes
}

fn after_ethernet(packet: &[u8]) -> Vec<u8> {
    [ethernet(EtherType::IPV4), packet.to_vec()].concat()
}

/// A QP_CREATE_REQ of the set-up exchange.
pub(super) fn set_up() -> Vec<u8> {
    let message = QpCreateReq {
        qp_number: Qpn(0x34),
        starting_psn: Psn(0x1000),
        ..QpCreateReq::new(ExchangeId(0xabcd), TransactionId(1))
    };
    let bth =
        Bth { opcode: Opcode::UD_SEND_ONLY, destination: setup::QUEUE_PAIR, ..Bth::default() };
    let deth = Deth { queue_key: setup::QUEUE_KEY, source: setup::QUEUE_PAIR, ..Deth::default() };
    let packet = [&bth.to_bytes()[..], &deth.to_bytes(), &message.to_bytes()].concat();
    after_ethernet(&ipv4(&[], &packet))
}

fn names<'t>(tree: &'t Tree<'_>) -> Vec<&'t str> {
    tree.layers.iter().map(|layer| layer.name).collect()
}

fn dissected(frame: &[u8]) -> Tree<'_> {
    let tree = dissect(LinkType::ETHERNET, frame, frame.len());
    check_cover(&tree, frame.len());
    tree
}

fn field<'t>(tree: &'t Tree<'_>, layer: &str, name: &str) -> &'t Field<'t> {
    tree.layer(layer).and_then(|layer| layer.field(name)).unwrap()
}

#[test]
fn dissects_the_set_up_exchange() {
    let frame = set_up();
    let tree = dissected(&frame);
    assert_eq!(tree.problems, []);
    assert_eq!(tree.summary, "QP_CREATE_REQ  exchange 0x0000abcd  QP 0x000034  PSN 0x001000");
    assert_eq!(names(&tree), ["Ethernet", "IPv4", "UDP", "BTH", "DETH", "QP_CREATE_REQ", "ICRC"]);
    assert_eq!(field(&tree, "QP_CREATE_REQ", "qp_number").value, "0x000034");

    // A type that does not match the length: the common prefix is still shown.
    let mut frame = frame;
    let at = Ethernet::LEN + Ipv4::LEN + Udp::LEN + Bth::LEN + Deth::LEN;
    frame[at] = 0x09;
    let tree = dissected(&frame);
    assert_eq!(tree.problems[0].offset, at);
    assert!(names(&tree).contains(&"Set-up"));
}

#[test]
fn dissects_a_vlan_and_a_trailer() {
    let packet = ipv4(&[], &bth(Opcode::RC_SEND_ONLY));
    let vlan = Vlan { priority: 3, identifier: 100, ethertype: EtherType::IPV4, ..Vlan::default() };
    let frame = [&ethernet(EtherType::VLAN)[..], &vlan.to_bytes(), &packet, &[1, 2, 3, 4]].concat();
    let tree = dissected(&frame);
    assert_eq!(tree.problems, []);
    assert_eq!(names(&tree), ["Ethernet", "VLAN", "IPv4", "UDP", "BTH", "ICRC", "Trailer"]);
    assert_eq!(tree.layer("VLAN").unwrap().summary, "VLAN 100, priority 3  IPv4");
    assert_eq!(tree.summary, "RC SEND Only  QP 0x000012  PSN 0x000007  0 bytes");
}

#[test]
fn dissects_roce_v1_and_native_infiniband() {
    let packet = bth(Opcode::RC_SEND_MIDDLE);
    let grh = Grh {
        version: 6,
        payload_length: packet.len() as u16 + 4,
        next_header: IpProtocol::BTH,
        source: Gid([1; 16]),
        destination: Gid([2; 16]),
        ..Grh::default()
    };
    let bytes = [&grh.to_bytes()[..], &packet].concat();
    let frame = [ethernet(EtherType::ROCE_V1), with_icrc(Encapsulation::RoceV1, bytes)].concat();
    let tree = dissected(&frame);
    assert_eq!((names(&tree), tree.problems.len()), (vec!["Ethernet", "GRH", "BTH", "ICRC"], 0));

    let lrh = Lrh {
        next_header: LinkNextHeader::BTH,
        source: Lid(1),
        destination: Lid(2),
        packet_length: (Lrh::LEN + packet.len() + 4) as u16 / 4,
        ..Lrh::default()
    };
    let bytes = [&lrh.to_bytes()[..], &packet].concat();
    let mut frame = with_icrc(Encapsulation::Native, bytes);
    frame.extend([0xaa, 0xbb]);
    let tree = dissect(LinkType::INFINIBAND, &frame, frame.len());
    check_cover(&tree, frame.len());
    assert_eq!((names(&tree), tree.problems.len()), (vec!["LRH", "BTH", "ICRC", "Trailer"], 0));
    assert_eq!(field(&tree, "LRH", "packet_length").meaning, "24 bytes");
}

#[test]
fn a_cooked_header_shifts_all_offsets() {
    let packet = ipv4(&[], &bth(Opcode::CNP));
    let mut record = vec![0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x08, 0x00];
    record.extend(&packet);
    let tree = dissect(LinkType::LINUX_SLL, &record, record.len());
    check_cover(&tree, record.len());
    assert_eq!(names(&tree), ["Linux cooked capture v1", "IPv4", "UDP", "BTH", "ICRC"]);
    assert_eq!(tree.layer("BTH").unwrap().offset, 16 + Ipv4::LEN + Udp::LEN);
    assert_eq!(field(&tree, "BTH", "opcode").offset, 16 + Ipv4::LEN + Udp::LEN);
    assert_eq!(field(&tree, "Linux cooked capture v1", "protocol").meaning, "IPv4");
}

#[test]
fn an_unsupported_link_type_is_reported() {
    let tree = dissect(LinkType(147), &[1, 2, 3], 3);
    assert_eq!(names(&tree), ["Data"]);
    assert_eq!(tree.problems[0].message, "link type 147 is not supported");
}

#[test]
fn ip_options_are_covered_by_the_icrc() {
    let frame = after_ethernet(&ipv4(&[1, 1, 1, 0], &bth(Opcode::RC_SEND_ONLY)));
    let tree = dissected(&frame);
    assert_eq!(names(&tree), ["Ethernet", "IPv4", "IPv4 options", "UDP", "BTH", "ICRC"]);
    // `with_checksum` does not cover options.
    assert_eq!(field(&tree, "IPv4", "checksum").verdict, Some(Verdict::Wrong));
    assert_eq!(field(&tree, "ICRC", "icrc").verdict, Some(Verdict::Correct));
}

#[test]
fn checksums_are_verified() {
    const CHECKSUM: usize = Ethernet::LEN + Ipv4::LEN + 6;
    let mut frame = after_ethernet(&ipv4(&[], &bth(Opcode::RC_SEND_ONLY)));
    assert_eq!(field(&dissected(&frame), "UDP", "checksum").meaning, "none");
    frame[CHECKSUM + 1] = 1;
    let meaning = field(&dissected(&frame), "UDP", "checksum").meaning.clone();
    let right = meaning.strip_prefix("wrong, should be 0x").unwrap();
    let right = u16::from_str_radix(&right[..4], 16).unwrap();
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&right.to_be_bytes());
    let tree = dissected(&frame);
    assert_eq!(field(&tree, "UDP", "checksum").verdict, Some(Verdict::Correct));
    // The ICRC does not cover it.
    assert_eq!(field(&tree, "ICRC", "icrc").verdict, Some(Verdict::Correct));

    frame[Ethernet::LEN + 8] -= 1;
    let tree = dissected(&frame);
    assert_eq!(field(&tree, "IPv4", "checksum").verdict, Some(Verdict::Wrong));
}

#[test]
fn damage_is_reported_with_its_offset() {
    let mut frame = after_ethernet(&ipv4(&[], &bth(Opcode(0x18))));
    let tree = dissected(&frame);
    assert_eq!(tree.problems[0].offset, 42);
    assert!(tree.problems[0].message.starts_with("opcode 0x18 is reserved"));
    assert_eq!(tree.problems.len(), 1);

    frame[42] = Opcode::RC_SEND_ONLY.0;
    let tree = dissected(&frame);
    assert_eq!(tree.problems[0].offset, 54);
    assert!(tree.problems[0].message.starts_with("the ICRC is 0x"));
}

#[test]
fn other_protocols_are_shown() {
    let mut frame = ethernet(EtherType(0x0806));
    frame.extend([0; 28]);
    let tree = dissected(&frame);
    assert_eq!((tree.summary.as_str(), names(&tree)), ("ARP", vec!["Ethernet", "Data"]));

    let mut frame = after_ethernet(&ipv4(&[], &bth(Opcode::RC_SEND_ONLY)));
    frame[Ethernet::LEN + 9] = 6;
    assert_eq!(dissected(&frame).summary, "IPv4 TCP");
    assert_eq!(dissected(&frame).problems, []);
}

#[test]
fn congestion_is_in_the_summary() {
    let mut frame = after_ethernet(&ipv4(&[], &bth(Opcode::CNP)));
    assert_eq!(dissected(&frame).summary, "CNP  QP 0x000012  PSN 0x000007");
    frame[Ethernet::LEN + 1] = Ecn::CONGESTION_EXPERIENCED.0;
    assert!(dissected(&frame).summary.ends_with("  ECN congestion experienced"));
}
