//! Network interfaces.

use std::net::IpAddr;

/// Whether packets can leave an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum Carrier {
    Down,
    /// Up, without a carrier.
    Missing,
    Up,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct InterfaceFacts {
    pub(in crate::doctor) name: String,
    pub(in crate::doctor) carrier: Carrier,
    pub(in crate::doctor) loopback: bool,
    pub(in crate::doctor) mtu: u32,
    pub(in crate::doctor) addresses: Vec<IpAddr>,
}

impl InterfaceFacts {
    /// Whether another host can reach one of its addresses without naming an interface.
    pub(in crate::doctor) fn is_routable(&self) -> bool {
        let link_local = |address: &IpAddr| match address {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
        };
        !self.loopback && self.addresses.iter().any(|address| !link_local(address))
    }

    /// The addresses in one line.
    pub(in crate::doctor) fn list(&self) -> String {
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        addresses.join(", ")
    }
}

pub(super) fn interfaces() -> Vec<InterfaceFacts> {
    let found = ferroce_sys::interface::interfaces().unwrap_or_default();
    found
        .into_iter()
        .map(|interface| InterfaceFacts {
            carrier: match (interface.up, interface.running) {
                (false, _) => Carrier::Down,
                (true, false) => Carrier::Missing,
                (true, true) => Carrier::Up,
            },
            loopback: interface.loopback,
            mtu: interface.mtu,
            addresses: interface.addresses.iter().map(|address| address.ip).collect(),
            name: interface.name,
        })
        .collect()
}
