//! The invariant CRC (ICRC): 32 bits over all fields of a packet that routers and switches must not change.
//!
//! It is the CRC-32 of Ethernet (IEEE 802.3: polynomial 0x04c11db7, reflected, initial value and
//! final complement of ones) over the packet from its first header to its last pad byte, with each
//! field that may change in transit replaced by ones. It is stored in the last four bytes of the packet, least
//! significant byte first. InfiniBand Architecture Volume 1, section 7.8.1, and for RoCEv2 its
//! Annex A17.3.3.
//!
//! | packet | starts with | replaced by ones |
//! |---|---|---|
//! | RoCEv2 over IPv4 | 64 ones for the absent LRH, IPv4 header | type of service, time to live, header checksum, UDP checksum, BTH resv8a |
//! | RoCEv2 over IPv6 | 64 ones for the absent LRH, IPv6 header | traffic class, flow label, hop limit, UDP checksum, BTH resv8a |
//! | RoCEv1 | 64 ones for the absent LRH, GRH | traffic class, flow label, hop limit, BTH resv8a |
//! | InfiniBand, global | LRH, GRH | all of the LRH, traffic class, flow label, hop limit, BTH resv8a |
//! | InfiniBand, local | LRH | virtual lane, BTH resv8a |
//!
//! [`Icrc`] takes a packet in pieces, for gathering senders; [`check`] and [`verify`] take a whole packet.
//! [`hidden`] checks packets received from a UDP socket over IPv4, where two covered fields are not
//! visible.

mod check;
pub mod hidden;
#[cfg(test)]
mod tests;

pub use check::{Check, Encapsulation, Malformed, check, verify};

use crc32fast::Hasher;

/// Length of the ICRC, the last bytes of a packet.
pub const LENGTH: usize = 4;

/// The CRC-32 of eight bytes of ones, which replace InfiniBand's local route header (IBA Annex A16 for
/// RoCEv1, A17.3.3 for RoCEv2).
const AFTER_LRH_OF_ONES: u32 = 0x2144_df1c;

/// An ICRC computation in progress.
///
/// ```
/// use ferroce_wire::icrc::Icrc;
///
/// # let (ip, udp, bth, aeth) = ([0x45; 20], [0; 8], [0x11; 12], [0; 4]);
/// let mut icrc = Icrc::ipv4(&ip, &udp, &bth);
/// icrc.update(&aeth); // extension headers, then payload, then pad bytes
/// let last_four_bytes_of_the_packet = icrc.finish();
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Icrc {
    crc: Hasher,
}

impl Icrc {
    /// Starts a RoCEv2 packet over IPv4 without options.
    #[inline]
    pub fn ipv4(ip: &[u8; 20], udp: &[u8; 8], bth: &[u8; 12]) -> Self {
        let mut headers = [0; 40];
        headers[..20].copy_from_slice(ip);
        headers[20..28].copy_from_slice(udp);
        headers[28..].copy_from_slice(bth);
        Self::ipv4_headers(&headers)
    }

    /// Starts a RoCEv2 packet over IPv4, `ip` being the header with its options if it has any.
    ///
    /// Options are covered unmodified: the specification does not list any of their fields as replaced.
    ///
    /// # Errors
    /// [`Malformed::Ipv4HeaderLength`] if `ip` is not as long as its own header length field says,
    /// or that is below 20 bytes.
    pub fn ipv4_with_options(ip: &[u8], udp: &[u8; 8], bth: &[u8; 12]) -> Result<Self, Malformed> {
        let Some((fixed, options)) = ip.split_first_chunk::<20>() else {
            return Err(Malformed::Ipv4HeaderLength);
        };
        if ipv4_header_length(fixed[0]) != ip.len() {
            return Err(Malformed::Ipv4HeaderLength);
        }
        let mut icrc = Self::after_lrh_of_ones(&replace(fixed, &IPV4));
        icrc.update(options);
        icrc.update(&replace(udp, &UDP));
        icrc.update(&replace(bth, &BTH));
        Ok(icrc)
    }

    /// Starts a RoCEv2 packet over IPv6.
    #[inline]
    pub fn ipv6(ip: &[u8; 40], udp: &[u8; 8], bth: &[u8; 12]) -> Self {
        let mut headers = [0; 60];
        headers[..40].copy_from_slice(ip);
        headers[40..48].copy_from_slice(udp);
        headers[48..].copy_from_slice(bth);
        Self::ipv6_headers(&headers)
    }

