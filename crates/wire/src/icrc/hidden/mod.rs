//! ICRC check of packets received from a UDP socket over IPv4.
//!
//! The ICRC covers the IPv4 identification and the "don't fragment" flag, which a UDP receiver does not
//! see; it can reconstruct all other fields. The CRC is linear: if two packets differ in one 32-bit word,
//! their CRCs differ by that difference times x^(8n+32), with n bytes between the word and the CRC. The
//! word with both hidden fields
//!
//! ```text
//!  identification (16) | reserved (1) | DF (1) | MF (1) | fragment offset (13)
//! ```
//!
//! can therefore be solved for: guess it, and multiply the difference between the received and the
//! computed ICRC by x^-(8n+32). The result is the error of the guess. In an intact packet only the 17
//! hidden bits can be wrong; if any other bit is, the packet is corrupt. So 15 of the 32 bits still
//! check the packet, and the hidden fields become known. [`IdentificationHistory`] recovers most of the
//! remaining strength from earlier packets of the flow.
//!
//! Assumptions: no IPv4 options, which a socket does not show either (a packet with options fails the
//! check), and no fragments, for which the specification does not define the ICRC.

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
    /// The fields that Linux sends from an unconnected UDP socket with path MTU discovery, in segment `index`
    /// of one send (0 if it has one segment).
    #[must_use]
    pub const fn of_segment(index: u16) -> Self {
        Self { id: index, dont_fragment: true }
    }

    /// The four header bytes with these fields, of an unfragmented packet.
    const fn word(self) -> [u8; 4] {
        let [high, low] = self.id.to_be_bytes();
        [high, low, if self.dont_fragment { DONT_FRAGMENT } else { 0 }, 0]
    }
}

/// The flag, in the third byte of its word.
const DONT_FRAGMENT: u8 = 0x40;

/// The bits of the word hidden from a receiver.
const HIDDEN: u32 = u32::from_le_bytes([0xff, 0xff, DONT_FRAGMENT, 0]);

/// Limit of the UDP length in an IPv4 packet without options.
const MAX_UDP_LENGTH: u16 = u16::MAX - 20;

/// The header fields known to both ends of a UDP socket over IPv4.
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
        // Saturates only for lengths that no packet can have.
        ip[2..4].copy_from_slice(&udp_length.saturating_add(20).to_be_bytes());
        ip[4..8].copy_from_slice(&identification.word());
        ip[9] = 17; // UDP
        ip[12..16].copy_from_slice(&self.source);
        ip[16..].copy_from_slice(&self.destination);
        let mut udp = [0; 8];
        udp[..2].copy_from_slice(&self.source_port.to_be_bytes());
        udp[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
        // Type of service, time to live and both checksums are replaced by ones (A17.3.3): leave them zero.
        Icrc::ipv4(&ip, &udp, bth)
    }
}

/// Checks a received datagram, from BTH to ICRC, and solves for the identification it was sent with.
///
/// Returns `None` if it is corrupt. If `expected` is correct, a comparison suffices.
#[must_use]
pub fn solve(flow: &UdpIpv4, datagram: &[u8], expected: Identification) -> Option<Identification> {
    let udp_length = u16::try_from(datagram.len().checked_add(8)?).ok()?;
    let (covered, found) = datagram.split_last_chunk::<LENGTH>()?;
    let (bth, rest) = covered.split_first_chunk::<12>()?;
    let mut icrc = flow.icrc(expected, udp_length, bth);
    icrc.update(rest);
    solve_difference(expected, udp_length, icrc.finish(), *found)
}

/// Like [`solve`], for a packet in pieces: `computed` is the result of [`UdpIpv4::icrc`] with `expected`
/// and `udp_length`, `found` the received ICRC.
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
    // n is 12 bytes of the IPv4 header after the word plus the UDP length minus the 4 bytes of the ICRC.
    // With the 4 bytes for the 32 in x^-(8n+32), n + 4 = 12 + udp_length.
    let error = polynomial::rewind(syndrome, udp_length + 12);
    if error & !HIDDEN != 0 {
        return None;
    }
    let word = u32::from_le_bytes(expected.word()) ^ error;
    let [high, low, flags, _] = word.to_le_bytes();
    Some(Identification {
        id: u16::from_be_bytes([high, low]),
        dont_fragment: flags & DONT_FRAGMENT != 0,
    })
}
