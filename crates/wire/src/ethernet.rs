//! Ethernet II and VLAN tags.

use crate::address::Mac;
use crate::field::header;
use crate::number::numbers;

header! {
    /// Ethernet II header.
    pub struct Ethernet("Ethernet", 14) {
        /// Destination address.
        destination: Mac = 48,
        /// Source address.
        source: Mac = 48,
        /// EtherType of the payload.
        ethertype: EtherType = 16,
    }

    /// VLAN tag after EtherType 0x8100 or 0x88a8 (IEEE 802.1Q 9.6).
    pub struct Vlan("VLAN", 4) {
        /// Priority, as used by priority flow control.
        priority: u8 = 3,
        /// Drop eligible indicator.
        drop_eligible: bool = 1,
        /// VLAN identifier.
        identifier: u16 = 12,
        /// EtherType of the payload.
        ethertype: EtherType = 16,
    }
}

numbers! {
    /// Type of an Ethernet frame's payload.
    pub struct EtherType(u16), 6, |kind| match *kind {
        EtherType::IPV4 => "IPv4",
        EtherType::IPV6 => "IPv6",
        EtherType::VLAN => "VLAN tag",
        EtherType::SERVICE_VLAN => "service VLAN tag",
        EtherType::ROCE_V1 => "RoCE v1",
        EtherType(0x0806) => "ARP",
        EtherType(0x88cc) => "LLDP",
        EtherType(0x8808) => "Ethernet flow control",
        _ => "",
    };
}

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// A customer VLAN tag.
    pub const VLAN: Self = Self(0x8100);
    /// A service VLAN tag.
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// RoCE v1 (IBA A16): a GRH follows.
    pub const ROCE_V1: Self = Self(0x8915);

    /// Whether a VLAN tag follows.
    pub const fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::SERVICE_VLAN)
    }
}