    /// Starts a RoCEv1 packet (EtherType 0x8915).
    #[inline]
    pub fn roce_v1(grh: &[u8; 40], bth: &[u8; 12]) -> Self {
        let mut headers = [0; 52];
        headers[..40].copy_from_slice(grh);
        headers[40..].copy_from_slice(bth);
        Self::after_lrh_of_ones(&replace(&headers, &const { join::<52>(&[&IPV6, &BTH]) }))
    }

    /// Starts a packet on InfiniBand itself.
    pub fn native(lrh: &[u8; 8], grh: Option<&[u8; 40]>, bth: &[u8; 12]) -> Self {
        match grh {
            // Routers replace the LRH, so it is not covered in a global packet (IBA 7.8.1).
            Some(grh) => Self::roce_v1(grh, bth),
            None => {
                let mut crc = Hasher::new();
                crc.update(&replace(lrh, &LRH));
                crc.update(&replace(bth, &BTH));
                Self { crc }
            }
        }
    }

    /// Starts with contiguous headers: IPv4 without options, UDP and BTH.
    #[inline]
    fn ipv4_headers(headers: &[u8; 40]) -> Self {
        Self::after_lrh_of_ones(&replace(headers, &const { join::<40>(&[&IPV4, &UDP, &BTH]) }))
    }

    /// Starts with contiguous headers: IPv6, UDP and BTH.
    #[inline]
    fn ipv6_headers(headers: &[u8; 60]) -> Self {
        Self::after_lrh_of_ones(&replace(headers, &const { join::<60>(&[&IPV6, &UDP, &BTH]) }))
    }

    #[inline]
    fn after_lrh_of_ones(covered: &[u8]) -> Self {
        let mut crc = Hasher::new_with_initial(AFTER_LRH_OF_ONES);
        crc.update(covered);
        Self { crc }
    }

    /// Adds the next bytes: extension headers, payload and pad, in packet order.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
    }

    /// Returns the four bytes that end the packet.
    #[inline]
    #[must_use]
    pub fn finish(self) -> [u8; LENGTH] {
        // IBA 7.8.1 sends the CRC's bits in an order that makes its bytes little-endian here.
        self.crc.finalize().to_le_bytes()
    }
}

/// Length of an IPv4 header, from its first byte.
fn ipv4_header_length(first: u8) -> usize {
    usize::from(first & 0x0f) * 4
}

// The bits of each header that are replaced by ones because they may change in transit.

/// IBA A17.3.3: type of service, time to live and header checksum.
const IPV4: [u8; 20] = ones(&[(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff)]);

/// IBA 7.8.1 (GRH, which is laid out as an IPv6 header) and A17.3.3 (IPv6): traffic class, flow label
/// and hop limit. The upper half of the first byte is the version, which is covered.
const IPV6: [u8; 40] = ones(&[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)]);

/// IBA A17.3.3: the checksum, which covers mutable bytes.
const UDP: [u8; 8] = ones(&[(6, 0xff), (7, 0xff)]);

/// IBA 7.8.1: resv8a, whose top bits are FECN (IBA A10) and BECN.
const BTH: [u8; 12] = ones(&[(4, 0xff)]);

/// IBA 7.8.1: the virtual lane of a local packet, which switches remap.
const LRH: [u8; 8] = ones(&[(0, 0xf0)]);

const fn ones<const N: usize>(fields: &[(usize, u8)]) -> [u8; N] {
    let mut bits = [0; N];
    let mut field = 0;
    while field < fields.len() {
        bits[fields[field].0] = fields[field].1;
        field += 1;
    }
    bits
}

const fn join<const N: usize>(headers: &[&[u8]]) -> [u8; N] {
    let (mut joined, mut length, mut header) = ([0; N], 0, 0);
    while header < headers.len() {
        let mut byte = 0;
        while byte < headers[header].len() {
            joined[length] = headers[header][byte];
            (length, byte) = (length + 1, byte + 1);
        }
        header += 1;
    }
    assert!(length == N);
    joined
}

/// Returns the headers with these bits replaced by ones.
#[inline]
fn replace<const N: usize>(headers: &[u8; N], ones: &[u8; N]) -> [u8; N] {
    // A uniform loop that the compiler vectorizes; the CRC then reads whole vectors without store-forwarding stalls.
    core::array::from_fn(|byte| headers[byte] | ones[byte])
}
