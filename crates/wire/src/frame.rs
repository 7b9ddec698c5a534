//! Frames: the layers that carry a transport packet over RoCEv2, RoCEv1 or native InfiniBand.
//!
//! Parsing stops at the first problem and keeps every layer read so far, so that any captured frame can be shown.

use core::net::IpAddr;

use crate::address::Gid;
use crate::ethernet::{EtherType, Ethernet, Vlan};
use crate::field::Header;
use crate::icrc::{self, Check, Encapsulation};
use crate::infiniband::{Grh, LinkNextHeader, Lrh};
use crate::ip::{IpProtocol, Ipv4, Ipv6, ROCE_PORT, Udp};
use crate::malformed::{Malformed, Problem};
use crate::packet::{ICRC_LEN, Packet, short};

/// One frame, as far as it was readable. To build one, fill in the layers of [`Frame::default`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame<'a> {
    /// The bytes it was parsed from.
    pub bytes: &'a [u8],
    /// Ethernet header; captures of loopback, tunnels and InfiniBand have none.
    pub ethernet: Option<Ethernet>,
    /// VLAN tags, outermost first.
    pub vlans: [Option<Vlan>; 2],
    /// EtherType of the network layer, whether that was readable or not.
    pub ethertype: Option<EtherType>,
    /// Network layer.
    pub network: Option<Network<'a>>,
    /// UDP header.
    pub udp: Option<Udp>,
    /// The transport packet, if this is RoCE or InfiniBand.
    pub packet: Option<Packet<'a>>,
    /// Bytes after the packet: Ethernet padding, frame check sequence, variant CRC.
    pub trailer: &'a [u8],
    /// Offsets of the layers.
    pub at: Offsets,
    /// The problem that stopped the parser.
    pub problem: Option<Malformed>,
}

/// Byte offsets of the layers of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// Network layer: IP, GRH, or LRH.
    pub network: usize,
    /// UDP.
    pub udp: usize,
    /// BTH.
    pub transport: usize,
}

/// The network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network<'a> {
    /// IPv4 with its options.
    Ipv4(Ipv4, &'a [u8]),
    /// IPv6.
    Ipv6(Ipv6),
    /// RoCEv1: a GRH directly on Ethernet.
    Grh(Grh),
    /// Native InfiniBand.
    Lrh(Lrh, Option<Grh>),
}

/// Result of an ICRC check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcrcVerdict {
    /// The ICRC is correct.
    Ok,
    /// The packet is corrupted, or its sender computes the ICRC differently.
    Bad {
        /// The ICRC computed from the packet's bytes.
        computed: [u8; ICRC_LEN],
        /// The ICRC in the packet.
        found: [u8; ICRC_LEN],
    },
    /// The packet is truncated.
    Unverifiable,
}

impl<'a> Frame<'a> {
    /// Parses an Ethernet frame that had `original_len` bytes on the wire.
    pub fn ethernet(bytes: &'a [u8], original_len: usize) -> Self {
        Self::read(bytes, |frame| {
            let Some((ethernet, _)) = Ethernet::split(bytes) else {
                return Err(short(Ethernet::NAME, Ethernet::LEN, bytes.len(), original_len, 0));
            };
            frame.ethernet = Some(ethernet);
            frame.network_layer(ethernet.ethertype, Ethernet::LEN, original_len)
        })
    }

    /// Parses a packet that starts with its network layer or a VLAN tag, `start` bytes into `bytes`: raw IP, loopback and
    /// cooked captures.
    pub fn network(
        ethertype: EtherType,
        bytes: &'a [u8],
        start: usize,
        original_len: usize,
    ) -> Self {
        let start = start.min(bytes.len());
        Self::read(bytes, |frame| frame.network_layer(ethertype, start, original_len))
    }

    /// Parses a native InfiniBand packet that starts with its LRH, `start` bytes into `bytes`.
    pub fn infiniband(bytes: &'a [u8], start: usize, original_len: usize) -> Self {
        let start = start.min(bytes.len());
        Self::read(bytes, |frame| frame.lrh(start, original_len.saturating_sub(start)))
    }

