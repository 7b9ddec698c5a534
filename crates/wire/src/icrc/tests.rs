use std::vec::Vec;

use proptest::prelude::*;

use super::Encapsulation::{Ipv4, Ipv6, Native, RoceV1};
use super::{AFTER_LRH_OF_ONES, Encapsulation, Icrc, Malformed, check, verify};

// Packets of rdma_rxe, from the IP header on. Tests over all captures are in the package
// `ferroce-tests`.
pub(super) const RC_ACKNOWLEDGE: &str = "45000030a28b4000401183810a4d000b0a4d000c\
    cb9a12b7001c0000 1100ffff0000003700001000 1f000001 e8e43653";
const RC_WRITE_ONLY_3_PAD: &str = "45000040ba34400040116bc80a4d000c0a4d000b\
    cb9a12b7002c0000 0a30ffff0000003680001004 00007f8e7675800000002a0100000001 00000000 77c2cfa2";
const RC_FETCH_ADD: &str = "45000048bd3b4000401168b90a4d000c0a4d000b\
    ccea12b700340000 1400ffff0000003980001000\
    00007f77ea1d700000002d0c00000000000000100000000000000000 a5827476";
pub(super) const UD_SEND_ONLY: &str = "45000038b94b400040116cb90a4d000c0a4d000b\
    e81312b700240000 6410ffff0000003500001000 1111111100000036 00010200 d5285ce0";
const RC_READ_RESPONSE_V6: &str = "6000000000241140\
    fd770000000000000000000000000011fd770000000000000000000000000012\
    cc0812b700240000 1030ffff0000003800001011 1f000012 0001020304000000 85f9938a";

/// The local packet of the specification's example (IBA 7.8), with its ICRC.
const SPECIFICATION_LOCAL: &str = "7012375c000e17d2 0a2024870087b1b3000dec2a\
    01710a1c015d400238f27a05 0000000ebb884d85fd5cfba4728bc0690ed40000 9625b75a";

pub(super) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| core::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn with_icrc(encapsulation: Encapsulation, mut packet: Vec<u8>) -> Vec<u8> {
    packet.extend([0; 4]);
    let right = check(encapsulation, &packet).unwrap().computed;
    let end = packet.len() - 4;
    packet[end..].copy_from_slice(&right);
    packet
}

#[test]
fn the_absent_lrh_is_covered_as_ones() {
    assert_eq!(AFTER_LRH_OF_ONES, crc32fast::hash(&[0xff; 8]));
}

#[test]
fn captured_packets_verify() {
    for packet in [RC_ACKNOWLEDGE, RC_WRITE_ONLY_3_PAD, RC_FETCH_ADD, UD_SEND_ONLY] {
        assert!(verify(Ipv4, &bytes(packet)), "{packet}");
    }
    assert!(verify(Ipv6, &bytes(RC_READ_RESPONSE_V6)));
}

#[test]
fn the_example_of_the_specification_verifies() {
    assert!(verify(Native, &bytes(SPECIFICATION_LOCAL)));
}

#[test]
fn incremental_computation_equals_the_whole() {
    let packet = bytes(RC_WRITE_ONLY_3_PAD);
    let (ip, rest) = packet.split_first_chunk().unwrap();
    let (udp, rest) = rest.split_first_chunk().unwrap();
    let mut icrc = Icrc::ipv4(ip, udp, rest.first_chunk().unwrap());
    for byte in &packet[40..packet.len() - 4] {
        icrc.update(&[*byte]);
        icrc.update(&[]);
    }
    assert_eq!(icrc.finish(), packet[packet.len() - 4..]);
}

/// Bits that may change, by byte of the packet; all other bits are covered.
fn may_change(encapsulation: Encapsulation, packet: &[u8]) -> Vec<(usize, u8)> {
    const IPV6: [(usize, u8); 5] = [(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)];
    let at = |start: usize, fields: &[(usize, u8)]| -> Vec<(usize, u8)> {
        fields.iter().map(|&(byte, bits)| (start + byte, bits)).collect()
    };
    match encapsulation {
        Ipv4 => {
            let udp = usize::from(packet[0] & 15) * 4;
            let ip = [(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff)];
            [at(0, &ip), at(udp, &[(6, 0xff), (7, 0xff), (12, 0xff)])].concat()
        }
        Ipv6 => [at(0, &IPV6), at(40, &[(6, 0xff), (7, 0xff), (12, 0xff)])].concat(),
        RoceV1 => [at(0, &IPV6), at(40, &[(4, 0xff)])].concat(),
        Native if packet[1] & 3 == 2 => at(0, &[(0, 0xf0), (12, 0xff)]),
        Native => {
            let mut fields = at(8, &IPV6);
            fields.push((52, 0xff));
            // All of the LRH except the next header field, without which the packet is not global.
            fields.extend((0..8).map(|byte| (byte, if byte == 1 { 0xfc } else { 0xff })));
            fields
        }
    }
}

