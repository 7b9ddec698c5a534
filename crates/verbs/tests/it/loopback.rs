//! Ethernet devices and loopback addresses: which devices are listed, and that they carry 127.0.0.1 and ::1.

use std::net::IpAddr;

use crate::interfaces::{self, UNUSED_ADDRESS};
use crate::support::*;
use ferroce::*;

const LENGTH: usize = 100_000;

fn open(name: &str) -> Context {
    Context::open(&Device::named(name).unwrap(), &options()).unwrap()
}

fn gid(ip: &str) -> Gid {
    Gid::from_ip(ip.parse::<IpAddr>().unwrap())
}

/// Brings a QP to RTS with the peer's address and a path MTU, and returns its path MTU.
fn bring_up_toward(
    side: &Side,
    index: u8,
    destination: &str,
    peer: Qpn,
    mtu: usize,
) -> Option<usize> {
    let mut attributes = attributes(&side.context, index, peer, mtu);
    attributes.path =
        attributes.path.map(|path| AddressVector { destination: gid(destination), ..path });
    bring_up(&side.queue_pair, &attributes);
    side.queue_pair.attributes().path_mtu.and_then(|mtu| mtu.bytes())
}

/// WRITEs and READs between two QPs, each with its GID index and the address of the other.
fn write_and_read(one: (&Context, u8, &str), other: (&Context, u8, &str)) {
    let [a, b] =
        [one.0, other.0].map(|context| side(context, ServiceType::ReliableConnection, 2 * LENGTH));
    assert_eq!(
        bring_up_toward(&a, one.1, one.2, b.queue_pair.number(), 4096),
        Some(4096),
        "{}",
        one.2
    );
    assert_eq!(bring_up_toward(&b, other.1, other.2, a.queue_pair.number(), 4096), Some(4096));
    let bytes = pattern(7, LENGTH);
    for (from, to) in [(&a, &b), (&b, &a)] {
        from.region.write(0, &bytes).unwrap();
        let target = |offset| to.region.remote(offset);
        from.post(1, Operation::Write { remote: target(0), immediate: None }, 0, LENGTH);
        from.expect(1);
        assert_eq!(to.bytes(0, LENGTH), bytes);
        from.post(2, Operation::Read { remote: target(0) }, LENGTH as u64, LENGTH);
        from.expect(2);
        assert_eq!(from.bytes(LENGTH, LENGTH), bytes);
    }
}

#[test]
fn ethernet_devices_are_listed_and_the_loopback_is_not() {
    if !interfaces::make() {
        return;
    }
    let listed: Vec<_> = devices().unwrap().iter().map(|device| device.name().to_owned()).collect();
    assert_eq!(listed, ["ferroce_eth0", "ferroce_eth1"]);
    assert_eq!(Device::named("lo").unwrap().name(), "ferroce_lo");
    // Programs send these to other hosts, so loopback addresses must not be among them.
    let gids = devices().unwrap().iter().flat_map(Device::gids).collect::<Vec<_>>();
    assert!(gids.len() >= 3 && gids.iter().all(|entry| !entry.address.ip().is_loopback()));
}

#[test]
fn loopback_addresses_are_reached_through_an_ethernet_device() {
    if !interfaces::make() {
        return;
    }
    let eth0 = open("eth0");
    let (v4, v6) = (gid_index(&eth0, false).unwrap(), gid_index(&eth0, true).unwrap());
    for address in ["127.0.0.1", "127.0.1.1", "::1"] {
        // For either family of the source, and whether the peer uses the same address or our GID.
        write_and_read((&eth0, v4, address), (&eth0, v4, address));
        write_and_read((&eth0, v6, address), (&eth0, v4, address));
        write_and_read((&eth0, v4, address), (&eth0, v4, "10.9.0.1"));
    }
    write_and_read((&eth0, v4, "10.9.0.1"), (&eth0, v4, "10.9.0.1"));
}

#[test]
fn other_devices_reach_themselves_by_loopback_addresses() {
    if !interfaces::make() {
        return;
    }
    let (eth0, eth1) = (open("eth0"), open("eth1"));
    write_and_read((&eth1, 0, "127.0.0.1"), (&eth1, 0, "127.0.0.1"));
    // Two devices of one host reach each other by the loopback interface.
    write_and_read((&eth0, 0, "10.9.1.1"), (&eth1, 0, "10.9.0.1"));
}

#[test]
fn the_loopback_device_reaches_an_ethernet_device() {
    if !interfaces::make() {
        return;
    }
    let (lo, eth0) = (open("lo"), open("eth0"));
    write_and_read((&lo, 0, "127.0.0.1"), (&eth0, 0, "127.0.0.1"));
}

#[test]
fn the_path_mtu_to_another_host_is_that_of_the_device() {
    if !interfaces::make() {
        return;
    }
    let eth0 = open("eth0");
    let one = side(&eth0, ServiceType::ReliableConnection, 1);
    assert_eq!(bring_up_toward(&one, 0, UNUSED_ADDRESS, Qpn(0x11), 4096), Some(1024));
    let one = side(&eth0, ServiceType::ReliableConnection, 1);
    assert_eq!(bring_up_toward(&one, 0, UNUSED_ADDRESS, Qpn(0x11), 512), Some(512));
}

#[test]
fn loopback_sources_reach_no_other_host() {
    if !interfaces::make() {
        return;
    }
    let lo = open("lo");
    let pd = lo.protection_domain();
    let vector = |destination: &str| AddressVector {
        port: 1,
        source_index: 0,
        destination: gid(destination),
        ..AddressVector::default()
    };
    for (destination, reached) in [(UNUSED_ADDRESS, false), ("10.9.0.1", true), ("127.0.0.1", true)]
    {
        let made = pd.address_handle(&vector(destination));
        assert_eq!(made.is_ok(), reached, "{destination}: {made:?}");
    }
    // Nor by an index beyond the GID table.
    let eth0 = open("eth0");
    let hidden = eth0.device().gids().len() as u8;
    let vector = AddressVector { source_index: hidden, ..vector("127.0.0.1") };
    assert!(eth0.protection_domain().address_handle(&vector).is_err());
}
