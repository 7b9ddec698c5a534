//! ICMP errors for sent packets.

use std::io::IoSlice;
use std::net::UdpSocket;

use super::{TEST_TIMEOUT, at, no_forks, pattern, plain, send, wait};
use crate::{Interest, Options, Poller, Socket, clock};

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
