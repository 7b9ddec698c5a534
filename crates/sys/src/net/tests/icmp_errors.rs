//! ICMP errors for sent packets.

use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};

use super::{TEST_TIMEOUT, at, namespace, no_forks, pattern, plain, send, wait};
use crate::{Interest, Options, Poller, ROCE_PORT, Socket, clock, route};

/// Waits for an ICMP error, and takes it.
fn wait_for_icmp_error(socket: &Socket) -> (std::net::SocketAddr, Vec<u8>) {
    let mut poller = Poller::new();
    let index = poller.watch(socket, Interest::Nothing);
    poller.wait(Some(clock::now() + TEST_TIMEOUT)).unwrap();
    assert!(poller.readiness(index).broken, "no ICMP error arrived");
    let mut quoted = [0; 64];
    let (destination, length) = socket.take_port_unreachable(&mut quoted).unwrap();
    (destination, quoted[..length].to_vec())
}

fn is_broken(socket: &Socket) -> bool {
    let mut poller = Poller::new();
    let index = poller.watch(socket, Interest::Nothing);
    poller.wait(Some(0)).unwrap();
    poller.readiness(index).broken
}

#[test]
fn port_unreachable_is_reported_with_the_start_of_the_packet() {
    for (local, closed) in [("127.9.7.1:50000", "127.9.7.2:9"), ("[::1]:50000", "[::1]:9")] {
        for gso in [true, false] {
            let options = Options { gso, ..Options::default() };
            let socket = Socket::source(at(local), &options).unwrap();
            let data = pattern(300);
            send(&socket, at(closed), &data);
            let (destination, quoted) = wait_for_icmp_error(&socket);
            assert_eq!(destination, at(closed));
            assert_eq!(quoted, data[..64]);
            assert_eq!(socket.take_port_unreachable(&mut [0; 64]), None);
            assert!(!is_broken(&socket), "a wait would return immediately");
            // Segments of one batch.
            let pieces = [IoSlice::new(&data)];
            assert_eq!(socket.send(&plain(at(closed), 100, &pieces)).unwrap(), 3);
            assert_eq!(wait_for_icmp_error(&socket), (at(closed), data[..64].to_vec()));
        }
    }
}

#[test]
fn a_queued_icmp_error_does_not_block_other_packets() {
    let _quiet = no_forks();
    let socket = Socket::source(at("127.9.7.3:50000"), &Options::default()).unwrap();
    let other = UdpSocket::bind("127.9.7.4:0").unwrap();
    for round in 0..10_u8 {
        send(&socket, at("127.9.7.4:9"), b"not received");
        send(&socket, other.local_addr().unwrap(), &[round]);
        wait(&other);
        let mut byte = [0];
        assert_eq!(other.recv(&mut byte).unwrap(), 1);
        assert_eq!(byte, [round]);
    }
    assert!(socket.take_port_unreachable(&mut []).is_some_and(|(_, length)| length == 0));
}

/// Sends this host an ICMP error of a "router" whose next link has this MTU, about a packet from `local` to `peer`. For IPv6,
/// the kernel computes the checksum.
fn forge_packet_too_big(local: SocketAddr, peer: SocketAddr, mtu: u16) {
    let udp = [&local.port().to_be_bytes()[..], &peer.port().to_be_bytes(), &[5, 0, 0, 0]].concat();
    let (family, protocol, error) = match (local.ip(), peer.ip()) {
        (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) => {
            let ip = [0x45, 0, 5, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
            let quoted = [&ip[..], &from.octets(), &to.octets(), &udp].concat();
            // Destination unreachable, fragmentation needed (RFC 1191).
            let mut error = [&[3, 4, 0, 0, 0, 0][..], &mtu.to_be_bytes(), &quoted].concat();
            let words = error.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let sum = words.sum::<u32>();
            let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
            error[2..4].copy_from_slice(&checksum.to_be_bytes());
            (AddressFamily::INET, ipproto::ICMP, error)
        }
        (std::net::IpAddr::V6(from), std::net::IpAddr::V6(to)) => {
            let ip = [0x60, 0, 0, 0, 5, 0, 17, 64];
            let quoted = [&ip[..], &from.octets(), &to.octets(), &udp].concat();
            // Packet too big (RFC 4443 section 3.2).
            let error = [&[2, 0, 0, 0, 0, 0][..], &mtu.to_be_bytes(), &quoted].concat();
            (AddressFamily::INET6, ipproto::ICMPV6, error)
        }
        _ => unreachable!("both have one family"),
    };
    let raw = socket(family, SocketType::RAW, Some(protocol)).unwrap();
    let to = SocketAddr::new(local.ip(), 0);
    assert_eq!(sendto(&raw, &error, SendFlags::empty(), &to).unwrap(), error.len());
}

/// A connection has one path MTU, so a smaller one would end it, and ICMP is not authenticated.
#[test]
fn a_forged_path_mtu_does_not_stop_packets() {
    namespace::run("a_forged_path_mtu_does_not_stop_packets", || {
        for (local, peer, size) in
            [("10.9.0.1:50000", "10.9.0.2", 1472), ("[fd09::1]:50000", "fd09::2", 1452)]
        {
            let peer = SocketAddr::new(peer.parse().unwrap(), ROCE_PORT);
            for gso in [true, false] {
                let options = Options { gso, ..Options::default() };
                let socket = Socket::source(at(local), &options).unwrap();
                let data = pattern(3 * size);
                let pieces = [IoSlice::new(&data)];
                assert_eq!(socket.send(&plain(peer, size, &pieces)).unwrap(), 3);
                forge_packet_too_big(socket.local(), peer, 1300);
                assert_eq!(route::path_mtu(peer).unwrap(), 1300, "the kernel believes it");
                assert_eq!(socket.send(&plain(peer, size, &pieces)).unwrap(), 3);
            }
        }
    });
}
