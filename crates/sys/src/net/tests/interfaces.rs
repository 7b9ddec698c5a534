//! Interfaces, addresses, routes and multicast groups.

use std::net::IpAddr;

use ferroce_wire::opcode::{Opcode, Transport};

use super::namespace::{self, FAR, NEAR, ip};
use super::{at, is_first, is_quiet, open, receive, send};
use crate::net::interface::{self, Address};
use crate::net::route::{self, ROCE_HEADERS};
use crate::{Error, Options, Socket};

#[test]
fn finds_the_loopback_interface() {
    let interfaces = interface::interfaces().unwrap();
    let loopback = interfaces.iter().find(|interface| interface.loopback).unwrap();
    assert!(loopback.up && loopback.index > 0 && loopback.mtu >= 1280);
    assert_eq!(interface::index_of(&loopback.name), Some(loopback.index));
    let own = Address { ip: IpAddr::from([127, 0, 0, 1]), prefix: 8, scope: 0 };
    assert!(loopback.addresses.contains(&own), "{loopback:?}");
    assert_eq!(own.with_port(4791), at("127.0.0.1:4791"));
    assert_eq!(interface::interface_of(at("127.9.7.1:0")).unwrap(), *loopback);
    let error = interface::interface_of(at("198.51.100.1:0")).unwrap_err();
    assert!(matches!(error, Error::AddressNotLocal { .. }), "{error}");
    assert_eq!(route::source_for(at("127.9.7.1:0")).unwrap(), at("127.0.0.1:0"));
}

#[test]
fn describes_interfaces() {
    namespace::run("describes_interfaces", || {
        assert!(ip("link set near mtu 4200"));
        assert!(ip("address add 10.9.0.9/32 dev near label near:1"));
        assert!(ip("address add fe80::9/64 dev near nodad"));
        namespace::wait_for_local_route("fe80::9");
        let near = interface::interface_of(at("10.9.0.1:0")).unwrap();
        assert_eq!((near.name.as_str(), near.mtu), (NEAR, 4200));
        assert_eq!(near.mac, Some([2, 0, 0, 0, 0, 1]));
        assert!(near.up && near.running && near.multicast && !near.loopback);
        assert!(near.has("10.9.0.9".parse().unwrap()) && near.has("fd09::1".parse().unwrap()));
        assert!(!near.has("10.9.0.2".parse().unwrap()));
        let link_local =
            near.addresses.iter().find(|own| own.ip == "fe80::9".parse::<IpAddr>().unwrap());
        assert_eq!(link_local.unwrap().scope, near.index);
        assert_eq!((near.roce_mtu(false), near.roce_mtu(true)), (Some(4096), Some(4096)));
        let interfaces = interface::interfaces().unwrap();
        assert_eq!(
            interfaces.iter().filter(|interface| interface.name.starts_with("near")).count(),
            1
        );
        let far = interfaces.iter().find(|interface| interface.name == FAR).unwrap();
        assert!(far.addresses.iter().all(|own| own.scope == far.index));
        assert_eq!(route::source_for(at("10.9.0.2:0")).unwrap(), at("10.9.0.1:0"));
        // A socket on a link-local address with its scope.
        let scoped = link_local.unwrap().with_port(0);
        let (first, second) = (
            Socket::open(scoped, &Options::default()).unwrap(),
            Socket::open(scoped, &Options::default()).unwrap(),
        );
        send(&first, second.local(), b"link-local");
        let (info, packet) = receive(&second, 1).remove(0);
        assert_eq!((info.source, packet.as_slice()), (first.local(), &b"link-local"[..]));
    });
}

#[test]
fn the_roce_mtu_leaves_space_for_all_headers() {
    let cases =
        [(1500, 1024), (1400, 1024), (9000, 4096), (65_536, 4096), (2200, 2048), (576, 256)];
    for (mtu, roce) in cases {
        assert_eq!(route::roce_mtu(mtu, false), Some(roce));
        assert_eq!(route::roce_mtu(mtu, true), Some(roce));
    }
    let exactly = 4096 + ROCE_HEADERS as u32;
    assert_eq!(
        [27, 28, 47, 48].map(|ip| route::roce_mtu(exactly + ip, ip > 40)),
        [Some(2048), Some(4096), Some(2048), Some(4096)]
    );
    assert_eq!((route::roce_mtu(0, false), route::roce_mtu(300, true)), (None, None));
}

