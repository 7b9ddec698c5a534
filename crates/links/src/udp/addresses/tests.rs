use std::net::Ipv4Addr;

use ferroce_sys::Options;

use super::*;
use crate::udp::testing::{IPV6, LOOPBACK, OTHER, open};

#[test]
fn an_address_is_found_by_family_and_belongs_to_this_host() {
    let addresses = open(&[LOOPBACK, OTHER]);
    assert_eq!((addresses.loopback(true), addresses.loopback(false)), (Some(0), None));
    let remote = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    assert!(addresses.has_address(OTHER.ip()) && addresses.is_here(OTHER.ip()));
    // Every address of the loopback interface is of this host, whether the device has it or not.
    assert!(!addresses.has_address(IPV6) && addresses.is_here(IPV6));
    assert!(!addresses.has_address(remote) && !addresses.is_here(remote));
    // From the address itself, since it is one of the loopback interface.
    assert_eq!(addresses.toward(1, LOOPBACK.ip()), 1);
    assert_eq!(addresses.toward(1, remote), 1);
    // An index that is no address, as of an interface without one.
    assert_eq!(addresses.toward(7, LOOPBACK.ip()), 0);
    assert_eq!(addresses.toward(7, IPV6), 7, "the device has no loopback address of IPv6");
}

#[test]
fn a_route_gets_the_socket_of_its_flow_label_once() {
    let addresses = open(&[LOOPBACK]);
    let route = Route { flow_label: 0x1234, traffic_class: 8, ..Route::new(0, OTHER) };
    let queue_pairs = (Qpn(0x11), Qpn(0x12));
    let mut opened = Vec::new();
    let mut with_sender = || {
        addresses.with_sender(route, queue_pairs, |address| {
            opened.push(address);
            Socket::source(address, &Options::default()).ok()
        })
    };
    let (first, again) = (with_sender(), with_sender());
    assert_eq!(first, again);
    assert_eq!(first, Route { sender: 1, flow_label: 0, ..route });
    let port = source_port(0x1234, queue_pairs.0, queue_pairs.1);
    assert_eq!(opened, [SocketAddr::new(LOOPBACK.ip(), port)]);
    let source = SocketAddr::new(LOOPBACK.ip(), port);
    assert_eq!(addresses.headers(&first), Headers { source, destination: OTHER });
    assert_eq!(addresses.senders(), 2);
    let routes: Vec<_> = addresses.send_sockets().map(|(route, _)| route).collect();
    assert_eq!(routes, [0, 1].map(|sender| Route { sender, ..Route::new(0, LOOPBACK) }));
}
