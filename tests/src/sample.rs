//! Generated frames: any opcode over any carrier, with random values in all fields that may have any value.

use ferroce_wire::address::{Gid, Ip4};
use ferroce_wire::ethernet::{EtherType, Ethernet, Vlan};
use ferroce_wire::frame::{Frame, Network, Offsets};
use ferroce_wire::infiniband::{Grh, LinkNextHeader, Lrh};
use ferroce_wire::ip::{Checksum, InternetChecksum, IpProtocol, Ipv4, Ipv6, ROCE_PORT, Udp};
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::{Extensions, Opcode};
use ferroce_wire::packet::{ExtensionHeaders, ICRC_LEN, Packet};
use ferroce_wire::transport::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Rdeth, Reth, Xrceth,
};

use crate::random::Random;

/// The network and link layers that carry a transport packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum Carrier {
    RoceV2Ipv4,
    RoceV2Ipv4Options,
    RoceV2Ipv6,
    RoceV1,
    InfinibandLocal,
    InfinibandGlobal,
}

impl Carrier {
    /// All carriers.
    pub const ALL: [Self; 6] = [
        Self::RoceV2Ipv4,
        Self::RoceV2Ipv4Options,
        Self::RoceV2Ipv6,
        Self::RoceV1,
        Self::InfinibandLocal,
        Self::InfinibandGlobal,
    ];

    /// Whether it runs over Ethernet.
    pub fn is_ethernet(self) -> bool {
        !matches!(self, Self::InfinibandLocal | Self::InfinibandGlobal)
    }

    /// Returns its Ethertype.
    pub fn ethertype(self) -> EtherType {
        match self {
            Self::RoceV2Ipv6 => EtherType::IPV6,
            Self::RoceV1 => EtherType::ROCE_V1,
            _ => EtherType::IPV4,
        }
    }
}

/// The parameters of a generated frame. The same recipe gives the same frame.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// The carrier.
    pub carrier: Carrier,
    /// VLAN tags, up to two; native InfiniBand has none.
    pub tags: usize,
    /// The opcode.
    pub opcode: Opcode,
    /// Bytes of payload, where the opcode has any.
    pub payload_len: usize,
    /// Bytes after the packet.
    pub trailer_len: usize,
    /// The seed of all other values.
    pub seed: u64,
}

/// A frame with all bytes it borrows.
#[derive(Clone, Debug)]
pub struct Sample {
    carrier: Carrier,
    ethernet: Option<Ethernet>,
    vlans: [Option<Vlan>; 2],
    network: Network<'static>,
    options: Vec<u8>,
    udp: Option<Udp>,
    bth: Bth,
    extensions: ExtensionHeaders,
    payload: Vec<u8>,
    pad: Vec<u8>,
    trailer: Vec<u8>,
}

