//! RDMA-CM: IP addresses and ports over the connection manager (IBA annex A11).
//!
//! A port becomes a service ID, and the addresses travel in a header at the front of the private data of REQ and
//! SIDR_REQ, before the consumer's own bytes.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cm::ServiceId;
use crate::field::{Field, Octets, Show, header};

header! {
    /// The IP header of RDMA-CM (IBA A11.2): who connects from where to where.
    pub struct IpHeader("RDMA-CM IP", 36) {
        /// Version, 0.
        major_version: u8 = 4,
        /// Version, 0.
        minor_version: u8 = 4,
        /// 4 or 6: what the addresses are.
        ip_version: u8 = 4,
        /// Reserved.
        reserved: u8 = 4,
        /// The active side's port. The passive side's is in the service ID.
        source_port: u16 = 16,
        /// The active side's address; IPv4 in the last four bytes.
        source: PaddedAddress = 128,
        /// The passive side's address; IPv4 in the last four bytes.
        destination: PaddedAddress = 128,
    }
}

/// An address of [`IpHeader`]: IPv6, or twelve zero bytes and IPv4. Not the mapping that GIDs use.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PaddedAddress(pub [u8; 16]);

/// The port spaces of RDMA-CM; their number is the upper half of the service ID's low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortSpace {
    /// Datagrams to IP over InfiniBand's queue pairs.
    Ipoib = 0x0002,
    /// Reliable connections, named as TCP names its own.
    Tcp = 0x0106,
    /// Datagrams, named as UDP names its own.
    Udp = 0x0111,
    /// Any kind, by native addresses. Its private data may come without the IP header.
    Ib = 0x013f,
}

/// Why private data does not begin with RDMA-CM's IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoIpHeader {
    /// The service is not one of RDMA-CM's.
    Service(ServiceId),
    /// The private data is shorter than the header.
    Length(usize),
    /// A major version that this is not the layout of.
    Version(u8),
    /// Neither IPv4 nor IPv6.
    IpVersion(u8),
}

impl PortSpace {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ipoib, Self::Tcp, Self::Udp, Self::Ib];

    /// The port space of a number.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|space| space.code() == code)
    }

    /// Its number. For TCP and UDP the low byte is IP's protocol number (IBA A11.2).
    pub const fn code(self) -> u16 {
        self as u16
    }
}

/// The service ID of a port.
pub const fn service_id(space: PortSpace, port: u16) -> ServiceId {
    ServiceId((space.code() as u64) << 16 | port as u64)
}

/// The port of a service ID, `None` when it is not one of RDMA-CM's.
pub fn split_service_id(id: ServiceId) -> Option<(PortSpace, u16)> {
    let space = u16::try_from(id.0 >> 16).ok().and_then(PortSpace::from_code)?;
    Some((space, id.0 as u16))
}

/// Splits the private data of a REQ or SIDR_REQ into RDMA-CM's header and the consumer's bytes.
pub fn split_private_data(
    service: ServiceId,
    private_data: &[u8],
) -> Result<(IpHeader, &[u8]), NoIpHeader> {
    split_service_id(service).ok_or(NoIpHeader::Service(service))?;
    let (header, consumer) =
        IpHeader::split(private_data).ok_or(NoIpHeader::Length(private_data.len()))?;
    match header {
        // Minor versions keep the layout (IBA A11.2), so only the major one is judged.
        IpHeader { major_version: 1.., .. } => Err(NoIpHeader::Version(header.major_version)),
        IpHeader { ip_version: 4 | 6, .. } => Ok((header, consumer)),
        _ => Err(NoIpHeader::IpVersion(header.ip_version)),
    }
}

/// Private data of `N` bytes: the header, then the consumer's bytes and zeroes. `None` when they do not fit.
pub fn private_data<const N: usize>(header: &IpHeader, consumer: &[u8]) -> Option<Octets<N>> {
    let mut octets = Octets::padded(&header.to_bytes())?;
    let room = octets.0.get_mut(IpHeader::LEN..)?.get_mut(..consumer.len())?;
    room.copy_from_slice(consumer);
    Some(octets)
}

impl IpHeader {
    /// The header of an IPv4 connection.
    pub fn v4(source_port: u16, source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        Self {
            ip_version: 4,
            source_port,
            source: source.into(),
            destination: destination.into(),
            ..Self::default()
        }
    }

    /// The header of an IPv6 connection.
    pub fn v6(source_port: u16, source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self {
            ip_version: 6,
            source_port,
            source: source.into(),
            destination: destination.into(),
            ..Self::default()
        }
    }

    /// The active side's address, `None` when the IP version is unknown.
    pub fn source_ip(&self) -> Option<IpAddr> {
        self.source.to_ip(self.ip_version)
    }

    /// The passive side's address, `None` when the IP version is unknown.
    pub fn destination_ip(&self) -> Option<IpAddr> {
        self.destination.to_ip(self.ip_version)
    }
}

impl PaddedAddress {
    fn to_ip(self, version: u8) -> Option<IpAddr> {
        let [.., a, b, c, d] = self.0;
        match version {
            4 => Some(Ipv4Addr::new(a, b, c, d).into()),
            6 => Some(Ipv6Addr::from(self.0).into()),
            _ => None,
        }
    }
}

impl From<Ipv4Addr> for PaddedAddress {
    fn from(address: Ipv4Addr) -> Self {
        Self(address.to_ipv6_compatible().octets())
    }
}

impl From<Ipv6Addr> for PaddedAddress {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl Field for PaddedAddress {
    fn load(bytes: &[u8], bit: usize, width: usize) -> Self {
        Self(Octets::load(bytes, bit, width).0)
    }

    fn store(&self, bytes: &mut [u8], bit: usize, width: usize) {
        Octets(self.0).store(bytes, bit, width);
    }
}

impl fmt::Display for PaddedAddress {
    /// Shows IPv4 as such. The field alone does not say which it is: `::` and `::1` are taken as IPv6's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] if a != 0 => {
                fmt::Display::fmt(&Ipv4Addr::new(a, b, c, d), f)
            }
            octets => fmt::Display::fmt(&Ipv6Addr::from(octets), f),
        }
    }
}

impl fmt::Debug for PaddedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Show for PaddedAddress {
    fn value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PortSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipoib => "IPoIB",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Ib => "IB",
        })
    }
}

impl fmt::Display for NoIpHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(id) => write!(f, "service ID {id} is not one of RDMA-CM's"),
            Self::Length(found) => write!(
                f,
                "RDMA-CM's IP header takes {} bytes, the private data has {found}",
                IpHeader::LEN
            ),
            Self::Version(found) => write!(f, "RDMA-CM's IP header of unknown version {found}"),
            Self::IpVersion(found) => write!(f, "RDMA-CM's IP header for IP version {found}"),
        }
    }
}

impl core::error::Error for NoIpHeader {}

#[cfg(test)]
mod tests;
