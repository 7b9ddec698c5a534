//! The IP and UDP headers shared by the packets of a record, and their per-packet form after segmentation.

use ferroce_wire::frame::Frame;
use ferroce_wire::icrc::Icrc;
use ferroce_wire::icrc::hidden::{self, BATCH_LIMIT, UdpIpv4};
use ferroce_wire::ip::{InternetChecksum, IpProtocol, Ipv4, Ipv6, Udp};
use ferroce_wire::packet::ICRC_LEN;
use ferroce_wire::transport::Bth;

/// Limit of the distance between an identification solved from the ICRC and the expected one. It accepts a corrupted
/// packet about once in two million.
const MAX_ID_DISTANCE: u16 = 1024;

/// Headers of a large datagram, and its payload: packets back to back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carrier<'a> {
    ip: Ip<'a>,
    udp: &'a [u8; Udp::LEN],
    /// Captured part of the payload.
    pub(super) payload: &'a [u8],
    /// Bytes of payload on the wire.
    pub(super) len: usize,
}

#[derive(Clone, Copy, Debug)]
enum Ip<'a> {
    V4(&'a [u8; Ipv4::LEN], &'a [u8]),
    V6(&'a [u8; Ipv6::LEN]),
}

impl<'a> Carrier<'a> {
    /// The headers of a frame. `None` for RoCEv1 and InfiniBand, which no offload segments.
    pub(super) fn of(frame: &Frame<'a>) -> Option<Self> {
        let len = usize::from(frame.udp?.length).checked_sub(Udp::LEN)?;
        let bytes = frame.bytes.get(frame.at.network..)?;
        Self::new(bytes, frame.at.udp.checked_sub(frame.at.network)?, len)
    }

    /// Splits `bytes`, which start with an IP header of `ip_len` bytes.
    pub(super) fn new(bytes: &'a [u8], ip_len: usize, len: usize) -> Option<Self> {
        let (ip, rest) = bytes.split_at_checked(ip_len)?;
        let ip = match ip.first()? >> 4 {
            4 => ip.split_first_chunk().map(|(fixed, options)| Ip::V4(fixed, options))?,
            6 => Ip::V6(ip.try_into().ok()?),
            _ => return None,
        };
        let (udp, payload) = rest.split_first_chunk()?;
        Some(Self { ip, udp, payload: &payload[..payload.len().min(len)], len })
    }

