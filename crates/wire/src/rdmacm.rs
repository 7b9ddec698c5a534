//! RDMA-CM: IP addresses and ports over the connection manager (IBA annex A11).
//!
//! A port maps to a service ID, and the addresses are in a header at the front of the private data of REQ and SIDR_REQ,
//! before the consumer's data.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cm::ServiceId;
use crate::field::{Field, Octets, Show, header};

header! {
    /// RDMA-CM IP header (IBA A11.2): addresses and source port of a connection.
    pub struct IpHeader("RDMA-CM IP", 36) {
        /// Version, 0.
        major_version: u8 = 4,
        /// Version, 0.
        minor_version: u8 = 4,
        /// IP version of the addresses, 4 or 6.
        ip_version: u8 = 4,
        /// Reserved.
        reserved: u8 = 4,
        /// Port of the active side; that of the passive side is in the service ID.
        source_port: u16 = 16,
        /// Address of the active side; IPv4 in the last four bytes.
        source: PaddedAddress = 128,
        /// Address of the passive side; IPv4 in the last four bytes.
        destination: PaddedAddress = 128,
    }
}

/// An address of [`IpHeader`]: IPv6, or twelve zero bytes and IPv4, unlike the mapping of GIDs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PaddedAddress(pub [u8; 16]);

/// The port spaces of RDMA-CM; their number is the upper half of the service ID's low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortSpace {
    /// Datagrams to IPoIB queue pairs.
    Ipoib = 0x0002,
    /// Reliable connections.
    Tcp = 0x0106,
    /// Datagrams.
    Udp = 0x0111,
    /// Any transport, by native addresses. Its private data may lack the IP header.
    Ib = 0x013f,
}

/// Why private data does not start with an RDMA-CM IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoIpHeader {
    /// The service ID is not in a port space of RDMA-CM.
    Service(ServiceId),
    /// The private data is shorter than the header.
    Length(usize),
    /// Unknown major version.
    Version(u8),
    /// Neither IPv4 nor IPv6.
    IpVersion(u8),
}

impl PortSpace {
    /// All port spaces.
    pub const ALL: [Self; 4] = [Self::Ipoib, Self::Tcp, Self::Udp, Self::Ib];

    /// The port space of a number.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|space| space.code() == code)
    }

    /// Its number. For TCP and UDP the low byte is the IP protocol number (IBA A11.2).
    pub const fn code(self) -> u16 {
        self as u16
    }
}

/// The service ID of a port.
pub const fn service_id(space: PortSpace, port: u16) -> ServiceId {
    ServiceId((space.code() as u64) << 16 | port as u64)
}

/// The port of a service ID, `None` if it is not in a port space of RDMA-CM.
pub fn split_service_id(id: ServiceId) -> Option<(PortSpace, u16)> {
    let space = u16::try_from(id.0 >> 16).ok().and_then(PortSpace::from_code)?;
    Some((space, id.0 as u16))
}

/// Splits the private data of a REQ or SIDR_REQ into the RDMA-CM header and the consumer's data.
pub fn split_private_data(
    service: ServiceId,
    private_data: &[u8],
) -> Result<(IpHeader, &[u8]), NoIpHeader> {
    split_service_id(service).ok_or(NoIpHeader::Service(service))?;
    let (header, consumer) =
        IpHeader::split(private_data).ok_or(NoIpHeader::Length(private_data.len()))?;
    match header {
        // Minor versions keep the layout (IBA A11.2), so only the major one is checked.
        IpHeader { major_version: 1.., .. } => Err(NoIpHeader::Version(header.major_version)),
        IpHeader { ip_version: 4 | 6, .. } => Ok((header, consumer)),
        _ => Err(NoIpHeader::IpVersion(header.ip_version)),
    }
}

/// Private data of `N` bytes: the header, the consumer's data and zeroes. `None` if they do not fit.
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

    /// Address of the active side; `None` if the IP version is unknown.
    pub fn source_ip(&self) -> Option<IpAddr> {
        self.source.to_ip(self.ip_version)
    }

    /// Address of the passive side; `None` if the IP version is unknown.
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
    /// Displays IPv4 as such. The field alone is ambiguous: `::` and `::1` are taken as IPv6.
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
            Self::Service(id) => write!(f, "service ID {id} is not in a port space of RDMA-CM"),
            Self::Length(found) => write!(
                f,
                "the RDMA-CM IP header has {} bytes, but the private data only {found}",
                IpHeader::LEN
            ),
            Self::Version(found) => write!(f, "RDMA-CM IP header with unknown version {found}"),
            Self::IpVersion(found) => {
                write!(f, "RDMA-CM IP header with unknown IP version {found}")
            }
        }
    }
}

impl core::error::Error for NoIpHeader {}

#[cfg(test)]
mod tests;