    /// Fills an empty frame layer by layer until one cannot be read.
    fn read(bytes: &'a [u8], fill: impl FnOnce(&mut Self) -> Result<(), Malformed>) -> Self {
        let mut frame = Self { bytes, ..Self::default() };
        frame.problem = fill(&mut frame).err();
        frame
    }

    fn network_layer(
        &mut self,
        mut ethertype: EtherType,
        mut at: usize,
        original_len: usize,
    ) -> Result<(), Malformed> {
        let wire_len = original_len.max(self.bytes.len());
        let mut tags = 0;
        while ethertype.is_vlan() {
            if tags == self.vlans.len() {
                return Err(Malformed { offset: at, problem: Problem::VlanDepth });
            }
            let rest = &self.bytes[at..];
            let Some((vlan, _)) = Vlan::split(rest) else {
                return Err(short(Vlan::NAME, Vlan::LEN, rest.len(), wire_len - at, at));
            };
            self.vlans[tags] = Some(vlan);
            tags += 1;
            ethertype = vlan.ethertype;
            at += Vlan::LEN;
        }
        self.ethertype = Some(ethertype);
        self.at.network = at;
        let on_wire = wire_len - at;
        match ethertype {
            EtherType::IPV4 => self.ipv4(at, on_wire),
            EtherType::IPV6 => self.ipv6(at, on_wire),
            EtherType::ROCE_V1 => self.roce_v1(at, on_wire),
            _ => Ok(()),
        }
    }

    fn ipv4(&mut self, at: usize, on_wire: usize) -> Result<(), Malformed> {
        let bytes = &self.bytes[at..];
        let Some((ip, rest)) = Ipv4::split(bytes) else {
            return Err(short(Ipv4::NAME, Ipv4::LEN, bytes.len(), on_wire, at));
        };
        check_version(Ipv4::NAME, ip.version, 4, at)?;
        let header_len = ip.header_len();
        if header_len < Ipv4::LEN || header_len > on_wire {
            self.network = Some(Network::Ipv4(ip, &[]));
        }
        check_length("IPv4 header length", header_len, Ipv4::LEN, on_wire.min(60), at)?;
        let Some(options) = rest.get(..header_len - Ipv4::LEN) else {
            return Err(short("IPv4 options", header_len, bytes.len(), on_wire, at));
        };
        self.network = Some(Network::Ipv4(ip, options));
        let total = usize::from(ip.total_length);
        check_length("IPv4 total length", total, header_len, on_wire, at)?;
        if ip.protocol != IpProtocol::UDP || ip.fragment_offset != 0 {
            return Ok(());
        }
        let read = self.udp(at + header_len, at + total);
        // Only a first fragment has a UDP header that identifies it as RoCE.
        if ip.more_fragments && self.is_roce() {
            self.packet = None;
            return Err(Malformed { offset: at, problem: Problem::Fragment { offset: 0 } });
        }
        read
    }

    fn ipv6(&mut self, at: usize, on_wire: usize) -> Result<(), Malformed> {
        let bytes = &self.bytes[at..];
        let Some((ip, _)) = Ipv6::split(bytes) else {
            return Err(short(Ipv6::NAME, Ipv6::LEN, bytes.len(), on_wire, at));
        };
        check_version(Ipv6::NAME, ip.version, 6, at)?;
        self.network = Some(Network::Ipv6(ip));
        let value = usize::from(ip.payload_length);
        check_length("IPv6 payload length", value, 0, on_wire.saturating_sub(Ipv6::LEN), at)?;
        if ip.next_header != IpProtocol::UDP {
            return Ok(());
        }
        self.udp(at + Ipv6::LEN, at + Ipv6::LEN + value)
    }

