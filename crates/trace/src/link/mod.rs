//! Link layers: from the bytes of a record to the packet they carry.
//!
//! The [`LinkType`] of a capture determines the header of each record. This module parses and strips
//! the headers added by captures (cooked, loopback, ERF), down to the EtherType. Ethernet, IP and
//! InfiniBand belong to the `wire` crate.
//!
//! [`network`] runs for every packet and does not allocate. [`header`] describes the header field by
//! field, for packets shown in full.

mod cooked;
mod erf;
mod loopback;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

/// Link-layer type of an interface, as registered in draft-ietf-opsawg-pcaplinktype.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(alias = "LINKTYPE")]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: an address family in the byte order of the capturing machine, then IP.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const ETHERNET: LinkType = LinkType(1);
    /// An IPv4 or IPv6 packet, as some BSDs number it.
    pub const RAW_BSD: LinkType = LinkType(12);
    /// An IPv4 or IPv6 packet, as OpenBSD numbers it.
    pub const RAW_OPENBSD: LinkType = LinkType(14);
    /// An IPv4 or IPv6 packet.
    pub const RAW: LinkType = LinkType(101);
    /// OpenBSD loopback: an address family in network byte order, then IP.
    pub const LOOP: LinkType = LinkType(108);
    /// Linux cooked capture, version 1.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// Endace's extensible record format: Ethernet, InfiniBand and more.
    pub const ERF: LinkType = LinkType(197);
    /// An IPv4 packet.
    pub const IPV4: LinkType = LinkType(228);
    /// An IPv6 packet.
    pub const IPV6: LinkType = LinkType(229);
    /// An InfiniBand packet from its Local Routing Header on.
    pub const INFINIBAND: LinkType = LinkType(247);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: LinkType = LinkType(276);

    /// The registered name, if supported by this module.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            LinkType::NULL => "NULL",
            LinkType::ETHERNET => "ETHERNET",
            LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => "RAW",
            LinkType::LOOP => "LOOP",
            LinkType::LINUX_SLL => "LINUX_SLL",
            LinkType::ERF => "ERF",
            LinkType::IPV4 => "IPV4",
            LinkType::IPV6 => "IPV6",
            LinkType::INFINIBAND => "INFINIBAND",
            LinkType::LINUX_SLL2 => "LINUX_SLL2",
            _ => return None,
        })
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkType({self})")
    }
}

/// The EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// The EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Content of a record after its link header. `offset` is the position of `data` in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried<'a> {
    /// An Ethernet frame from the destination address on. It may end with a frame check sequence,
    /// usually in ERF.
    Ethernet {
        /// Offset in the record.
        offset: usize,
        /// The frame.
        data: &'a [u8],
    },
    /// The content after an EtherType: an IP packet, a VLAN tag, a RoCE v1 packet.
    Network {
        /// The EtherType in the link header, or the equivalent one.
        ethertype: u16,
        /// Offset in the record.
        offset: usize,
        /// The content.
        data: &'a [u8],
    },
    /// An InfiniBand packet from its Local Routing Header on. It ends according to the length in that
    /// header; a variant CRC and further bytes may follow.
    Infiniband {
        /// Offset in the record.
        offset: usize,
        /// The packet.
        data: &'a [u8],
    },
    /// An InfiniBand link packet (flow control), without routing header and transport.
    InfinibandLink {
        /// Offset in the record.
        offset: usize,
        /// The packet.
        data: &'a [u8],
    },
}

impl<'a> Carried<'a> {
    /// Offset in the record.
    pub fn offset(&self) -> usize {
        match *self {
            Carried::Ethernet { offset, .. }
            | Carried::Network { offset, .. }
            | Carried::Infiniband { offset, .. }
            | Carried::InfinibandLink { offset, .. } => offset,
        }
    }

    /// Its bytes.
    pub fn data(&self) -> &'a [u8] {
        match *self {
            Carried::Ethernet { data, .. }
            | Carried::Network { data, .. }
            | Carried::Infiniband { data, .. }
            | Carried::InfinibandLink { data, .. } => data,
        }
    }
}

/// Strips the link header of a record.
///
/// A truncated record is not an error as long as its link header is complete.
pub fn network(link: LinkType, data: &[u8]) -> Result<Carried<'_>, LinkError> {
    match link {
        LinkType::ETHERNET => Ok(Carried::Ethernet { offset: 0, data }),
        LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => raw_ip(data),
        LinkType::IPV4 => Ok(Carried::Network { ethertype: ETHERTYPE_IPV4, offset: 0, data }),
        LinkType::IPV6 => Ok(Carried::Network { ethertype: ETHERTYPE_IPV6, offset: 0, data }),
        LinkType::INFINIBAND => Ok(Carried::Infiniband { offset: 0, data }),
        LinkType::NULL => loopback::null(data),
        LinkType::LOOP => loopback::network_order(data),
        LinkType::LINUX_SLL => cooked::version_1(data),
        LinkType::LINUX_SLL2 => cooked::version_2(data),
        LinkType::ERF => erf::carried(data),
        link => Err(LinkError::Unsupported(link)),
    }
}