impl Recipe {
    /// Generates the frame.
    pub fn make(&self) -> Sample {
        let mut random = Random::new(self.seed);
        let tags = if self.carrier.is_ethernet() { self.tags } else { 0 };
        let info = self.opcode.info();
        let payload_len = if info.is_none_or(|info| info.payload) { self.payload_len } else { 0 };
        let pad_len = payload_len.wrapping_neg() % 4;
        let extensions = extensions(info.map(|info| info.extensions), &mut random);
        let packet_len = Bth::LEN + extensions.set().len() + payload_len + pad_len + ICRC_LEN;
        let udp_len = Udp::LEN + packet_len;

        let mut options = Vec::new();
        let mut udp = None;
        let network = match self.carrier {
            Carrier::RoceV2Ipv4 | Carrier::RoceV2Ipv4Options => {
                if self.carrier == Carrier::RoceV2Ipv4Options {
                    options = no_operations(1 + random.below(10));
                }
                udp = Some(udp_header(udp_len, &mut random));
                Network::Ipv4(ipv4(&options, udp_len, &mut random), &[])
            }
            Carrier::RoceV2Ipv6 => {
                udp = Some(udp_header(udp_len, &mut random));
                Network::Ipv6(ipv6(udp_len, &mut random))
            }
            Carrier::RoceV1 => Network::Grh(grh(packet_len, &mut random)),
            Carrier::InfinibandLocal => Network::Lrh(lrh(packet_len, false, &mut random), None),
            Carrier::InfinibandGlobal => {
                let lrh = lrh(packet_len, true, &mut random);
                Network::Lrh(lrh, Some(grh(packet_len, &mut random)))
            }
        };
        let (ethernet, vlans) = link(self.carrier, tags, &mut random);
        let bth = Bth {
            opcode: self.opcode,
            pad: pad_len as u8,
            version: 0,
            // Not a QP whose payload is a management datagram.
            destination: Qpn(2 + random.below(0xff_fff0) as u32),
            ..Bth::parse(&random.array())
        };
        Sample {
            carrier: self.carrier,
            ethernet,
            vlans,
            network,
            options,
            udp,
            bth,
            extensions,
            payload: random.bytes(payload_len),
            pad: vec![0; pad_len],
            trailer: random.bytes(self.trailer_len),
        }
    }
}

impl Sample {
    /// Returns the frame as a parser should return it, without its bytes and its ICRC.
    pub fn frame(&self) -> Frame<'_> {
        let network = match self.network {
            Network::Ipv4(ip, _) => Network::Ipv4(ip, &self.options),
            other => other,
        };
        let tags = self.vlans.iter().flatten().count();
        let at = match self.ethernet {
            Some(_) => Ethernet::LEN + tags * Vlan::LEN,
            None => 0,
        };
        let network_len = match network {
            Network::Ipv4(ip, _) => ip.header_len(),
            Network::Ipv6(_) | Network::Grh(_) => Grh::LEN,
            Network::Lrh(_, None) => Lrh::LEN,
            Network::Lrh(_, Some(_)) => Lrh::LEN + Grh::LEN,
        };
        let (udp, udp_len) = match self.udp {
            Some(_) => (at + network_len, Udp::LEN),
            None => (0, 0),
        };
        Frame {
            bytes: &[],
            ethernet: self.ethernet,
            vlans: self.vlans,
            ethertype: self.ethernet.map(|_| self.carrier.ethertype()),
            network: Some(network),
            udp: self.udp,
            packet: Some(Packet {
                bth: self.bth,
                extensions: self.extensions,
                payload: &self.payload,
                payload_len: self.payload.len(),
                pad: &self.pad,
                icrc: None,
            }),
            trailer: &self.trailer,
            at: Offsets { network: at, udp, transport: at + network_len + udp_len },
            problem: None,
        }
    }

    /// Returns the sample with another destination QP and another payload of the same length.
    #[must_use]
    pub fn carrying(mut self, destination: Qpn, payload: &[u8]) -> Self {
        self.bth.destination = destination;
        self.payload.copy_from_slice(payload);
        self
    }

    /// Returns the frame's bytes, with its ICRC.
    pub fn bytes(&self) -> Vec<u8> {
        emit(&self.frame()).expect("a sample is a whole frame")
    }

    /// Parses bytes as this sample's kind: an Ethernet frame or a native InfiniBand packet.
    pub fn parse<'a>(&self, bytes: &'a [u8], original_len: usize) -> Frame<'a> {
        match self.ethernet {
            Some(_) => Frame::ethernet(bytes, original_len),
            None => Frame::infiniband(bytes, 0, original_len),
        }
    }
}

/// Larger than any frame here: 4096 bytes of payload, all headers and the trailer.
const MAX_FRAME_LEN: usize = 5000;

/// Returns the bytes of a frame, or `None` if it is incomplete.
pub fn emit(frame: &Frame<'_>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; MAX_FRAME_LEN];
    let len = frame.emit(&mut bytes)?;
    bytes.truncate(len);
    Some(bytes)
}