    fn roce_v1(&mut self, at: usize, on_wire: usize) -> Result<(), Malformed> {
        let grh = self.grh(at, on_wire)?;
        self.network = Some(Network::Grh(grh));
        check_version(Grh::NAME, grh.version, 6, at)?;
        let value = usize::from(grh.payload_length);
        check_length("GRH payload length", value, 0, on_wire.saturating_sub(Grh::LEN), at)?;
        if grh.next_header != IpProtocol::BTH {
            return Ok(());
        }
        self.transport(at + Grh::LEN, at + Grh::LEN + value)
    }

    fn lrh(&mut self, at: usize, on_wire: usize) -> Result<(), Malformed> {
        self.at.network = at;
        let bytes = &self.bytes[at..];
        let Some((lrh, _)) = Lrh::split(bytes) else {
            return Err(short(Lrh::NAME, Lrh::LEN, bytes.len(), on_wire, at));
        };
        self.network = Some(Network::Lrh(lrh, None));
        // IBA 7.7.6: words from the LRH up to the variant CRC.
        let value = usize::from(lrh.packet_length) * 4;
        check_length("LRH packet length", value, Lrh::LEN, on_wire, at)?;
        let (mut next_at, end) = (at + Lrh::LEN, at + value);
        match lrh.next_header {
            LinkNextHeader::BTH => {}
            LinkNextHeader::GRH => {
                let left = end - next_at;
                let grh = self.grh(next_at, left)?;
                self.network = Some(Network::Lrh(lrh, Some(grh)));
                let value = usize::from(grh.payload_length);
                check_length(
                    "GRH payload length",
                    value,
                    0,
                    left.saturating_sub(Grh::LEN),
                    next_at,
                )?;
                if grh.next_header != IpProtocol::BTH {
                    return Ok(());
                }
                next_at += Grh::LEN;
            }
            // Raw packets carry no transport.
            _ => return Ok(()),
        }
        self.transport(next_at, end)
    }

    fn grh(&self, at: usize, on_wire: usize) -> Result<Grh, Malformed> {
        let bytes = self.bytes.get(at..).unwrap_or_default();
        match Grh::split(bytes) {
            Some((grh, _)) => Ok(grh),
            None => Err(short(Grh::NAME, Grh::LEN, bytes.len(), on_wire, at)),
        }
    }

    fn udp(&mut self, at: usize, end: usize) -> Result<(), Malformed> {
        let bytes = self.bytes.get(at..).unwrap_or_default();
        let Some((udp, _)) = Udp::split(bytes) else {
            return Err(short(Udp::NAME, Udp::LEN, bytes.len(), end - at, at));
        };
        self.udp = Some(udp);
        self.at.udp = at;
        if !self.is_roce() {
            return Ok(());
        }
        let value = usize::from(udp.length);
        check_length("UDP length", value, Udp::LEN, end - at, at)?;
        self.transport(at + Udp::LEN, at + value)
    }

    fn transport(&mut self, at: usize, end: usize) -> Result<(), Malformed> {
        self.at.transport = at;
        let wire_len = end.saturating_sub(at);
        let bytes = self.bytes.get(at..).unwrap_or_default();
        let (packet, problem) = Packet::parse_captured(bytes, wire_len);
        self.packet = packet;
        self.trailer = self.bytes.get(end..).unwrap_or_default();
        match problem {
            Some(Malformed { offset, problem }) => Err(Malformed { offset: at + offset, problem }),
            None => Ok(()),
        }
    }

    /// Whether this is RoCE or InfiniBand, readable or not.
    pub fn is_roce(&self) -> bool {
        match self.network {
            Some(Network::Ipv4(..) | Network::Ipv6(_)) => {
                self.udp.is_some_and(|udp| udp.destination_port == ROCE_PORT)
            }
            Some(Network::Grh(_) | Network::Lrh(..)) => true,
            None => self.ethertype == Some(EtherType::ROCE_V1),
        }
    }

