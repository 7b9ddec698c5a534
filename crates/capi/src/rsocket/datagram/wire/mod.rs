//! What two datagram sockets say to each other (rdma-core, `librdmacm/docs/rsocket`): a header before what goes by a UDP
//! socket of the system's, which tells of a queue pair, and another before what goes between queue pairs, which tells whose
//! it is. Knows nothing of the rest, and depends on nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Marks a header of ours among what else may come to a UDP port.
const TAG: [u8; 4] = [0x55; 4];
/// Bytes of an announcement, of IPv4 and of IPv6.
const ANNOUNCEMENT_BYTES: [usize; 2] = [16, 28];
/// Bytes of a source, of IPv4 and of IPv6.
const SOURCE_BYTES: [usize; 2] = [8, 24];
/// The versions of IP, which say what the headers' addresses are.
const VERSIONS: [u8; 2] = [4, 6];
/// QPNs have 24 bits, and the first two are management's (IBA 3.5.3).
const QPNS: std::ops::RangeInclusive<u32> = 2..=0xff_ffff;

/// What comes with an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A datagram of the program's; and the sender wants to know of our queue pair.
    Data,
    /// Nothing: this is the answer.
    Answer,
}

impl Kind {
    /// Those of all messages of rsockets; the other numbers are streams'.
    const DATA: u8 = 0;
    const CONTROL: u8 = 7;
}

/// The header on UDP: the sender's queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) kind: Kind,
    pub(crate) queue_pair: u32,
}

fn family(ip: IpAddr) -> usize {
    usize::from(ip.is_ipv6())
}

impl Announcement {
    /// Reads a datagram from this address: the header, and what follows it. `None` for what is none of ours.
    ///
    /// The address in it is not looked at: the datagram has it, and rdma-core's of IPv6 is shifted by four bytes.
    pub(crate) fn read(datagram: &[u8], from: IpAddr) -> Option<(Self, &[u8])> {
        let length = ANNOUNCEMENT_BYTES[family(from)];
        let (header, rest) = datagram.split_at_checked(length)?;
        let is_ours = header[..4] == TAG
            && header[4] == VERSIONS[family(from)]
            && usize::from(header[6]) == length;
        if !is_ours {
            return None;
        }
        let kind = match header[5] {
            Kind::DATA => Kind::Data,
            Kind::CONTROL => Kind::Answer,
            _ => return None,
        };
        // The first byte is reserved.
        let queue_pair = u32::from_be_bytes([0, header[9], header[10], header[11]]);
        QPNS.contains(&queue_pair).then_some((Self { kind, queue_pair }, rest))
    }

    /// Puts it before a datagram that leaves from this address.
    pub(crate) fn write(self, local: IpAddr) -> Vec<u8> {
        let (version, length) = (VERSIONS[family(local)], ANNOUNCEMENT_BYTES[family(local)]);
        let kind = match self.kind {
            Kind::Data => Kind::DATA,
            Kind::Answer => Kind::CONTROL,
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

/// The header between queue pairs: whose datagram it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source(pub(crate) SocketAddr);

impl Source {
    /// The longest.
    pub(crate) const MOST_BYTES: usize = SOURCE_BYTES[1];

    /// Reads the beginning of a datagram, and tells how many bytes the header has. `None` for what is none of ours.
    pub(crate) fn read(datagram: &[u8]) -> Option<(Self, usize)> {
        let (&version, &length) = (datagram.first()?, datagram.get(1)?);
        let family = VERSIONS.iter().position(|&one| one == version)?;
        let header = datagram.get(..SOURCE_BYTES[family])?;
        if usize::from(length) != header.len() {
            return None;
        }
        let port = u16::from_be_bytes([header[2], header[3]]);
        let address = match family {
            0 => SocketAddr::from((<[u8; 4]>::try_from(&header[4..]).ok()?, port)),
            _ => {
                let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..]).ok()?);
                // In the host's words, as it is in C's structure.
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

/// Bytes that a datagram to this address may have: with the one header it has to fit into a packet, which carries so many,
/// and with the other into a receiver's place.
pub(crate) fn most_bytes(to: IpAddr, packet: usize, place: usize) -> usize {
    let direct = packet.min(place).saturating_sub(SOURCE_BYTES[family(to)]);
    direct.min(place.saturating_sub(ANNOUNCEMENT_BYTES[family(to)]))
}

/// An address by its own family, where IPv6 has one of IPv4; and without a flow, which is no part of who somebody is.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(ip.into(), v6.port()),
            None => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
    }
}

/// The same address as a socket of IPv6 has it.
pub(crate) fn mapped(address: SocketAddr) -> SocketAddr {
    let map = |ip: Ipv4Addr| ip.to_ipv6_mapped();
    match address {
        SocketAddr::V4(v4) => SocketAddr::new(map(*v4.ip()).into(), v4.port()),
        SocketAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests;
