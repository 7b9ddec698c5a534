//! Ethernet and IP addresses, and GIDs.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{Field, Show};

/// Defines an address of `N` bytes as a header field.
macro_rules! addresses {
    ($( $(#[$meta:meta])+ pub struct $name:ident([u8; $len:literal]); )+) => {$(
        $(#[$meta])+
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub [u8; $len]);

        impl Field for $name {
            #[inline(always)]
            fn load(bytes: &[u8], bit: usize, _width: usize) -> Self {
                let mut address = [0; $len];
                address.copy_from_slice(&bytes[bit / 8..bit / 8 + $len]);
                Self(address)
            }

            #[inline(always)]
            fn store(&self, bytes: &mut [u8], bit: usize, _width: usize) {
                bytes[bit / 8..bit / 8 + $len].copy_from_slice(&self.0);
            }
        }

        impl Show for $name {
            fn value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }

            fn meaning(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.kind())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )+};
}

addresses! {
    /// An Ethernet address.
    pub struct Mac([u8; 6]);
    /// An IPv4 address.
    pub struct Ip4([u8; 4]);
    /// Global identifier (GID): the address in a GRH; over RoCEv2 an IPv6 address or an IPv4-mapped one (IBA A17.4.2).
    pub struct Gid([u8; 16]);
}

impl Mac {
    fn kind(&self) -> &'static str {
        match self.0 {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => "broadcast",
            [first, ..] if first & 1 == 1 => "multicast",
            [first, ..] if first & 2 == 2 => "locally administered",
            _ => "",
        }
    }
}

impl Ip4 {
    fn kind(&self) -> &'static str {
        let address = Ipv4Addr::from(self.0);
        if address.is_multicast() {
            "multicast"
        } else if address.is_loopback() {
            "loopback"
        } else {
            ""
        }
    }
}

impl Gid {
    /// The GID of an IP address; IPv4 is mapped to `::ffff:a.b.c.d` (IBA A17.4.2).
    pub fn from_ip(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => Self(address.octets()),
        }
    }

    /// The IP address of this GID.
    pub fn to_ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }

    fn kind(&self) -> &'static str {
        let address = Ipv6Addr::from(self.0);
        if address.to_ipv4_mapped().is_some() {
            "IPv4, mapped"
        } else if address.is_multicast() {
            "multicast"
        } else if address.is_loopback() {
            "loopback"
        } else if address.segments()[0] & 0xffc0 == 0xfe80 {
            "link-local"
        } else {
            ""
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Display for Ip4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv4Addr::from(self.0), f)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}