    /// Source and destination address. Native InfiniBand without a GRH has only LIDs, which are returned in the last two
    /// bytes of a link-local GID.
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let local = |lid: u16| {
            let mut gid = [0; 16];
            (gid[0], gid[1]) = (0xfe, 0x80);
            gid[14..].copy_from_slice(&lid.to_be_bytes());
            Gid(gid).to_ip()
        };
        Some(match self.network? {
            Network::Ipv4(ip, _) => (IpAddr::from(ip.source.0), IpAddr::from(ip.destination.0)),
            Network::Ipv6(ip) => (ip.source.to_ip(), ip.destination.to_ip()),
            Network::Grh(grh) | Network::Lrh(_, Some(grh)) => {
                (grh.source.to_ip(), grh.destination.to_ip())
            }
            Network::Lrh(lrh, None) => (local(lrh.source.0), local(lrh.destination.0)),
        })
    }

    /// Checks the ICRC over all bytes it covers, including the IPv4 identification.
    pub fn check_icrc(&self) -> IcrcVerdict {
        let checked = self.packet.filter(Packet::is_whole).and_then(|packet| {
            let covered = self.bytes.get(self.at.network..self.at.transport + packet.wire_len())?;
            icrc::check(self.network?.encapsulation(), covered).ok()
        });
        match checked {
            Some(check) if check.is_ok() => IcrcVerdict::Ok,
            Some(Check { computed, found }) => IcrcVerdict::Bad { computed, found },
            None => IcrcVerdict::Unverifiable,
        }
    }

    /// Writes the frame to the front of `out` with a newly computed ICRC: the inverse of parsing for frames with a correct
    /// ICRC. Returns the number of bytes, or `None` if `out` is too short or the frame is incomplete.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let packet = self.packet.as_ref().filter(|_| self.problem.is_none())?;
        let network = self.network?;
        let mut writer = Writer { out, at: 0 };
        if let Some(ethernet) = self.ethernet {
            writer.put(&ethernet.to_bytes())?;
        }
        for vlan in self.vlans.iter().flatten() {
            writer.put(&vlan.to_bytes())?;
        }
        let network_at = writer.at;
        match network {
            Network::Ipv4(ip, options) => {
                writer.put(&ip.to_bytes())?;
                writer.put(options)?;
            }
            Network::Ipv6(ip) => writer.put(&ip.to_bytes())?,
            Network::Grh(grh) => writer.put(&grh.to_bytes())?,
            Network::Lrh(lrh, grh) => {
                writer.put(&lrh.to_bytes())?;
                if let Some(grh) = grh {
                    writer.put(&grh.to_bytes())?;
                }
            }
        }
        if let Some(udp) = self.udp {
            writer.put(&udp.to_bytes())?;
        }
        writer.at += packet.emit(writer.out.get_mut(writer.at..)?)?;
        let icrc_at = writer.at;
        writer.put(&[0; ICRC_LEN])?;
        let check =
            icrc::check(network.encapsulation(), &writer.out[network_at..writer.at]).ok()?;
        writer.out[icrc_at..writer.at].copy_from_slice(&check.computed);
        writer.put(self.trailer)?;
        Some(writer.at)
    }
}

fn check_version(
    header: &'static str,
    found: u8,
    expected: u8,
    offset: usize,
) -> Result<(), Malformed> {
    if found == expected {
        return Ok(());
    }
    Err(Malformed { offset, problem: Problem::Version { header, found } })
}

/// Checks that a length field is within its limits.
fn check_length(
    field: &'static str,
    value: usize,
    min: usize,
    max: usize,
    offset: usize,
) -> Result<(), Malformed> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Malformed { offset, problem: Problem::Length { field, value, min, max } })
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.out.get_mut(self.at..self.at + bytes.len())?.copy_from_slice(bytes);
        self.at += bytes.len();
        Some(())
    }
}

impl Network<'_> {
    /// The encapsulation, which determines the ICRC coverage.
    pub fn encapsulation(&self) -> Encapsulation {
        match self {
            Self::Ipv4(..) => Encapsulation::Ipv4,
            Self::Ipv6(_) => Encapsulation::Ipv6,
            Self::Grh(_) => Encapsulation::RoceV1,
            Self::Lrh(..) => Encapsulation::Native,
        }
    }
}
