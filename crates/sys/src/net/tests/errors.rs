//! Errors and their messages.

use std::io::{self, IoSlice};
use std::net::UdpSocket;

use super::namespace::{self, ip};
use super::{at, no_forks, open, pattern, plain, send};
use crate::{Error, Options, ReceiveBatch, Socket, route};

#[test]
fn a_port_in_use_is_reported_with_the_command_that_shows_its_owner() {
    let _quiet = no_forks();
    let other = UdpSocket::bind("127.9.6.1:4791").unwrap();
    let error = Socket::open(other.local_addr().unwrap(), &Options::default()).unwrap_err();
    assert!(matches!(error, Error::PortTaken { address } if address == at("127.9.6.1:4791")));
    let text = error.to_string();
    assert!(text.contains("port 4791 of 127.9.6.1"), "{text}");
    assert!(text.contains("ss -ulpn 'sport = :4791'"), "{text}");
    drop(other);
    let first = Socket::open(at("127.9.6.1:4791"), &Options::default()).unwrap();
    let exclusive = Options { shared: false, ..Options::default() };
    let error = Socket::open(first.local(), &exclusive).unwrap_err();
    assert!(matches!(error, Error::PortTaken { .. }), "{error}");
    assert!(Socket::open(first.local(), &Options::default()).is_ok());
}

#[test]
fn binding_a_foreign_address_fails() {
    for address in ["198.51.100.7:4791", "[2001:db8::7]:4791"] {
        let error = Socket::open(at(address), &Options::default()).unwrap_err();
        assert!(matches!(error, Error::AddressNotLocal { .. }), "{error}");
        assert!(error.to_string().contains(&at(address).ip().to_string()), "{error}");
    }
}

#[test]
fn source_ports_are_distinct_and_in_the_dynamic_range() {
    let local = at("127.9.6.2:65535");
    let sources = [(); 3].map(|()| Socket::source(local, &Options::default()).unwrap());
    // The first port follows the last.
    assert_eq!(sources.each_ref().map(Socket::port), [0xffff, 0xc000, 0xc001]);
    // Packets to a source socket are dropped.
    send(&sources[0], sources[1].local(), b"not read");
    assert_eq!(sources[1].receive(&mut ReceiveBatch::new(1, 10)).unwrap(), 0);
    // A port outside of the range is mapped into it.
    let other = Socket::source(at("127.9.6.2:4791"), &Options::default()).unwrap();
    assert!(other.port() >= 0xc000);
}

#[test]
fn sending_to_a_closed_port_is_not_an_error() {
    let socket = open("127.9.6.3");
    for _ in 0..10 {
        send(&socket, at("127.9.6.3:9"), b"not received");
    }
    assert_eq!(socket.receive(&mut ReceiveBatch::new(1, 10)).unwrap(), 0);
}

#[test]
fn a_packet_that_exceeds_the_path_mtu_is_an_error() {
    namespace::run("a_packet_that_exceeds_the_path_mtu_is_an_error", || {
        let cases =
            [("10.9.0.1:50000", "10.9.0.2:4791", 28), ("[fd09::1]:50000", "[fd09::2]:4791", 48)];
        for (local, destination, headers) in cases {
            let destination = at(destination);
            assert_eq!(route::path_mtu(destination).unwrap(), 1500);
            for gso in [true, false] {
                let options = Options { gso, ..Options::default() };
                let socket = Socket::source(at(local), &options).unwrap();
                let data = pattern(4000);
                let pieces = [IoSlice::new(&data)];
                let fits = 1500 - headers;
                assert_eq!(socket.send(&plain(destination, fits, &pieces)).unwrap(), 3);
                for segment in [fits + 1, 4000] {
                    let error = socket.send(&plain(destination, segment, &pieces)).unwrap_err();
                    let Error::TooLong { length, path_mtu, .. } = error else { panic!("{error}") };
                    assert_eq!((length, path_mtu), (segment, Some(1500)));
                    let text = error.to_string();
                    assert!(text.contains("(1500 bytes with the IP header)"), "{text}");
                }
            }
        }
    });
}

#[test]
fn errors_about_limits_name_the_remedy() {
    let system = |number| Error::system("open a UDP socket", io::Error::from_raw_os_error(number));
    let cases = [
        (system(libc::EMFILE), "ulimit -n"),
        (system(libc::ENOMEM), "net.ipv4.udp_mem"),
        (system(libc::EPERM), "firewall"),
        (system(libc::EBADF), "cannot open a UDP socket: "),
        (Error::open(at("[::1]:1"), io::Error::from_raw_os_error(libc::EAFNOSUPPORT)), "IPv6"),
    ];
    for (error, wanted) in cases {
        let text = error.to_string();
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn a_destination_without_a_route_is_an_error() {
    namespace::run("a_destination_without_a_route_is_an_error", || {
        let socket = Socket::source(at("10.9.0.1:50000"), &Options::default()).unwrap();
        let destination = at("198.51.100.7:4791");
        let pieces = [IoSlice::new(b"x")];
        let error = socket.send(&plain(destination, 1, &pieces)).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains("ip route get 198.51.100.7"), "{error}");
        assert!(matches!(route::source_for(destination), Err(Error::Unreachable { .. })));
        assert!(ip("route add prohibit 198.51.100.0/24"));
        let error = socket.send(&plain(destination, 1, &pieces)).unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{error}");
    });
}
