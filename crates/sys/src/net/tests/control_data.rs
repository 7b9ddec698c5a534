//! Control data of packets: type of service with ECN, hop limit, addresses; and packets without a checksum.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType, ipproto};

use super::{at, is_quiet, open, plain, receive, send, skipped};
use crate::net::address::RawAddress;
use crate::syscall::{check_length, socket};
use crate::{Batch, Options, Socket};

fn marked(ip: &str, sender: &Options) {
    let address = at(&format!("{ip}:0"));
    let (sender, receiver) = (
        Socket::open(address, sender).unwrap(),
        Socket::open(address, &Options::default()).unwrap(),
    );
    let data = [7; 3000];
    let pieces = [IoSlice::new(&data)];
    for tos in [0, 1, 2, 3, 0b1010_0110] {
        for hop_limit in [None, Some(1), Some(255)] {
            let batch = Batch { tos, hop_limit, ..plain(receiver.local(), 1000, &pieces) };
            assert_eq!(sender.send(&batch).unwrap(), 3);
            for (info, _) in receive(&receiver, 3) {
                assert_eq!((info.tos, info.ecn()), (tos, tos & 3));
                assert_eq!(info.hop_limit, hop_limit.or(Some(64)));
                assert_eq!(info.source, sender.local());
                assert_eq!(info.destination, receiver.local().ip());
                assert!(info.interface.is_some());
            }
        }
    }
}

#[test]
fn tos_and_hop_limit_are_sent_and_received() {
    marked("127.9.2.1", &Options::default());
    marked("127.9.2.1", &Options { gso: false, ..Options::default() });
}

#[test]
fn tos_and_hop_limit_are_sent_and_received_over_ipv6() {
    marked("[::1]", &Options::default());
    marked("[::1]", &Options { gso: false, ..Options::default() });
}

#[test]
fn the_destination_is_the_local_address_without_packet_info() {
    for ip in ["127.9.2.2", "[::1]"] {
        let options = Options { packet_info: false, packet_marks: false, ..Options::default() };
        let receiver = Socket::open(at(&format!("{ip}:0")), &options).unwrap();
        assert!(!receiver.features().packet_info && !receiver.features().packet_marks);
        let sender = open(ip.trim_matches(['[', ']']));
        let pieces = [IoSlice::new(&[1, 2, 3])];
        sender.send(&Batch { tos: 3, ..plain(receiver.local(), 3, &pieces) }).unwrap();
        let (info, packet) = receive(&receiver, 1).remove(0);
        assert_eq!(packet, [1, 2, 3]);
        assert_eq!((info.source, info.destination), (sender.local(), receiver.local().ip()));
        assert_eq!((info.tos, info.hop_limit, info.interface), (0, None, None));
    }
}

/// Sends an IPv6 packet without a UDP checksum, as rdma_rxe does. Returns false without the privilege for that.
fn send_without_checksum(to: SocketAddr, payload: &[u8]) -> bool {
    let raw = match socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::UDP)) {
        Ok(raw) => raw,
        Err(error) => {
            skipped("IPv6 without a UDP checksum", &format!("no raw socket: {error}"));
            return false;
        }
    };
    let length = (8 + payload.len()) as u16;
    let mut packet = Vec::new();
    for field in [0xc123, to.port(), length, 0] {
        packet.extend(field.to_be_bytes());
    }
    packet.extend(payload);
    let mut to = to;
    to.set_port(0);
    let (address, room) = RawAddress::new(to);
    // SAFETY: packet and address are locals, of the given length.
    let sent = check_length(unsafe {
        libc::sendto(
            raw.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            (&raw const address).cast(),
            room,
        )
    });
    assert_eq!(sent.unwrap(), packet.len());
    true
}

#[test]
fn ipv6_packets_without_a_checksum_are_received() {
    let receiver = open("::1");
    assert!(receiver.features().zero_checksum);
    if send_without_checksum(receiver.local(), b"as rdma_rxe sends") {
        let (info, packet) = receive(&receiver, 1).remove(0);
        assert_eq!(
            (info.source, packet.as_slice()),
            (at("[::1]:49443"), &b"as rdma_rxe sends"[..])
        );
    }
}

#[test]
fn ipv6_packets_without_a_checksum_are_dropped_if_the_option_is_off() {
    let options = Options { zero_checksum: false, ..Options::default() };
    let receiver = Socket::open(at("[::1]:0"), &options).unwrap();
    assert!(!receiver.features().zero_checksum);
    if send_without_checksum(receiver.local(), b"lost") {
        assert!(is_quiet(&receiver));
        send(&open("::1"), receiver.local(), b"not lost");
        assert_eq!(receive(&receiver, 1)[0].1, b"not lost");
    }
}