fn corrupt_every_bit(encapsulation: Encapsulation, packet: &[u8]) {
    assert!(verify(encapsulation, packet));
    let free = may_change(encapsulation, packet);
    let mut packet = packet.to_vec();
    for byte in 0..packet.len() {
        for bit in 0..8 {
            let is_free = free.iter().any(|&(at, bits)| at == byte && bits & (1 << bit) != 0);
            packet[byte] ^= 1 << bit;
            assert_eq!(verify(encapsulation, &packet), is_free, "byte {byte}, bit {bit}");
            packet[byte] ^= 1 << bit;
        }
    }
}

#[test]
fn exactly_the_covered_bits_affect_the_icrc() {
    corrupt_every_bit(Ipv4, &bytes(RC_WRITE_ONLY_3_PAD));
    corrupt_every_bit(Ipv6, &bytes(RC_READ_RESPONSE_V6));
    corrupt_every_bit(Native, &bytes(SPECIFICATION_LOCAL));
    let ipv6 = bytes(RC_READ_RESPONSE_V6);
    let without_udp: Vec<u8> = [&ipv6[..40], &ipv6[48..ipv6.len() - 4]].concat();
    corrupt_every_bit(RoceV1, &with_icrc(RoceV1, without_udp.clone()));
    let global: Vec<u8> =
        [&[0x70, 0x13, 0x37, 0x5c, 0, 0x18, 0x17, 0xd2], &without_udp[..]].concat();
    corrupt_every_bit(Native, &with_icrc(Native, global));
    let mut options = bytes(RC_ACKNOWLEDGE);
    options[0] = 0x47;
    options.splice(20..20, [0x94, 4, 0, 0, 1, 1, 1, 0]);
    options.truncate(options.len() - 4);
    corrupt_every_bit(Ipv4, &with_icrc(Ipv4, options));
}

#[test]
fn the_lrh_of_a_global_packet_does_not_affect_the_icrc() {
    let (lrh, grh, bth) = ([0x12; 8], [0x60; 40], [4; 12]);
    let native = Icrc::native(&lrh, Some(&grh), &bth).finish();
    assert_eq!(native, Icrc::roce_v1(&grh, &bth).finish());
}

#[test]
fn packets_without_an_icrc_are_rejected() {
    let options = [&[0x46; 24][..], &[0; 24]].concat();
    assert!(check(Ipv4, &options).is_ok());
    assert_eq!(check(Ipv4, &[0x44; 60]), Err(Malformed::Ipv4HeaderLength));
    assert_eq!(check(Native, &[0; 60]), Err(Malformed::Raw));
    let (udp, bth) = ([0; 8], [0; 12]);
    for ip in [&[0x45; 19][..], &[0x45; 21], &[0x4f; 64], &[0x46; 20], &[]] {
        let icrc = Icrc::ipv4_with_options(ip, &udp, &bth);
        assert_eq!(icrc.err(), Some(Malformed::Ipv4HeaderLength));
    }
    let shortest = [(Ipv4, 0x45, 44), (Ipv6, 0x60, 64), (RoceV1, 0x60, 56), (Native, 2, 24)];
    for (encapsulation, fill, length) in shortest {
        let packet = std::vec![fill; length];
        assert!(check(encapsulation, &packet).is_ok());
        for length in 0..length {
            let short = check(encapsulation, &packet[..length]);
            assert_eq!(short, Err(Malformed::TooShort), "{encapsulation:?} {length}");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(packet: Vec<u8>) {
        for encapsulation in [Ipv4, Ipv6, RoceV1, Native] {
            let _ = check(encapsulation, &packet);
        }
    }

    /// The premise of the solver in `hidden`: the CRC of a difference does not depend on the packet.
    #[test]
    fn the_icrc_is_linear(
        one in prop::collection::vec(any::<u8>(), 100),
        other in prop::collection::vec(any::<u8>(), 100),
        difference in prop::collection::vec(any::<u8>(), 100),
    ) {
        let icrc = |payload: &[u8]| {
            let mut icrc = Icrc::ipv4(&[0x45; 20], &[0; 8], &[0; 12]);
            icrc.update(payload);
            u32::from_le_bytes(icrc.finish())
        };
        let xor = |a: &[u8]| -> Vec<u8> { a.iter().zip(&difference).map(|(a, b)| a ^ b).collect() };
        prop_assert_eq!(icrc(&one) ^ icrc(&xor(&one)), icrc(&other) ^ icrc(&xor(&other)));
    }
}
