//! Hosts of a filter: an address, or a range of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IP address or GID, or all addresses with a prefix: `192.0.2.1`, `192.0.2.0/24`, `fe80::1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    address: IpAddr,
    prefix: u8,
}

/// Text that is not a host of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError {
    /// Not an IP address.
    Address,
    /// The prefix length is not a number, or longer than an address.
    Prefix {
        /// The number of bits of an address of this family.
        bits: u8,
    },
}

impl Host {
    /// Whether it is, or contains, this address. An IPv4 address equals its IPv4-mapped IPv6 form, which RoCEv1's GIDs have.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                let shift = u32::from(32 - self.prefix);
                u32::from(ours).checked_shr(shift) == u32::from(other).checked_shr(shift)
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                let shift = u32::from(128 - self.prefix);
                u128::from(ours).checked_shr(shift) == u128::from(other).checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { address, prefix: bits(address) }
    }
}

impl From<Ipv4Addr> for Host {
    fn from(address: Ipv4Addr) -> Self {
        IpAddr::from(address).into()
    }
}

impl From<Ipv6Addr> for Host {
    fn from(address: Ipv6Addr) -> Self {
        IpAddr::from(address).into()
    }
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| HostError::Address)?;
        let Some(prefix) = prefix else { return Ok(address.into()) };
        let bits = bits(address);
        match prefix.parse() {
            Ok(prefix) if prefix <= bits => Ok(Self { address, prefix }),
            _ => Err(HostError::Prefix { bits }),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix == bits(self.address) {
            true => write!(f, "{}", self.address),
            false => write!(f, "{}/{}", self.address, self.prefix),
        }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str(
                "not an IP address: expected one such as 192.0.2.1, fe80::1 or 192.0.2.0/24",
            ),
            Self::Prefix { bits } => {
                write!(f, "the number after / must be a prefix length from 0 to {bits}")
            }
        }
    }
}

impl std::error::Error for HostError {}