#[test]
fn no_packet_with_payload_has_larger_headers() {
    // Those of reliable datagrams are larger, but no device implements them.
    let with_payload = Opcode::all()
        .filter_map(Opcode::info)
        .filter(|info| info.payload && info.transport != Transport::ReliableDatagram);
    let largest = with_payload.map(|info| info.extensions_len).max();
    assert_eq!(largest, Some(ROCE_HEADERS - 12 - 4));
}

fn check_group_delivery(group: &str, local: &str, interface: u32) {
    let options = Options::default();
    let members = [(); 2].map(|()| Socket::group(at(group), interface, &options).unwrap());
    let sender = Socket::source(at(local), &options).unwrap();
    sender.multicast_out(interface, true).unwrap();
    send(&sender, at(group), b"to all");
    for member in &members {
        let (info, packet) = receive(member, 1).remove(0);
        assert_eq!((info.source, packet.as_slice()), (sender.local(), &b"to all"[..]));
        assert_eq!((info.destination, info.interface), (at(group).ip(), Some(interface)));
    }
    members[0].leave(at(group).ip(), interface).unwrap();
    send(&sender, at(group), b"to one");
    assert_eq!(receive(&members[1], 1)[0].1, b"to one");
    assert!(is_quiet(&members[0]));
    sender.multicast_out(interface, false).unwrap();
    send(&sender, at(group), b"to none of us");
    assert!(is_quiet(&members[1]));
}

#[test]
fn joins_and_leaves_groups() {
    namespace::run("joins_and_leaves_groups", || {
        let near = interface::index_of(NEAR).unwrap();
        check_group_delivery("239.9.0.1:4791", "10.9.0.1:50000", near);
        check_group_delivery("[ff05::9]:4791", "[fd09::1]:50000", near);
    });
}

/// Kernels with early demultiplexing (Linux 6.18) do not distinguish sockets that share a port: a member on one interface
/// received the packets of another, and the member there nothing.
#[test]
fn group_packets_stay_on_their_interface() {
    const TEST: &str = "group_packets_stay_on_their_interface";
    namespace::run(TEST, || {
        // The sender is local, and its packets arrive from the veth pair.
        let set = ["accept_local", "rp_filter"].iter().zip(["1", "0"]).all(|(name, value)| {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{NEAR}/{name}"), value).is_ok()
        });
        if !set || !namespace::ip(&format!("address add 10.9.0.2/24 dev {FAR}")) {
            return super::skipped(TEST, "the kernel cannot be configured to accept local packets");
        }
        let options = Options::default();
        let group = at("239.9.0.1:4791");
        let [lo, near, far] = ["lo", NEAR, FAR].map(|name| interface::index_of(name).unwrap());
        let members = [lo, near].map(|index| Socket::group(group, index, &options).unwrap());
        // A kernel that selects a socket does so by the ports.
        for port in 50_000..50_016 {
            let local = at(&format!("10.9.0.2:{port}"));
            let sender = Socket::source(local, &options).unwrap();
            sender.multicast_out(far, false).unwrap();
            send(&sender, group, b"by the cable");
            assert!(!is_first(&members[0], &members[1]), "from {port}");
            assert_eq!(receive(&members[1], 1)[0].1, b"by the cable");
        }
    });
}

#[test]
fn a_group_must_be_a_multicast_address() {
    let options = Options::default();
    assert!(matches!(Socket::group(at("127.9.7.2:4791"), 1, &options), Err(Error::Invalid(_))));
    let socket = open("127.9.7.2");
    assert!(socket.join("127.9.7.2".parse().unwrap(), 1).is_err());
}
