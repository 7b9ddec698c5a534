use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::super::tests::{RC_ACKNOWLEDGE, UD_SEND_ONLY, bytes};
use super::{Identification, UdpIpv4, solve, solve_difference};

/// The flow and the datagram of a packet, as a socket delivers them.
fn as_received(packet: &[u8]) -> (UdpIpv4, &[u8]) {
    let address = |at: usize| [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]];
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let flow = UdpIpv4 {
        source: address(12),
        destination: address(16),
        source_port: port(20),
        destination_port: port(22),
    };
    (flow, &packet[28..])
}

const FLOW: UdpIpv4 = UdpIpv4 {
    source: [10, 77, 0, 11],
    destination: [10, 77, 0, 12],
    source_port: 0xc1d2,
    destination_port: 4791,
};

/// A datagram sent on `FLOW`.
fn datagram(identification: Identification, body: &[u8]) -> Vec<u8> {
    let udp_length = u16::try_from(8 + body.len() + 4).unwrap();
    let mut icrc = FLOW.icrc(identification, udp_length, body.first_chunk().unwrap());
    icrc.update(&body[12..]);
    let mut datagram = body.to_vec();
    datagram.extend(icrc.finish());
    datagram
}

fn identification() -> impl Strategy<Value = Identification> {
    (any::<u16>(), any::<bool>())
        .prop_map(|(id, dont_fragment)| Identification { id, dont_fragment })
}

#[test]
fn captured_packets_solve_to_their_identification() {
    for (packet, id) in [(RC_ACKNOWLEDGE, 0xa28b), (UD_SEND_ONLY, 0xb94b)] {
        let packet = bytes(packet);
        let (flow, datagram) = as_received(&packet);
        let sent = Identification { id, dont_fragment: true };
        for expected in [sent, Identification::of_segment(0), Identification::of_segment(id - 1)] {
            assert_eq!(solve(&flow, datagram, expected), Some(sent));
        }
    }
}

#[test]
fn the_longest_datagram_solves() {
    // 65,535 bytes minus the IPv4 and UDP headers; longer datagrams cannot be sent.
    let sent = Identification { id: 0x1234, dont_fragment: false };
    let longest = datagram(sent, &vec![0xa5; 65_507 - 4]);
    assert_eq!(solve(&FLOW, &longest, Identification::of_segment(0)), Some(sent));
    for length in [65_508, 65_527, 65_528, 100_000] {
        assert_eq!(solve(&FLOW, &vec![0; length], Identification::of_segment(0)), None);
    }
    assert_eq!(solve_difference(sent, u16::MAX, [0; 4], [0; 4]), None);
}

#[test]
fn too_short_is_corrupt() {
    let sent = Identification::of_segment(3);
    let shortest = datagram(sent, &[0x11; 12]);
    assert_eq!(solve(&FLOW, &shortest, Identification::of_segment(0)), Some(sent));
    for length in 0..shortest.len() {
        assert_eq!(solve(&FLOW, &shortest[..length], sent), None);
    }
}

proptest! {
    #[test]
    fn any_identification_is_found(
        sent in identification(),
        expected in identification(),
        body in prop::collection::vec(any::<u8>(), 12..2000),
    ) {
        let datagram = datagram(sent, &body);
        prop_assert_eq!(solve(&FLOW, &datagram, expected), Some(sent));
    }

    /// The result does not depend on the guess, also for corrupt packets.
    #[test]
    fn the_guess_does_not_matter(
        one in identification(),
        other in identification(),
        datagram in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        prop_assert_eq!(solve(&FLOW, &datagram, one), solve(&FLOW, &datagram, other));
    }

    /// With the correct identification all 32 bits would detect a burst, so a corrupt packet that passes the 15-bit
    /// check has a wrong one, which the history can reject.
    #[test]
    fn a_corrupt_packet_never_solves_to_the_right_identification(
        sent in identification(),
        mut body in prop::collection::vec(any::<u8>(), 12..600),
        at: prop::sample::Index,
        burst in 1..=u8::MAX,
    ) {
        let whole = datagram(sent, &body);
        let at = at.index(body.len());
        prop_assume!(at != 4); // resv8a is not covered
        body[at] ^= burst;
        let corrupt: Vec<u8> = body.iter().chain(&whole[body.len()..]).copied().collect();
        prop_assert_ne!(solve(&FLOW, &corrupt, sent), Some(sent));
    }
}
