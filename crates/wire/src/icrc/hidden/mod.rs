//! Checking the ICRC of what a UDP socket delivers over IPv4.
//!
//! The ICRC covers the IPv4 identification and the "don't fragment" flag, and a UDP receiver sees
//! neither; all else it can reconstruct. The CRC is linear: a packet that differs in one 32-bit word
//! has a CRC that differs by that word's difference times x^(8n+32), n being the bytes between the
//! word and the CRC. The word that holds both hidden fields
//!
//! ```text
//!  identification (16) | reserved (1) | DF (1) | MF (1) | fragment offset (13)
//! ```
//!
//! can therefore be solved for: guess it, compare the ICRC found with the one computed, and multiply
//! the difference by x^-(8n+32). Out comes what the guess got wrong. A packet as it was sent got
//! nothing wrong but the 17 hidden bits; where any other of the 32 comes out, the packet is corrupt.
//! So 15 bits of the 32 still check the packet, and the hidden fields are known besides.
//! [`IdentificationHistory`] wins most of the others back by what a flow has shown before.
//!
//! Assumed: no IPv4 options, for a socket does not show them either: a packet with options fails the
//! check. And no fragments: which of their headers the ICRC would cover, no specification says.

mod history;
mod polynomial;
#[cfg(test)]
mod tests;

pub use history::{BATCH_LIMIT, IdentificationHistory, Plausibility, observe_flow};

use super::{Icrc, LENGTH};

/// The fields of an IPv4 header that the ICRC covers and a UDP receiver cannot see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identification {
    /// The identification field.
    pub id: u16,
    /// The "don't fragment" flag.
    pub dont_fragment: bool,
}

impl Identification {
    /// What Linux sends from an unconnected UDP socket under path MTU discovery, in the segment of
    /// this index of one send (0 in a send of one segment).
    #[must_use]
    pub const fn of_segment(index: u16) -> Self {
        Self { id: index, dont_fragment: true }
    }

    /// The header's four bytes that hold it, of a packet that is no fragment.
    const fn word(self) -> [u8; 4] {
        let [high, low] = self.id.to_be_bytes();
        [high, low, if self.dont_fragment { DONT_FRAGMENT } else { 0 }, 0]
    }
}

/// The flag, in the third byte of its word.
const DONT_FRAGMENT: u8 = 0x40;

/// The bits of the word that a receiver does not know.
const HIDDEN: u32 = u32::from_le_bytes([0xff, 0xff, DONT_FRAGMENT, 0]);

/// The longest UDP datagram, header included, that an IPv4 packet without options has room for.
const MAX_UDP_LENGTH: u16 = u16::MAX - 20;

/// What both ends of a UDP socket know of the headers over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdpIpv4 {
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
    /// Source port.
    pub source_port: u16,
    /// Destination port: 4791 for RoCEv2.
    pub destination_port: u16,
}

impl UdpIpv4 {
    /// Starts the ICRC of a packet in this flow: sent with this identification, or guessed to be.
    ///
    /// `udp_length` is that of the UDP header: eight bytes more than the datagram, which ends with
    /// the ICRC.
    pub fn icrc(&self, identification: Identification, udp_length: u16, bth: &[u8; 12]) -> Icrc {
        let mut ip = [0; 20];
        ip[0] = 0x45; // version 4, no options
        // No packet is longer than the longest, so where this saturates none can match.
        ip[2..4].copy_from_slice(&udp_length.saturating_add(20).to_be_bytes());
        ip[4..8].copy_from_slice(&identification.word());
        ip[9] = 17; // UDP
        ip[12..16].copy_from_slice(&self.source);
        ip[16..].copy_from_slice(&self.destination);
        let mut udp = [0; 8];
        udp[..2].copy_from_slice(&self.source_port.to_be_bytes());
        udp[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
        // Type of service, time to live and both checksums are masked (A17.3.3): zeros will do.
        Icrc::ipv4(&ip, &udp, bth)
    }
}

/// Checks a datagram as received, BTH to ICRC, and finds the identification it was sent with.
///
/// `None` if it is corrupt. The nearer `expected` is the better: if it is right, comparing is all
/// there is to do.
#[must_use]
pub fn solve(flow: &UdpIpv4, datagram: &[u8], expected: Identification) -> Option<Identification> {
    let udp_length = u16::try_from(datagram.len().checked_add(8)?).ok()?;
    let (covered, found) = datagram.split_last_chunk::<LENGTH>()?;
    let (bth, rest) = covered.split_first_chunk::<12>()?;
    let mut icrc = flow.icrc(expected, udp_length, bth);
    icrc.update(rest);
    solve_difference(expected, udp_length, icrc.finish(), *found)
}

/// The same for a packet that came in pieces: `computed` is what [`UdpIpv4::icrc`] made of it with
/// `expected` and `udp_length`, `found` the ICRC it carries.
#[must_use]
pub fn solve_difference(
    expected: Identification,
    udp_length: u16,
    computed: [u8; LENGTH],
    found: [u8; LENGTH],
) -> Option<Identification> {
    if udp_length > MAX_UDP_LENGTH {
        return None;
    }
    let syndrome = u32::from_le_bytes(computed) ^ u32::from_le_bytes(found);
    if syndrome == 0 {
        return Some(expected);
    }
    // n: 12 bytes of the IPv4 header behind the word, then UDP less the 4 bytes of the ICRC. The 32
    // in x^-(8n+32) are 4 more, so n + 4 bytes are 12 + udp_length.
    let wrong = polynomial::rewind(syndrome, udp_length + 12);
    if wrong & !HIDDEN != 0 {
        return None;
    }
    let word = u32::from_le_bytes(expected.word()) ^ wrong;
    let [high, low, flags, _] = word.to_le_bytes();
    Some(Identification {
        id: u16::from_be_bytes([high, low]),
        dont_fragment: flags & DONT_FRAGMENT != 0,
    })
}
