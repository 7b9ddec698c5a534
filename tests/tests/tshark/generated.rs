//! Generated packets: every opcode, over every carrier, after every link header.

use std::net::{Ipv4Addr, Ipv6Addr};

use ferroce_tests::capture::Recorded;
use ferroce_tests::random::Random;
use ferroce_tests::sample::{Carrier, Recipe, emit};
use ferroce_trace::link::LinkType;
use ferroce_wire::address::Gid;
use ferroce_wire::cm::CmMessage;
use ferroce_wire::ethernet::{EtherType, Ethernet};
use ferroce_wire::frame::{Frame, Network};
use ferroce_wire::infiniband::{Grh, LinkNextHeader, Lrh};
use ferroce_wire::ip::IpProtocol;
use ferroce_wire::mad::TransactionId;
use ferroce_wire::number::{Lid, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::rdmacm::{self, IpHeader, PortSpace};

/// A record: its link type and its bytes.
pub type Record = (LinkType, Vec<u8>);

/// Bytes of payload in generated packets, where the opcode has any.
const PAYLOAD_LEN: usize = 64;

/// Returns every opcode of the table over `carrier` with `tags` VLAN tags, as Ethernet frames or native packets.
pub fn all_opcodes(carrier: Carrier, tags: usize, seed: u64) -> Vec<Vec<u8>> {
    let defined = Opcode::all().filter(|opcode| opcode.info().is_some());
    let recipe = |opcode: Opcode| Recipe {
        carrier,
        tags,
        opcode,
        payload_len: PAYLOAD_LEN,
        trailer_len: if carrier.is_ethernet() { 0 } else { VARIANT_CRC_LEN },
        seed: seed << 8 | u64::from(opcode.0),
    };
    defined.map(|opcode| recipe(opcode).make().bytes()).collect()
}

/// Returns a SEND of two bytes over Ethernet and IPv4. Two bytes of padding follow.
pub fn short_send(payload: [u8; 2]) -> Vec<u8> {
    let recipe = Recipe {
        carrier: Carrier::RoceV2Ipv4,
        tags: 0,
        opcode: Opcode::RC_SEND_ONLY,
        payload_len: payload.len(),
        trailer_len: 0,
        seed: 1,
    };
    recipe.make().carrying(Qpn(0x123), &payload).bytes()
}

/// The length of native InfiniBand's variant CRC, which every switch recomputes.
const VARIANT_CRC_LEN: usize = 2;

/// Returns every connection manager message several times, with random fields. Some REQs come from RDMA-CM: with its
/// service ID and its header in the private data.
pub fn messages(carrier: Carrier, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let mut packets = Vec::new();
    for &attribute in CmMessage::ATTRIBUTES {
        for turn in 0..MESSAGES_OF_A_KIND {
            let parsed = CmMessage::parse(attribute, &random.array());
            let mut message = parsed.expect("an attribute of the list");
            if let CmMessage::Req(req) = &mut message {
                let port = random.number() as u16;
                let header = match turn % 3 {
                    0 => IpHeader::v4(
                        port,
                        Ipv4Addr::from(random.array()),
                        Ipv4Addr::from(random.array()),
                    ),
                    1 => IpHeader::v6(
                        port,
                        Ipv6Addr::from(random.array()),
                        Ipv6Addr::from(random.array()),
                    ),
                    _ => IpHeader::default(),
                };
                if header != IpHeader::default() {
                    req.service_id = rdmacm::service_id(PortSpace::Tcp, 7471);
                    let private_data = rdmacm::private_data(&header, &random.bytes(56));
                    req.private_data = private_data.expect("36 and 56 bytes are 92");
                }
            }
            let mad = message.to_mad(TransactionId(random.number()));
            let recipe = Recipe {
                carrier,
                tags: 0,
                opcode: Opcode::UD_SEND_ONLY,
                payload_len: mad.len(),
                trailer_len: 0,
                seed: random.number(),
            };
            packets.push(recipe.make().carrying(Qpn::GENERAL_SERVICES, &mad).bytes());
        }
    }
    packets
}

const MESSAGES_OF_A_KIND: usize = 9;

/// The link header of a packet in a capture that is not of Ethernet.
#[derive(Clone, Copy, Debug)]
pub enum Envelope {
    CookedV1,
    CookedV2,
    Null,
    Loop,
    Raw,
    RawByVersion,
    ErfEthernet,
}

impl Envelope {
    pub const ALL: [Self; 7] = [
        Self::CookedV1,
        Self::CookedV2,
        Self::Null,
        Self::Loop,
        Self::Raw,
        Self::RawByVersion,
        Self::ErfEthernet,
    ];

    /// Replaces the link header of an Ethernet frame. Returns `None` if the envelope cannot express what follows.
    pub fn around(self, ethernet_frame: &[u8]) -> Option<Record> {
        let (ethernet, network) = Ethernet::split(ethernet_frame).expect("an Ethernet frame");
        let ethertype = ethernet.ethertype;
        let is_ipv6 = match ethertype {
            EtherType::IPV4 => Some(false),
            EtherType::IPV6 => Some(true),
            _ => None,
        };
        let protocol = ethertype.0.to_be_bytes();
        let address = [&ethernet.source.0[..], &[0, 0]].concat();
        let (link, header) = match self {
            // Packet type, ARPHRD_ETHER, address length, address, protocol.
            Self::CookedV1 => {
                let header = [&[0, 0, 0, 1, 0, 6][..], &address, &protocol].concat();
                (LinkType::LINUX_SLL, header)
            }
            // Protocol, reserved, interface, ARPHRD_ETHER, packet type, address length, address.
            Self::CookedV2 => {
                let header = [&protocol[..], &[0, 0, 0, 0, 0, 2, 0, 1, 0, 6], &address].concat();
                (LinkType::LINUX_SLL2, header)
            }
            // AF_INET, or Darwin's AF_INET6, in the order of a little-endian machine.
            Self::Null => {
                let family: u32 = if is_ipv6? { 30 } else { 2 };
                (LinkType::NULL, family.to_le_bytes().to_vec())
            }
            // The same for OpenBSD, in network order.
            Self::Loop => {
                let family: u32 = if is_ipv6? { 24 } else { 2 };
                (LinkType::LOOP, family.to_be_bytes().to_vec())
            }
            Self::Raw => is_ipv6.map(|_| (LinkType::RAW, Vec::new()))?,
            Self::RawByVersion => {
                (if is_ipv6? { LinkType::IPV6 } else { LinkType::IPV4 }, Vec::new())
            }
            // tshark takes the last four bytes of a RoCEv1 frame as the ICRC, whatever the GRH's length is.
            Self::ErfEthernet if is_roce_v1(ethernet_frame) => return None,
            Self::ErfEthernet => {
                // Two bytes of alignment precede the frame, and its FCS follows.
                let frame = [&[0, 0], ethernet_frame, &[0; 4]].concat();
                return Some(erf(2, &frame, ethernet_frame.len() + 4));
            }
        };
        Some((link, [&header, network].concat()))
    }
}

fn is_roce_v1(ethernet_frame: &[u8]) -> bool {
    let frame = Frame::ethernet(ethernet_frame, ethernet_frame.len());
    frame.ethertype == Some(EtherType::ROCE_V1)
}

/// Returns a native packet as an ERF record of Endace's cards.
pub fn erf_infiniband(packet: &[u8]) -> Record {
    erf(21, packet, packet.len())
}

fn erf(record_type: u8, contents: &[u8], wire_len: usize) -> Record {
    let record_len = (16 + contents.len()) as u16;
    let mut record = (0x6553_f100u64 << 32).to_le_bytes().to_vec();
    record.extend([record_type, 4]); // Records of varying length.
    record.extend(record_len.to_be_bytes());
    record.extend([0, 0]); // Nothing was lost.
    record.extend((wire_len as u16).to_be_bytes());
    record.extend(contents);
    (LinkType::ERF, record)
}

/// Returns a captured RoCEv2 packet over another carrier: the same transport packet, with a new ICRC.
pub fn carried_by(recorded: &Recorded, carrier: Carrier) -> Vec<u8> {
    let (_, mut frame) = recorded.frame();
    let (source, destination) = frame.addresses().expect("a RoCEv2 packet");
    let packet_len = frame.packet.expect("a RoCEv2 packet").wire_len();
    let grh = Grh {
        version: 6,
        traffic_class: 0x60,
        flow_label: 0x12345,
        payload_length: packet_len as u16,
        next_header: IpProtocol::BTH,
        hop_limit: 64,
        source: Gid::from_ip(source),
        destination: Gid::from_ip(destination),
    };
    let lrh = |global: bool| Lrh {
        virtual_lane: 1,
        service_level: 3,
        next_header: if global { LinkNextHeader::GRH } else { LinkNextHeader::BTH },
        destination: Lid(0x11),
        source: Lid(0x12),
        packet_length: ((Lrh::LEN + if global { Grh::LEN } else { 0 } + packet_len) / 4) as u16,
        ..Lrh::default()
    };
    frame.udp = None;
    frame.network = Some(match carrier {
        Carrier::RoceV1 => Network::Grh(grh),
        Carrier::InfinibandGlobal => Network::Lrh(lrh(true), Some(grh)),
        Carrier::InfinibandLocal => Network::Lrh(lrh(false), None),
        other => panic!("captured packets are carried by {other:?} as they are"),
    });
    frame.trailer = if carrier.is_ethernet() { &[] } else { &[0x2c, 0x14] };
    match &mut frame {
        Frame { ethernet: Some(ethernet), .. } if carrier.is_ethernet() => {
            ethernet.ethertype = EtherType::ROCE_V1;
        }
        frame => frame.ethernet = None,
    }
    emit(&frame).expect("a whole frame")
}