fn extensions(set: Option<Extensions>, random: &mut Random) -> ExtensionHeaders {
    let set = set.unwrap_or(Extensions::NONE);
    let mut headers = ExtensionHeaders::default();
    macro_rules! fill {
        ($($bit:ident $field:ident $header:ident),+) => {$(
            if set.contains(Extensions::$bit) {
                headers.$field = Some($header::parse(&random.array()));
            }
        )+};
    }
    fill!(
        RDETH rdeth Rdeth, DETH deth Deth, XRCETH xrceth Xrceth, FETH feth Feth, RETH reth Reth,
        ATOMIC atomic AtomicEth, AETH aeth Aeth, ATOMIC_ACK atomic_ack AtomicAckEth,
        IMMEDIATE immediate ImmDt, IETH ieth Ieth
    );
    headers
}

fn link(
    carrier: Carrier,
    tags: usize,
    random: &mut Random,
) -> (Option<Ethernet>, [Option<Vlan>; 2]) {
    if !carrier.is_ethernet() {
        return (None, [None; 2]);
    }
    let kinds = [EtherType::SERVICE_VLAN, EtherType::VLAN];
    let outermost_first = kinds[2 - tags..].iter().copied();
    let types: Vec<EtherType> = outermost_first.chain([carrier.ethertype()]).collect();
    let mut vlans = [None; 2];
    for (vlan, ethertype) in vlans.iter_mut().zip(&types[1..]) {
        *vlan = Some(Vlan { ethertype: *ethertype, ..Vlan::parse(&random.array()) });
    }
    (Some(Ethernet { ethertype: types[0], ..Ethernet::parse(&random.array()) }), vlans)
}

/// Returns `words` 32-bit words of no-operation IPv4 options (RFC 791, section 3.1).
fn no_operations(words: usize) -> Vec<u8> {
    vec![1; words * 4]
}

fn ipv4(options: &[u8], payload_len: usize, random: &mut Random) -> Ipv4 {
    let header_len = Ipv4::LEN + options.len();
    let ip = Ipv4 {
        version: 4,
        header_words: (header_len / 4) as u8,
        total_length: (header_len + payload_len) as u16,
        reserved: false,
        more_fragments: false,
        fragment_offset: 0,
        protocol: IpProtocol::UDP,
        checksum: Checksum(0),
        source: Ip4(random.array()),
        destination: Ip4(random.array()),
        ..Ipv4::parse(&random.array())
    };
    let checksum = InternetChecksum::default().over(&ip.to_bytes()).over(options).finish();
    Ipv4 { checksum, ..ip }
}

fn ipv6(payload_len: usize, random: &mut Random) -> Ipv6 {
    Ipv6 {
        version: 6,
        payload_length: payload_len as u16,
        next_header: IpProtocol::UDP,
        source: Gid(random.array()),
        destination: Gid(random.array()),
        ..Ipv6::parse(&random.array())
    }
}

fn grh(payload_len: usize, random: &mut Random) -> Grh {
    Grh {
        version: 6,
        payload_length: payload_len as u16,
        next_header: IpProtocol::BTH,
        ..Grh::parse(&random.array())
    }
}

fn lrh(packet_len: usize, global: bool, random: &mut Random) -> Lrh {
    let len = Lrh::LEN + if global { Grh::LEN } else { 0 } + packet_len;
    Lrh {
        next_header: if global { LinkNextHeader::GRH } else { LinkNextHeader::BTH },
        packet_length: (len / 4) as u16,
        ..Lrh::parse(&random.array())
    }
}

fn udp_header(len: usize, random: &mut Random) -> Udp {
    Udp {
        source_port: 0xc000 | random.number() as u16,
        destination_port: ROCE_PORT,
        length: len as u16,
        // RoCEv2 senders omit it (IBA A17.3.1.1), and the ICRC covers ones in its place.
        checksum: Checksum(0),
    }
}
