//! Compares our ICRC with scapy's (`scapy.contrib.roce`) on generated packets.
//!
//! The packets are built byte by byte here, so that an error in our headers cannot hide one in our ICRC.
//! `tests/scapy/icrc.py` documents which part of the computation is scapy's.

use std::fs;
use std::path::Path;

use ferroce_tests::random::Random;
use ferroce_tests::tool;
use ferroce_wire::icrc::{Encapsulation, check};

/// Opcode, bytes of extension headers, and whether a payload follows.
const OPCODES: [(u8, usize, bool); 22] = [
    (0x00, 0, true),   // RC SEND first
    (0x04, 0, true),   // RC SEND only
    (0x05, 4, true),   // RC SEND only with immediate
    (0x06, 16, true),  // RC RDMA WRITE first
    (0x0a, 16, true),  // RC RDMA WRITE only
    (0x0b, 20, true),  // RC RDMA WRITE only with immediate
    (0x0c, 16, false), // RC RDMA READ request
    (0x0e, 0, true),   // RC RDMA READ response middle
    (0x10, 4, true),   // RC RDMA READ response only
    (0x11, 4, false),  // RC acknowledge
    (0x12, 12, false), // RC atomic acknowledge
    (0x13, 28, false), // RC compare and swap
    (0x14, 28, false), // RC fetch and add
    (0x17, 4, true),   // RC SEND only with invalidate
    (0x1d, 24, false), // RC atomic write
    (0x24, 0, true),   // UC SEND only
    (0x2a, 16, true),  // UC RDMA WRITE only
    (0x44, 12, true),  // RD SEND only
    (0x64, 8, true),   // UD SEND only
    (0x65, 12, true),  // UD SEND only with immediate
    (0x81, 16, false), // CNP
    (0xa4, 4, true),   // XRC SEND only
];

/// IPv4 options: none, or common ones: router alert, no operation, end of list.
const OPTIONS: [&[u8]; 4] = [&[], &[], &[0x94, 4, 0, 0], &[1, 1, 0x94, 4, 0, 0, 1, 0]];

/// Returns the `number`th packet, from the IP header to the ICRC, which is zero.
fn packet(random: &mut Random, encapsulation: Encapsulation, number: usize) -> Vec<u8> {
    let (opcode, extensions, has_payload) = OPCODES[number % OPCODES.len()];
    let length = match number % 7 {
        _ if !has_payload => 0,
        0 => number % 10, // 0 and every pad count
        1 => 4096 - number % 4,
        _ => random.below(4097),
    };
    let pad = length.wrapping_neg() % 4;
    let mut bth = random.array::<12>(); // FECN, BECN and reserved bits too
    bth[0] = opcode;
    bth[1] = bth[1] & 0xc0 | (pad as u8) << 4; // solicited event, migration, pad count, version 0
    let mut body = random.bytes(extensions + length);
    body.resize(body.len() + pad, 0);

    let udp_length = 8 + bth.len() + body.len() + 4;
    let word = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
    let mut udp = random.array::<8>(); // random source port and checksum
    udp[2..4].copy_from_slice(&4791_u16.to_be_bytes());
    udp[4..6].copy_from_slice(&word(udp_length));

    let mut ip;
    if encapsulation == Encapsulation::Ipv4 {
        let options = OPTIONS[random.below(OPTIONS.len())];
        ip = random.bytes(20); // type of service, identification, time to live, checksum, addresses
        ip.extend(options);
        ip[0] = 0x40 | (ip.len() / 4) as u8;
        let total = word(ip.len() + udp_length);
        ip[2..4].copy_from_slice(&total);
        ip[6] &= 0x40; // "don't fragment" or not, and no fragment
        ip[7] = 0;
        ip[9] = 17;
    } else {
        ip = random.bytes(40); // traffic class, flow label, hop limit, addresses
        ip[0] = 0x60 | ip[0] & 0x0f;
        ip[4..6].copy_from_slice(&word(udp_length));
        ip[6] = 17;
    }
    [&ip, &udp[..], &bth, &body, &[0; 4]].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn compare_with_scapy(encapsulation: Encapsulation, seed: u64) {
    let mut random = Random::new(seed);
    let count = OPCODES.len() * 25;
    let packets: Vec<_> =
        (0..count).map(|number| packet(&mut random, encapsulation, number)).collect();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{encapsulation:?}.hex"));
    fs::write(&file, packets.iter().map(|packet| hex(packet) + "\n").collect::<String>()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scapy/icrc.py");
    let printed = tool::run(tool::python().arg(script).arg(&file));
    let by_scapy: Vec<&str> = std::str::from_utf8(&printed).unwrap().lines().collect();
    assert_eq!(by_scapy.len(), count);
    for (packet, by_scapy) in packets.iter().zip(by_scapy) {
        let ours = check(encapsulation, packet).unwrap().computed;
        assert_eq!(hex(&ours), by_scapy, "{}", hex(packet));
    }
}

#[test]
fn agrees_with_scapy_over_ipv4() {
    compare_with_scapy(Encapsulation::Ipv4, 4);
}

#[test]
fn agrees_with_scapy_over_ipv6() {
    compare_with_scapy(Encapsulation::Ipv6, 6);
}
