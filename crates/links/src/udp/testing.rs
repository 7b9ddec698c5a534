//! The addresses of a device on the loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferroce_sys::{Options, ROCE_PORT, Slot, Socket};
use ferroce_test_support as _;

use super::{Address, Addresses, Senders, first_port};

/// The loopback address of IPv4 at the RoCEv2 port.
pub(super) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), ROCE_PORT);

/// Another address of the loopback interface, which every host has.
pub(super) const OTHER: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), ROCE_PORT);

/// The loopback address of IPv6.
pub(super) const IPV6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Opens the sockets of these addresses.
pub(super) fn open(addresses: &[SocketAddr]) -> Addresses {
    let options = Options::default();
    let opened = Slot::open_all(addresses, &options).unwrap().into_iter().zip(addresses);
    let list = opened.map(|((slot, receiver), &address)| {
        let senders = Senders::new(Socket::source(first_port(address), &options).unwrap());
        Address { address, receiver, senders, slot }
    });
    Addresses(list.collect())
}