    /// The packet of `len` bytes at `at`, if captured in full.
    pub(super) fn packet(&self, at: usize, len: usize) -> Option<&'a [u8]> {
        self.payload.get(at..at.checked_add(len)?)
    }

    /// Whether the ICRC of packet `index` is correct with its headers after segmentation.
    pub(super) fn verifies(&self, index: u32, packet: &[u8]) -> bool {
        self.icrc(self.sequential_id(index), packet).is_some_and(|right| right)
            || self.solved_id(index, packet).is_some()
    }

    fn icrc(&self, identification: u16, packet: &[u8]) -> Option<bool> {
        let (covered, found) = packet.split_last_chunk::<ICRC_LEN>()?;
        let (bth, rest) = covered.split_first_chunk::<{ Bth::LEN }>()?;
        let udp = self.udp(packet.len());
        let mut icrc = match self.ip {
            Ip::V4(fixed, options) => {
                let fixed = ipv4(fixed, options, packet.len(), identification);
                match options {
                    [] => Icrc::ipv4(&fixed, &udp, bth),
                    _ => Icrc::ipv4_with_options(&[&fixed, options].concat(), &udp, bth).ok()?,
                }
            }
            Ip::V6(fixed) => Icrc::ipv6(&ipv6(fixed, packet.len()), &udp, bth),
        };
        icrc.update(rest);
        Some(icrc.finish() == *found)
    }

    /// The identification of packet `index` after segmentation.
    fn sequential_id(&self, index: u32) -> u16 {
        match self.ip {
            Ip::V4(&[_, _, _, _, high, low, ..], _) => {
                u16::from_be_bytes([high, low]).wrapping_add(index as u16)
            }
            Ip::V6(_) => 0,
        }
    }

    /// The identification that makes the ICRC correct, if plausible for packets joined by GRO: near the expected one, or an
    /// index in another batch.
    fn solved_id(&self, index: u32, packet: &[u8]) -> Option<u16> {
        let Ip::V4(fixed, []) = self.ip else { return None };
        let port = |at: usize| u16::from_be_bytes([self.udp[at], self.udp[at + 1]]);
        let flow = UdpIpv4 {
            source: *fixed[12..].first_chunk()?,
            destination: *fixed[16..].first_chunk()?,
            source_port: port(0),
            destination_port: port(2),
        };
        let expected = hidden::Identification {
            id: self.sequential_id(index),
            dont_fragment: fixed[6] & 0x40 != 0,
        };
        let found = hidden::solve(&flow, packet, expected)?;
        let distance = (found.id.wrapping_sub(expected.id) as i16).unsigned_abs();
        let likely = distance <= MAX_ID_DISTANCE || found.id < BATCH_LIMIT;
        // The first packet's identification is in the header.
        (index > 0 && likely && found.dont_fragment == expected.dont_fragment).then_some(found.id)
    }

    /// Appends the headers of packet `index` to `out`. The packet has `len` bytes, of which `kept` were captured.
    pub(super) fn header(&self, index: u32, len: usize, kept: &[u8], out: &mut Vec<u8>) {
        let mut udp = self.udp(len);
        let pseudo = match self.ip {
            Ip::V4(fixed, options) => {
                let mut identification = self.sequential_id(index);
                if kept.len() == len && !self.icrc(identification, kept).is_some_and(|right| right)
                {
                    identification = self.solved_id(index, kept).unwrap_or(identification);
                }
                let fixed = ipv4(fixed, options, len, identification);
                out.extend_from_slice(&fixed);
                out.extend_from_slice(options);
                InternetChecksum::default().over(&fixed[12..])
            }
            Ip::V6(fixed) => {
                let fixed = ipv6(fixed, len);
                out.extend_from_slice(&fixed);
                InternetChecksum::default().over(&fixed[8..])
            }
        };
        // Zero means no checksum. Before segmentation, the field holds the pseudo-header sum for the NIC to complete.
        if udp[6..] != [0, 0] && kept.len() == len {
            udp[6..].fill(0);
            let [high, low] = ((Udp::LEN + len) as u16).to_be_bytes();
            let sum = pseudo.over(&[0, IpProtocol::UDP.0, high, low]).over(&udp).over(kept);
            let sum = match sum.finish().0 {
                // RFC 768: zero would mean no checksum.
                0 => u16::MAX,
                sum => sum,
            };
            udp[6..].copy_from_slice(&sum.to_be_bytes());
        }
        out.extend_from_slice(&udp);
    }

    /// The UDP header of a packet of `len` bytes, with the checksum unchanged: the ICRC does not cover it.
    fn udp(&self, len: usize) -> [u8; Udp::LEN] {
        let mut udp = *self.udp;
        udp[4..6].copy_from_slice(&((Udp::LEN + len) as u16).to_be_bytes());
        udp
    }
}

/// The IPv4 header of a packet of `len` bytes, with its checksum.
fn ipv4(
    fixed: &[u8; Ipv4::LEN],
    options: &[u8],
    len: usize,
    identification: u16,
) -> [u8; Ipv4::LEN] {
    let mut ip = *fixed;
    let total = Ipv4::LEN + options.len() + Udp::LEN + len;
    ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    ip[4..6].copy_from_slice(&identification.to_be_bytes());
    ip[10..12].fill(0);
    let sum = InternetChecksum::default().over(&ip).over(options).finish();
    ip[10..12].copy_from_slice(&sum.0.to_be_bytes());
    ip
}

fn ipv6(fixed: &[u8; Ipv6::LEN], len: usize) -> [u8; Ipv6::LEN] {
    let mut ip = *fixed;
    ip[4..6].copy_from_slice(&((Udp::LEN + len) as u16).to_be_bytes());
    ip
}
