//! Loopback addresses on a host that has Ethernet: connections to them use its first device.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ferroce::cm::{CmId, ConnectParameters, EventChannel, EventKind, PortSpace, RejectReason};
use ferroce::*;

use crate::ends::*;
use crate::interfaces::{self, UNUSED_ADDRESS};

fn address(ip: &str) -> IpAddr {
    ip.parse().unwrap()
}

/// Returns the device of a cm_id and the path MTU of its QP.
fn device_and_mtu(id: &CmId, end: &End) -> (String, Option<usize>) {
    let device = id.context().unwrap().device().name().to_owned();
    (device, end.queue_pair.attributes().path_mtu.and_then(|mtu| mtu.bytes()))
}

#[test]
fn connections_to_loopback_addresses_use_the_first_device() {
    if !interfaces::make() {
        return;
    }
    let nothing = ConnectParameters::default();
    for ip in ["127.0.0.1", "::1", "10.9.0.1", "fd09::1"] {
        let pair = connected(address(ip), &nothing, &nothing);
        let (client, server) = (&pair.client, &pair.server);
        let expected = ("ferroce_eth0".to_owned(), Some(4096));
        assert_eq!(device_and_mtu(&client.1, &client.2), expected, "{ip}");
        assert_eq!(device_and_mtu(&server.1, &server.2), expected, "{ip}");
        // An index that the program may use.
        let gids = client.1.context().unwrap().device().gids();
        let index = usize::from(client.1.source_index().unwrap());
        assert_eq!(gids[index].address.is_ipv4(), address(ip).is_ipv4());
        data_both_ways(&client.2, &server.2);
    }
}

/// Connects a resolved cm_id to a listener, and transfers data both ways. The connection lasts as long as its ends.
fn connect(
    client: &CmId,
    here: &EventChannel,
    listener: &CmId,
    there: &EventChannel,
) -> (CmId, [End; 2]) {
    let end = equip(client);
    client.connect(&ConnectParameters::default()).unwrap();
    let server = request(there, listener).id;
    let other = equip(&server);
    server.accept(&ConnectParameters::default()).unwrap();
    expect!(here, client, EventKind::Established(_));
    expect!(there, server, EventKind::Established(_));
    end.receive(1024, 1024);
    other.receive(1024, 1024);
    data_both_ways(&end, &other);
    (server, [end, other])
}

#[test]
fn a_server_at_the_unspecified_address_is_reached_by_all() {
    if !interfaces::make() {
        return;
    }
    let (here, there) = (channel(), channel());
    let any = "::".parse().unwrap();
    let (listener, bound) = listener(&there, PortSpace::Tcp, any, 0);
    for ip in ["127.0.0.1", "127.0.1.1", "::ffff:127.0.0.1", "::1", "10.9.0.1", "10.9.1.1"] {
        let client = resolved(&here, PortSpace::Tcp, SocketAddr::new(address(ip), bound.port()));
        let (server, _ends) = connect(&client, &here, &listener, &there);
        // A new channel has no old events.
        client.close();
        expect!(there, server, EventKind::Disconnected(_));
        server.close();
    }
}

#[test]
fn a_server_at_a_loopback_address_is_reached_there_only() {
    if !interfaces::make() {
        return;
    }
    let (here, there) = (channel(), channel());
    let (_listener, bound) = listener(&there, PortSpace::Tcp, V4, 0);
    let outside = SocketAddr::new(address("10.9.0.1"), bound.port());
    let client = resolved(&here, PortSpace::Tcp, outside);
    let _end = equip(&client);
    client.connect(&ConnectParameters::default()).unwrap();
    let reason = expect!(here, client, EventKind::Rejected { reason, .. } => reason);
    assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
}

#[test]
fn a_cm_id_of_another_device_connects_to_a_loopback_address() {
    if !interfaces::make() {
        return;
    }
    let (here, there) = (channel(), channel());
    let (listener, bound) = listener(&there, PortSpace::Tcp, V4, 0);
    let client = CmId::new(&here, PortSpace::Tcp).unwrap();
    let source = SocketAddr::new(address("10.9.0.1"), 0);
    client.resolve_address(Some(source), bound, SECOND).unwrap();
    // A source without a port is a preference.
    expect!(here, client, EventKind::AddressResolved);
    client.resolve_route(SECOND).unwrap();
    expect!(here, client, EventKind::RouteResolved);
    connect(&client, &here, &listener, &there);
}

#[test]
fn a_loopback_source_does_not_reach_another_host() {
    if !interfaces::make() {
        return;
    }
    let here = channel();
    let client = CmId::new(&here, PortSpace::Tcp).unwrap();
    client.bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).unwrap();
    client.resolve_address(None, SocketAddr::new(address(UNUSED_ADDRESS), 7174), SECOND).unwrap();
    expect!(here, client, EventKind::AddressError(_));
}

#[test]
fn ud_to_a_loopback_address_has_the_path_mtu_of_the_device() {
    if !interfaces::make() {
        return;
    }
    let (here, there) = (channel(), channel());
    let (listener, bound) = listener(&there, PortSpace::Udp, V4, 0);
    let client = resolved(&here, PortSpace::Udp, bound);
    assert_eq!(client.path_mtu().bytes(), Some(1024));
    let end = equip_with(&client, ServiceType::UnreliableDatagram);
    client.connect(&ConnectParameters::default()).unwrap();
    let server = request(&there, &listener).id;
    let other = equip_with(&server, ServiceType::UnreliableDatagram);
    other.receive(1024, 1024);
    server.accept(&ConnectParameters::default()).unwrap();
    let up = expect!(here, client, EventKind::Established(up) => up);
    datagram(&end, &up.datagram.unwrap(), b"by the loopback");
    other.done();
    // Behind the 40 bytes of the GRH.
    other.holds(1024 + 40, b"by the loopback");
}
