//! The wire format of datagram sockets (rdma-core, `librdmacm/docs/rsocket`): a header on UDP that announces the
//! sender's QPN, and another header between QPs that carries the sender's address. Depends on no other module.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Distinguishes the header from other datagrams that arrive at a UDP port.
const TAG: [u8; 4] = [0x55; 4];
/// Length of an announcement, for IPv4 and for IPv6.
const ANNOUNCEMENT_BYTES: [usize; 2] = [16, 28];
/// Length of a source header, for IPv4 and for IPv6.
const SOURCE_BYTES: [usize; 2] = [8, 24];
/// The IP versions, which give the length of the address in a header.
const VERSIONS: [u8; 2] = [4, 6];
/// QPNs have 24 bits; 0 and 1 are reserved for management (IBA 3.5.3).
const QPNS: std::ops::RangeInclusive<u32> = 2..=0xff_ffff;

/// What an announcement precedes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A datagram of the program. The sender requests an announcement in return.
    Data,
    /// Nothing: the announcement is the reply to one with data.
    Reply,
}

impl Kind {
    /// Message types that rsockets share; the other numbers are used by streams.
    const DATA: u8 = 0;
    const CONTROL: u8 = 7;
}

/// The header on UDP: the sender's QPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) kind: Kind,
    pub(crate) queue_pair: u32,
}

fn family(ip: IpAddr) -> usize {
    usize::from(ip.is_ipv6())
}

impl Announcement {
    /// Splits a datagram from this address into the header and its payload. Returns `None` if the header is malformed.
    ///
    /// The address in the header is ignored: the datagram has it, and rdma-core's IPv6 address is shifted by four
    /// bytes.
    pub(crate) fn read(datagram: &[u8], from: IpAddr) -> Option<(Self, &[u8])> {
        let length = ANNOUNCEMENT_BYTES[family(from)];
        let (header, rest) = datagram.split_at_checked(length)?;
        let is_valid = header[..4] == TAG
            && header[4] == VERSIONS[family(from)]
            && usize::from(header[6]) == length;
        if !is_valid {
            return None;
        }
        let kind = match header[5] {
            Kind::DATA => Kind::Data,
            Kind::CONTROL => Kind::Reply,
            _ => return None,
        };
        // The first byte is reserved.
        let queue_pair = u32::from_be_bytes([0, header[9], header[10], header[11]]);
        QPNS.contains(&queue_pair).then_some((Self { kind, queue_pair }, rest))
    }

    /// Encodes the header of a datagram sent from this address.
    pub(crate) fn write(self, local: IpAddr) -> Vec<u8> {
        let (version, length) = (VERSIONS[family(local)], ANNOUNCEMENT_BYTES[family(local)]);
        let kind = match self.kind {
            Kind::Data => Kind::DATA,
            Kind::Reply => Kind::CONTROL,
        };
        let mut out = Vec::with_capacity(length);
        out.extend(TAG);
        out.extend([version, kind, length as u8, 0]);
        out.extend(self.queue_pair.to_be_bytes());
        put(&mut out, local);
        out
    }
}

fn put(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => out.extend(ip.octets()),
        IpAddr::V6(ip) => out.extend(ip.octets()),
    }
}

/// The header between QPs: the sender's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceHeader(pub(crate) SocketAddr);

impl SourceHeader {
    /// Length of the longest header.
    pub(crate) const MAX_BYTES: usize = SOURCE_BYTES[1];

    /// Parses the start of a datagram, and returns the length of the header. Returns `None` if it is malformed.
    pub(crate) fn read(datagram: &[u8]) -> Option<(Self, usize)> {
        let (&version, &length) = (datagram.first()?, datagram.get(1)?);
        let family = VERSIONS.iter().position(|&known| known == version)?;
        let header = datagram.get(..SOURCE_BYTES[family])?;
        if usize::from(length) != header.len() {
            return None;
        }
        let port = u16::from_be_bytes([header[2], header[3]]);
        let address = match family {
            0 => SocketAddr::from((<[u8; 4]>::try_from(&header[4..]).ok()?, port)),
            _ => {
                let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..]).ok()?);
                // In host byte order, as in the C structure.
                let flow = u32::from_ne_bytes(<[u8; 4]>::try_from(&header[4..8]).ok()?);
                SocketAddrV6::new(ip, port, flow, 0).into()
            }
        };
        Some((Self(address), header.len()))
    }

    pub(crate) fn write(self) -> Vec<u8> {
        let family = family(self.0.ip());
        let mut out = Vec::with_capacity(SOURCE_BYTES[family]);
        out.extend([VERSIONS[family], SOURCE_BYTES[family] as u8]);
        out.extend(self.0.port().to_be_bytes());
        if let SocketAddr::V6(address) = self.0 {
            out.extend(address.flowinfo().to_ne_bytes());
        }
        put(&mut out, self.0.ip());
        out
    }
}

/// The maximum length of a datagram to this address: with the one header it has to fit into a packet with this payload,
/// and with the other into a slot of the receiver.
pub(crate) fn max_payload(to: IpAddr, packet: usize, slot: usize) -> usize {
    let direct = packet.min(slot).saturating_sub(SOURCE_BYTES[family(to)]);
    direct.min(slot.saturating_sub(ANNOUNCEMENT_BYTES[family(to)]))
}

/// Converts a mapped IPv4 address to IPv4, and clears the flow label, which does not identify a peer.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(ip.into(), v6.port()),
            None => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
    }
}

/// Converts an IPv4 address to the mapped address that an IPv6 socket uses.
pub(crate) fn mapped(address: SocketAddr) -> SocketAddr {
    let map = |ip: Ipv4Addr| ip.to_ipv6_mapped();
    match address {
        SocketAddr::V4(v4) => SocketAddr::new(map(*v4.ip()).into(), v4.port()),
        SocketAddr::V6(_) => address,
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
