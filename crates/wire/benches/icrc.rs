//! Cost of the ICRC: `cargo bench -p ferroce-wire --bench icrc`.
//!
//! Sizes are of whole packets, IP header to ICRC.
#![allow(missing_docs)]

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use ferroce_wire::icrc::hidden::{Identification, UdpIpv4, solve, solve_difference};
use ferroce_wire::icrc::{Encapsulation, Icrc, check, verify};

const SIZES: [usize; 5] = [64, 256, 1024, 4096, 4156];

fn main() {
    divan::main();
}

/// A packet of this size with a correct ICRC; only the first byte matters.
fn packet(encapsulation: Encapsulation, size: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..size).map(|n| (n * 7 + n / 256) as u8).collect();
    packet[0] = if encapsulation == Encapsulation::Ipv4 { 0x45 } else { 0x60 };
    let icrc = check(encapsulation, &packet).expect("long enough").computed;
    packet[size - 4..].copy_from_slice(&icrc);
    packet
}

fn whole(bencher: Bencher, encapsulation: Encapsulation, size: usize) {
    let packet = packet(encapsulation, size);
    assert!(verify(encapsulation, &packet));
    bencher
        .counter(BytesCount::new(size))
        .bench_local(|| verify(encapsulation, black_box(&packet)));
}

#[divan::bench(args = SIZES, sample_size = 1000)]
fn verify_ipv4(bencher: Bencher, size: usize) {
    whole(bencher, Encapsulation::Ipv4, size);
}

#[divan::bench(args = SIZES, sample_size = 1000)]
fn verify_ipv6(bencher: Bencher, size: usize) {
    whole(bencher, Encapsulation::Ipv6, size);
}

/// Gathers like a sender: headers, then the payload in two pieces.
#[divan::bench(args = SIZES, sample_size = 1000)]
fn gather_ipv4(bencher: Bencher, size: usize) {
    let (ip, udp, bth) = ([0x45; 20], [0; 8], [4; 12]);
    let payload = vec![0x5a; size - 44];
    let (one, other) = payload.split_at(payload.len() / 2);
    bencher.counter(BytesCount::new(size)).bench_local(|| {
        let mut icrc = Icrc::ipv4(black_box(&ip), black_box(&udp), black_box(&bth));
        icrc.update(black_box(one));
        icrc.update(black_box(other));
        icrc.finish()
    });
}

const FLOW: UdpIpv4 = UdpIpv4 {
    source: [10, 77, 0, 11],
    destination: [10, 77, 0, 12],
    source_port: 0xc1d2,
    destination_port: 4791,
};

/// Checks a datagram with identification 77, expecting `expected`.
fn with_identification_hidden(bencher: Bencher, size: usize, expected: u16) {
    let sent = Identification::of_segment(77);
    let mut datagram = vec![0x5a; size - 28];
    let end = datagram.len() - 4;
    let udp_length = u16::try_from(datagram.len() + 8).expect("short enough");
    let mut icrc = FLOW.icrc(sent, udp_length, datagram.first_chunk().expect("long enough"));
    icrc.update(&datagram[12..end]);
    datagram[end..].copy_from_slice(&icrc.finish());
    let expected = Identification::of_segment(expected);
    assert_eq!(solve(&FLOW, &datagram, expected), Some(sent));
    bencher
        .counter(BytesCount::new(size))
        .bench_local(|| solve(black_box(&FLOW), black_box(&datagram), black_box(expected)));
}

#[divan::bench(args = SIZES, sample_size = 1000)]
fn hidden_as_expected(bencher: Bencher, size: usize) {
    with_identification_hidden(bencher, size, 77);
}

#[divan::bench(args = SIZES, sample_size = 1000)]
fn hidden_solved(bencher: Bencher, size: usize) {
    with_identification_hidden(bencher, size, 0);
}

/// Solving alone, without the CRC.
#[divan::bench(sample_size = 1000)]
fn solve_difference_alone(bencher: Bencher) {
    let expected = Identification::of_segment(0);
    bencher.bench_local(|| {
        solve_difference(
            black_box(expected),
            black_box(4136),
            black_box([1, 2, 3, 4]),
            black_box([5, 6, 7, 8]),
        )
    });
}