/// Describes the link header of a record field by field. `None` for Ethernet, raw IP and InfiniBand,
/// whose headers are parsed by the `wire` crate.
pub fn header(link: LinkType, data: &[u8]) -> Result<Option<LinkHeader>, LinkError> {
    match link {
        LinkType::NULL => loopback::null_header(data).map(Some),
        LinkType::LOOP => loopback::network_order_header(data).map(Some),
        LinkType::LINUX_SLL => cooked::version_1_header(data).map(Some),
        LinkType::LINUX_SLL2 => cooked::version_2_header(data).map(Some),
        LinkType::ERF => erf::header(data).map(Some),
        link if link.name().is_some() => Ok(None),
        link => Err(LinkError::Unsupported(link)),
    }
}

/// Description of a link header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkHeader {
    /// Its name.
    pub name: &'static str,
    /// Its fields, in order.
    pub fields: Vec<LinkField>,
}

/// A field of a link header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkField {
    /// Its name.
    pub name: &'static str,
    /// Its byte range in the record.
    pub range: Range<usize>,
    /// Its value.
    pub value: String,
    /// Meaning of the value; may be empty.
    pub meaning: String,
}

impl LinkField {
    fn new(
        name: &'static str,
        range: Range<usize>,
        value: impl fmt::Display,
        meaning: impl Into<String>,
    ) -> LinkField {
        LinkField { name, range, value: value.to_string(), meaning: meaning.into() }
    }
}

/// A link header that cannot be read or is not supported. Offsets count from the start of the
/// record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// The link type is not supported.
    Unsupported(LinkType),
    /// The record ends within a header.
    Truncated {
        /// The header.
        inside: &'static str,
        /// Offset of the header.
        offset: usize,
        /// Length of the header.
        needed: usize,
        /// Bytes available.
        available: usize,
    },
    /// A length is less than the headers it includes.
    InvalidLength {
        /// The structure with this length.
        of: &'static str,
        /// Offset of the length field.
        offset: usize,
        /// The length.
        length: usize,
        /// The minimum.
        minimum: usize,
    },
    /// A raw IP packet is of neither version 4 nor version 6.
    NotIp {
        /// The version it has.
        version: u8,
    },
    /// A loopback header has an address family other than IP's.
    UnknownFamily {
        /// The family.
        family: u32,
    },
    /// A cooked header from a device type whose packets have no EtherType.
    NoEtherType {
        /// The device type (Linux `ARPHRD_*`).
        hardware: u16,
    },
    /// The ERF type carries neither Ethernet, IP nor InfiniBand.
    UnsupportedErf {
        /// The type.
        erf_type: u8,
    },
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LinkError::Unsupported(link) => write!(f, "link type {link} is not supported"),
            LinkError::Truncated { inside, offset, needed, available } => write!(
                f,
                "the record is cut short: a {inside} of {needed} bytes starts at byte {offset} \
                 of the record and only {available} bytes follow"
            ),
            LinkError::InvalidLength { of, offset, length, minimum } => write!(
                f,
                "the {of} at byte {offset} of the record is {length} bytes, \
                 but must be at least {minimum}"
            ),
            LinkError::NotIp { version } => {
                write!(f, "a raw IP packet has version {version} instead of 4 or 6")
            }
            LinkError::UnknownFamily { family } => {
                write!(f, "the loopback header has address family {family}, which is not IP")
            }
            LinkError::NoEtherType { hardware } => write!(
                f,
                "the packet was captured on a device of kind {hardware} ({}), \
                 which carries no network packets",
                cooked::hardware_name(hardware)
            ),
            LinkError::UnsupportedErf { erf_type } => write!(
                f,
                "the ERF record is of type {erf_type} ({}), \
                 which carries neither Ethernet, IP nor InfiniBand",
                erf::type_name(erf_type)
            ),
        }
    }
}

impl std::error::Error for LinkError {}

/// Returns `N` bytes at `offset`.
fn chunk<'a, const N: usize>(
    data: &'a [u8],
    offset: usize,
    inside: &'static str,
) -> Result<&'a [u8; N], LinkError> {
    let rest = data.get(offset..).unwrap_or(&[]);
    let truncated = LinkError::Truncated { inside, offset, needed: N, available: rest.len() };
    rest.first_chunk::<N>().ok_or(truncated)
}

fn raw_ip(data: &[u8]) -> Result<Carried<'_>, LinkError> {
    let [first] = chunk::<1>(data, 0, "IP header")?;
    let ethertype = match first >> 4 {
        4 => ETHERTYPE_IPV4,
        6 => ETHERTYPE_IPV6,
        version => return Err(LinkError::NotIp { version }),
    };
    Ok(Carried::Network { ethertype, offset: 0, data })
}

/// The name of an EtherType common in RDMA captures; empty for others.
fn ethertype_name(ethertype: u16) -> &'static str {
    match ethertype {
        ETHERTYPE_IPV4 => "IPv4",
        0x0806 => "ARP",
        0x8100 => "VLAN tag (802.1Q)",
        ETHERTYPE_IPV6 => "IPv6",
        0x8808 => "Ethernet flow control",
        0x88a8 => "VLAN tag (802.1ad)",
        0x88cc => "LLDP",
        0x8915 => "RoCE v1",
        0x0000..0x0600 => "no EtherType",
        _ => "",
    }
}
