//! Addresses and devices, and which device programs use first.

use crate::doctor::finding::Finding;
use crate::doctor::system::{Carrier, InterfaceFacts, System};

pub(super) fn check(system: &System) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(error) = &system.device_error {
        let (what, fix) = error.split_once("; ").unwrap_or((error, "see `ferroce devices`"));
        findings.push(Finding::problem("devices.list", what).fix(fix));
        return findings;
    }
    findings.push(list(system));
    findings.extend(first(system));
    findings.extend(selection(system));
    for interface in &system.interfaces {
        findings.extend(state(system, interface));
    }
    findings
}

fn list(system: &System) -> Finding {
    if system.devices.is_empty() {
        let chosen = system.variable("FERROCE_DEVICES");
        return match chosen {
            Some(names) => Finding::problem(
                "devices.list",
                format!("no device: FERROCE_DEVICES={names} names no interface that is up with an address"),
            )
            .fix("unset FERROCE_DEVICES, or name an interface that `ferroce devices` lists without it"),
            None => Finding::problem("devices.list", "no device: no network interface is up with an IP address")
                .fix("bring one up: `ip link set eth0 up` and `ip address add 192.0.2.1/24 dev eth0`, as root"),
        };
    }
    let describe = |(name, interface): &(String, String)| {
        let addresses = system.interface(interface).map(InterfaceFacts::list).unwrap_or_default();
        format!("{name} ({addresses})")
    };
    let devices: Vec<_> = system.devices.iter().map(describe).collect();
    let count = devices.len();
    let word = if count == 1 { "device" } else { "devices" };
    Finding::ok("devices.list", format!("{count} {word}: {}", devices.join(", ")))
}

/// Which device a program uses that takes the first of the list, as most do, and why.
fn first(system: &System) -> Option<Finding> {
    const ID: &str = "devices.first";
    let (name, interface) = system.devices.first()?;
    let facts = system.interface(interface)?;
    let chosen = system.variable("FERROCE_DEVICES").is_some();
    if facts.loopback && !chosen {
        return Some(
            Finding::note(
                ID,
                format!("{name} is the only device: no other interface is up with an address, so only programs on this host can connect"),
            )
            .fix("to reach other hosts, give an Ethernet interface an address: `ip address add 192.0.2.1/24 dev eth0`"),
        );
    }
    let why = match (chosen, facts.carrier, facts.is_routable()) {
        (true, ..) => "FERROCE_DEVICES names it first",
        (_, Carrier::Up, true) => {
            "it is the first interface with a carrier and an address that other hosts can reach"
        }
        (_, Carrier::Up, false) => "no interface with a carrier has more than a link-local address",
        _ => "no interface has a carrier",
    };
    let text = format!("programs that take the first device use {name}: {why}");
    let finding = match (facts.carrier, facts.is_routable() || facts.loopback) {
        (Carrier::Up, true) => Finding::ok(ID, text),
        (Carrier::Up, false) => Finding::warning(ID, text).fix(format!(
            "give {interface} an address: `ip address add 192.0.2.1/24 dev {interface}`"
        )),
        _ => Finding::warning(ID, text).fix(format!(
            "connect the cable of {interface}, or choose another device with `ferroce run --device`"
        )),
    };
    Some(match system.devices.len() {
        1 => finding,
        _ if finding.fix.is_none() => {
            finding.fix("`ferroce run --device NAME -- PROGRAM` chooses another")
        }
        _ => finding,
    })
}

/// Names in FERROCE_DEVICES that are not devices are ignored by the library.
fn selection(system: &System) -> Option<Finding> {
    let chosen = system.variable("FERROCE_DEVICES")?;
    let is_device = |name: &&str| {
        system.devices.iter().any(|(device, interface)| device == name || interface == name)
    };
    let unknown: Vec<_> =
        chosen.split(',').filter(|name| !name.is_empty() && !is_device(name)).collect();
    Some(match unknown.is_empty() {
        true => Finding::note("devices.selected", format!("FERROCE_DEVICES={chosen} limits programs to these devices")),
        false => Finding::warning(
            "devices.selected",
            format!("FERROCE_DEVICES names {}, which is not a device here and is ignored", unknown.join(", ")),
        )
        .fix("correct or unset FERROCE_DEVICES; `env -u FERROCE_DEVICES ferroce devices` lists the names"),
    })
}

/// Why an interface is not a device, or not a usable one.
fn state(system: &System, interface: &InterfaceFacts) -> Option<Finding> {
    let name = &interface.name;
    let listed = system.devices.iter().any(|(_, own)| own == name);
    if interface.loopback {
        return None;
    }
    let finding = match (interface.carrier, interface.addresses.is_empty()) {
        (Carrier::Down, _) => {
            Finding::note("devices.down", format!("{name} is down, so it is not a device"))
                .fix(format!("`ip link set {name} up`, as root"))
        }
        (_, true) => Finding::note(
            "devices.address",
            format!("{name} has no IP address, so it is not a device"),
        )
        .fix(format!("`ip address add 192.0.2.1/24 dev {name}`, as root")),
        (Carrier::Missing, false) if listed => Finding::warning(
            "devices.carrier",
            format!("{name} has no carrier: packets do not leave it"),
        )
        .fix("check the cable, the switch port, or the peer of the virtual interface"),
        _ => return None,
    };
    Some(finding.about(name.as_str()))
}
