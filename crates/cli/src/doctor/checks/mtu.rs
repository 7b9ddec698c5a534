//! The MTU of each device, and the path MTU of RoCE that follows from it.

use ferroce_sys::route::roce_mtu;

use crate::doctor::finding::Finding;
use crate::doctor::system::System;

const ID: &str = "mtu.path";

/// The MTU that carries the largest path MTU over IPv6: 4096 and the headers.
const LARGE: u32 = 4200;

pub(super) fn check(system: &System) -> Vec<Finding> {
    let of = |(name, interface): &(String, String)| {
        let facts = system.interface(interface)?;
        let ipv6 = facts.addresses.iter().any(|address| address.is_ipv6());
        let (mtu, path) = (facts.mtu, roce_mtu(facts.mtu, ipv6).or(roce_mtu(facts.mtu, false)));
        let finding = match path {
            None => Finding::problem(ID, format!("MTU {mtu} is too small for RoCE, whose smallest path MTU is 256"))
                .fix(format!("`ip link set {interface} mtu 1500`, as root")),
            Some(4096) => Finding::ok(ID, format!("MTU {mtu} gives the RoCE path MTU 4096, the largest")),
            Some(path) => Finding::note(
                ID,
                format!("MTU {mtu} gives the RoCE path MTU {path}: a message needs {} times the packets of path MTU 4096", 4096 / path),
            )
            .fix(format!("for bulk transfers, if all hosts and switches allow it: `ip link set {interface} mtu {LARGE}`, as root, on both hosts")),
        };
        Some(finding.about(name.as_str()))
    };
    system.devices.iter().filter_map(of).collect()
}
