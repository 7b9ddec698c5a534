//! Corrupts the captured packets of the kernel's rdma_rxe, and counts the corruptions that the ICRC does not detect.
//!
//! `cargo test -p ferroce-tests --test icrc_corruption -- --nocapture` prints the figures that
//! `docs/icrc.md` quotes.

mod icrc_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ferroce_tests::random::Random;
use ferroce_wire::icrc::hidden::{
    BATCH_LIMIT, Identification, IdentificationHistory, Plausibility, UdpIpv4, solve,
};
use ferroce_wire::icrc::{Encapsulation, verify};
use icrc_support::{Packet, captures};

/// One in 32,768: the share of arbitrary corruption that 15 bits do not detect.
const MISS_RATE: f64 = 1.0 / 32_768.0;

/// Calls `work` for every item, on all cores.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let claimed = std::iter::from_fn(|| items.get(next.fetch_add(1, Ordering::Relaxed)));
        claimed.map(&work).collect::<Vec<R>>()
    };
    thread::scope(|scope| {
        let count = thread::available_parallelism().map_or(2, usize::from);
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// Whether a bit, counted from the most significant of the first byte, may change in transit (IBA 7.8.1 and A17.3.3).
fn may_change(encapsulation: Encapsulation, bit: usize) -> bool {
    let (fields, udp): (&[_], _) = match encapsulation {
        // Type of service; time to live; header checksum.
        Encapsulation::Ipv4 => (&[8..16, 64..72, 80..96], 20),
        // Traffic class and flow label; hop limit.
        Encapsulation::Ipv6 => (&[4..32, 56..64], 40),
        _ => unreachable!("all captures are of RoCEv2"),
    };
    let checksum = (udp + 6) * 8..(udp + 8) * 8;
    let resv8a = (udp + 12) * 8..(udp + 13) * 8;
    fields.iter().chain([&checksum, &resv8a]).any(|field| field.contains(&bit))
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 0x80 >> (bit % 8);
}

#[test]
fn exactly_the_covered_bits_are_detected() {
    let packets: Vec<Packet> = captures().into_iter().flatten().collect();
    let counts = in_parallel(&packets, |packet| {
        let mut bytes = packet.bytes.clone();
        assert!(verify(packet.encapsulation, &bytes), "{}", packet.name);
        let (mut covered, mut free) = (0_u64, 0_u64);
        for bit in 0..bytes.len() * 8 {
            let expected = may_change(packet.encapsulation, bit);
            flip(&mut bytes, bit);
            let verdict = verify(packet.encapsulation, &bytes);
            flip(&mut bytes, bit);
            assert_eq!(verdict, expected, "{}, bit {bit}", packet.name);
            if expected { free += 1 } else { covered += 1 }
        }
        (covered, free)
    });
    let covered: u64 = counts.iter().map(|count| count.0).sum();
    let free: u64 = counts.iter().map(|count| count.1).sum();
    println!(
        "{} packets: all of {covered} flips of a covered bit noticed, none of {free} of another",
        packets.len()
    );
    let bits: usize = packets.iter().map(|packet| packet.bytes.len() * 8).sum();
    assert_eq!(covered + free, bits as u64);
}

/// Returns what a UDP receiver sees of a packet.
fn as_received(packet: &[u8]) -> (UdpIpv4, &[u8]) {
    let address = |at: usize| packet[at..at + 4].try_into().unwrap();
    let port = |at: usize| u16::from_be_bytes(packet[at..at + 2].try_into().unwrap());
    let flow = UdpIpv4 {
        source: address(12),
        destination: address(16),
        source_port: port(20),
        destination_port: port(22),
    };
    (flow, &packet[28..])
}

fn identification(packet: &[u8]) -> Identification {
    let dont_fragment = packet[6] & 0x40 != 0;
    Identification { id: u16::from_be_bytes([packet[4], packet[5]]), dont_fragment }
}

/// Returns the identification that a receiver computes for a packet.
fn received(packet: &[u8]) -> Option<Identification> {
    let (flow, datagram) = as_received(packet);
    solve(&flow, datagram, Identification::of_segment(0))
}

fn ipv4_captures() -> Vec<Vec<Packet>> {
    let mut files = captures();
    for packets in &mut files {
        packets.retain(|packet| packet.encapsulation == Encapsulation::Ipv4);
    }
    files.retain(|packets| !packets.is_empty());
    files
}

/// Whether a bit is visible to a receiver and covered by the ICRC: addresses, ports, BTH to ICRC. A packet with a wrong
/// total length, header length, protocol or fragment offset does not reach a UDP socket.
fn is_visible(bit: usize) -> bool {
    let byte = bit / 8;
    ((12..24).contains(&byte) || byte >= 28) && !may_change(Encapsulation::Ipv4, bit)
}

/// The single bits, in packets of up to 4 KiB, that a wrong identification can compensate: which bits of the
/// identification, and whether the flag, are then wrong. The flag always is, so a sender that is known to set it, as
/// Ferroce and rdma_rxe do, has no such bits.
const MISSED_SINGLE_BITS: [(usize, (u16, bool)); 2] =
    [(201 * 8 + 4, (0x37b6, true)), (1862 * 8 + 1, (0x8108, true))];

#[test]
fn single_bit_flips_with_hidden_identification() {
    let packets: Vec<Packet> = ipv4_captures().into_iter().flatten().collect();
    let results = in_parallel(&packets, |packet| {
        let sent = identification(&packet.bytes);
        assert_eq!(received(&packet.bytes), Some(sent), "{}", packet.name);
        let mut bytes = packet.bytes.clone();
        let (mut flips, mut missed) = (0_u64, BTreeMap::new());
        for bit in (0..packet.bytes.len() * 8).filter(|&bit| is_visible(bit)) {
            flips += 1;
            flip(&mut bytes, bit);
            if let Some(solved) = received(&bytes) {
                // One bit changes the CRC, so only another identification can compensate it.
                assert_ne!(solved, sent, "{}, bit {bit}", packet.name);
                let wrong = solved.id ^ sent.id;
                missed.insert(bit, (wrong, solved.dont_fragment != sent.dont_fragment));
            }
            flip(&mut bytes, bit);
        }
        (packet.bytes.len() * 8, flips, missed)
    });
    // The CRC is linear, so whether a flip is missed depends only on its position.
    let positions: BTreeMap<usize, (u16, bool)> =
        results.iter().flat_map(|(.., missed)| missed.clone()).collect();
    for (length, _, missed) in &results {
        let shorter: BTreeMap<_, _> = positions.range(..length).map(|(&k, &v)| (k, v)).collect();
        assert_eq!(*missed, shorter);
    }
    let flips: u64 = results.iter().map(|result| result.1).sum();
    let missed: usize = results.iter().map(|result| result.2.len()).sum();
    println!(
        "identification hidden, single bits: {missed} of {flips} missed in {} packets ({:.2e}), at",
        packets.len(),
        missed as f64 / flips as f64
    );
    for (bit, (id, flag)) in &positions {
        println!("  byte {} mask {:#04x}: id ^ {id:#06x}, DF ^ {flag}", bit / 8, 0x80 >> (bit % 8));
    }
    assert_eq!(positions, BTreeMap::from(MISSED_SINGLE_BITS));
}

/// Returns the history of each packet's flow before that packet.
fn histories(packets: &[Packet]) -> Vec<IdentificationHistory> {
    let mut flows = BTreeMap::new();
    let before = packets.iter().map(|packet| {
        let (flow, _) = as_received(&packet.bytes);
        let history =
            flows.entry((flow.source, flow.destination)).or_insert_with(IdentificationHistory::new);
        let before = history.clone();
        let verdict = history.observe(identification(&packet.bytes), packet.time);
        assert_ne!(verdict, Plausibility::Implausible, "{}", packet.name);
        before
    });
    before.collect()
}

/// A function that corrupts a packet.
type Corruption = fn(&mut Random, &mut [u8]);

fn two_bits(random: &mut Random, packet: &mut [u8]) {
    let mut draw = || loop {
        let bit = random.below(packet.len() * 8);
        if is_visible(bit) {
            return bit;
        }
    };
    let (one, mut other) = (draw(), draw());
    while one == other {
        other = draw();
    }
    flip(packet, one);
    flip(packet, other);
}

/// Flips the first and the last bit of a run, and each bit between with probability 1/2. Skips bits that may change in
/// transit, which no check covers.
fn corrupt_run(random: &mut Random, packet: &mut [u8], length: usize) {
    let first = 28 * 8 + random.below(packet.len() * 8 - 28 * 8 - length + 1);
    let last = first + length - 1;
    if !is_visible(first) || !is_visible(last) {
        return corrupt_run(random, packet, length);
    }
    for bit in first..=last {
        if bit == first || bit == last || is_visible(bit) && random.number() & 1 != 0 {
            flip(packet, bit);
        }
    }
}

fn burst_of_2_to_32_bits(random: &mut Random, packet: &mut [u8]) {
    let length = 2 + random.below(31);
    corrupt_run(random, packet, length);
}

fn burst_of_33_to_128_bits(random: &mut Random, packet: &mut [u8]) {
    let length = 33 + random.below(96).min(packet.len() * 8 - 28 * 8 - 33);
    corrupt_run(random, packet, length);
}

#[test]
fn random_corruption_with_hidden_identification() {
    const ROUNDS: usize = 1500;
    let files = ipv4_captures();
    let flows: Vec<_> = files.iter().zip(files.iter().map(|file| histories(file))).collect();
    let samples: [(&str, Corruption); 3] = [
        ("two bits", two_bits),
        ("bursts of 2 to 32 bits", burst_of_2_to_32_bits),
        ("bursts of 33 to 128 bits", burst_of_33_to_128_bits),
    ];
    for (seed, (name, corrupt)) in samples.into_iter().enumerate() {
        let items: Vec<_> =
            flows.iter().flat_map(|(file, before)| file.iter().zip(before)).collect();
        let numbered: Vec<_> = items.into_iter().enumerate().collect();
        let counts = in_parallel(&numbered, |(number, (packet, before))| {
            let mut random = Random::new((seed * numbered.len() + number) as u64);
            let sent = identification(&packet.bytes);
            let (mut missed, mut believed) = (0_u64, 0_u64);
            let mut bytes = packet.bytes.clone();
            for _ in 0..ROUNDS {
                corrupt(&mut random, &mut bytes);
                if let Some(solved) = received(&bytes) {
                    assert_ne!(solved, sent, "{}: noticed by no CRC at all", packet.name);
                    missed += 1;
                    let verdict = (*before).clone().observe(solved, Duration::ZERO);
                    believed += u64::from(verdict == Plausibility::Expected);
                }
                bytes.copy_from_slice(&packet.bytes);
            }
            (missed, believed)
        });
        let total = (numbered.len() * ROUNDS) as f64;
        let missed: u64 = counts.iter().map(|count| count.0).sum();
        let believed: u64 = counts.iter().map(|count| count.1).sum();
        let rate = missed as f64 / total;
        println!(
            "identification hidden, {name}: {missed} of {total} missed ({rate:.2e}, 2^-15 is \
             {MISS_RATE:.2e}), {believed} with an identification their flow's history expects"
        );
        assert!((0.7..1.3).contains(&(rate / MISS_RATE)), "{name}: {rate:.2e}");
        assert!(believed * 10 <= missed, "{name}");
    }
}

/// A corrupted packet that passes the 15 bits has an arbitrary identification and flag.
#[test]
fn the_history_rejects_arbitrary_identifications() {
    let mut random = Random::new(15);
    let mut believed = |history: &IdentificationHistory| {
        let trials = 1 << 20;
        let believed = (0..trials).filter(|_| {
            let word = random.number();
            let seen = Identification { id: word as u16, dont_fragment: word & 1 << 16 != 0 };
            let verdict = history.clone().observe(seen, Duration::ZERO);
            verdict != Plausibility::Implausible
        });
        believed.count() as f64 / f64::from(trials)
    };
    let first_batch = 0..BATCH_LIMIT;
    let batches = first_batch.clone().chain(first_batch.clone()).collect::<Vec<_>>();
    for (name, ids, at_most) in [
        ("a first batch", first_batch.collect(), 0.01),
        ("two batches", batches, 1.1 / 2048.0),
        ("a counter", (47_664..47_664 + BATCH_LIMIT).collect(), 0.01),
    ] {
        let mut history = IdentificationHistory::new();
        for id in ids {
            let sent = Identification { id, dont_fragment: true };
            let _ = history.observe(sent, Duration::ZERO);
        }
        let share = believed(&history);
        let bits = 15.0 - share.log2();
        println!(
            "history of {name}: believes {share:.2e} of arbitrary ones, {bits:.1} bits in all"
        );
        assert!(share <= at_most, "{share}");
    }
}

#[test]
fn the_captures_have_ipv4_and_ipv6() {
    let files = captures();
    let kinds: BTreeSet<bool> =
        files.iter().flatten().map(|packet| packet.encapsulation == Encapsulation::Ipv4).collect();
    assert_eq!(kinds.len(), 2, "IPv4 and IPv6");
}
