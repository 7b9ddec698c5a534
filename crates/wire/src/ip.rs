//! IPv4, IPv6 and UDP headers, the encapsulation of RoCEv2 (IBA A17).

use core::fmt;

use crate::address::{Gid, Ip4};
use crate::field::header;
use crate::number::numbers;

/// The UDP destination port of RoCEv2, registered with IANA (IBA A17.3.1.1).
pub const ROCE_PORT: u16 = 4791;

header! {
    /// IPv4 header without options (RFC 791).
    pub struct Ipv4("IPv4", 20) {
        /// Always 4.
        version: u8 = 4,
        /// Header length in 32-bit words.
        header_words: u8 = 4,
        /// Differentiated services.
        dscp: u8 = 6,
        /// Explicit congestion notification.
        ecn: Ecn = 2,
        /// Length of header and payload in bytes.
        total_length: u16 = 16,
        /// Identification; covered by the ICRC.
        identification: Identification = 16,
        /// Reserved flag.
        reserved: bool = 1,
        /// Do not fragment: set by RoCE (IBA A17.3.1).
        dont_fragment: bool = 1,
        /// More fragments follow.
        more_fragments: bool = 1,
        /// Fragment offset in units of 8 bytes.
        fragment_offset: u16 = 13,
        /// Time to live.
        time_to_live: u8 = 8,
        /// Type of the next header.
        protocol: IpProtocol = 8,
        /// Header checksum.
        checksum: Checksum = 16,
        /// Source address.
        source: Ip4 = 32,
        /// Destination address.
        destination: Ip4 = 32,
    }

    /// IPv6 header (RFC 8200).
    pub struct Ipv6("IPv6", 40) {
        /// Always 6.
        version: u8 = 4,
        /// Differentiated services.
        dscp: u8 = 6,
        /// Explicit congestion notification.
        ecn: Ecn = 2,
        /// Flow label.
        flow_label: u32 = 20,
        /// Length after this header in bytes.
        payload_length: u16 = 16,
        /// Type of the next header.
        next_header: IpProtocol = 8,
        /// Hop limit.
        hop_limit: u8 = 8,
        /// Source address.
        source: Gid = 128,
        /// Destination address.
        destination: Gid = 128,
    }

    /// UDP header (RFC 768).
    pub struct Udp("UDP", 8) {
        /// Source port: entropy for ECMP in RoCEv2 (IBA A17.3.1.1).
        source_port: u16 = 16,
        /// Destination port: 4791 for RoCEv2.
        destination_port: u16 = 16,
        /// Length of header and payload in bytes.
        length: u16 = 16,
        /// Checksum; zero means none, as RoCEv2 allows.
        checksum: Checksum = 16,
    }
}

numbers! {
    /// Explicit congestion notification (RFC 3168 5).
    pub struct Ecn(u8), 3, |ecn| match ecn.0 {
        0 => "not ECN-capable",
        1 => "ECN-capable, ECT(1)",
        2 => "ECN-capable, ECT(0)",
        _ => "congestion experienced",
    };
    /// IPv4 identification.
    pub struct Identification(u16), 6;
    /// IP or UDP checksum.
    pub struct Checksum(u16), 6;
    /// Type of the header after an IP header.
    pub struct IpProtocol(u8), 4, |protocol| match protocol.0 {
        0 => "IPv6 hop-by-hop options",
        1 => "ICMP",
        6 => "TCP",
        17 => "UDP",
        27 => "InfiniBand BTH",
        44 => "IPv6 fragment",
        58 => "ICMPv6",
        _ => "",
    };
}

impl Ecn {
    /// Not ECN-capable: routers drop instead of marking.
    pub const NOT_CAPABLE: Self = Self(0);
    /// ECT(0): ECN-capable transport.
    pub const CAPABLE_0: Self = Self(2);
    /// CE: congestion experienced.
    pub const CONGESTION_EXPERIENCED: Self = Self(3);
}

impl IpProtocol {
    /// UDP.
    pub const UDP: Self = Self(17);
    /// A GRH's next header when a BTH follows (IBA 8.3).
    pub const BTH: Self = Self(0x1b);
    /// IPv6's fragment header.
    pub const IPV6_FRAGMENT: Self = Self(44);
}

/// The Internet checksum (RFC 1071) as a running sum, for the IPv4 header and for UDP with its pseudo-header.
#[derive(Clone, Copy, Default)]
pub struct InternetChecksum(u64);

impl InternetChecksum {
    /// Adds bytes. An odd number is padded with a zero byte, so only the last part may be odd.
    pub fn over(mut self, bytes: &[u8]) -> Self {
        // Four bytes at a time in native byte order: the sum of swapped words is the swapped sum, and 32-bit sums fold to
        // 16 bits (RFC 1071 2).
        let mut words = bytes.chunks_exact(4);
        let mut sum = 0;
        for word in &mut words {
            sum += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
        self.0 += u64::from(u16::from_be(fold(sum)));
        let mut pairs = words.remainder().chunks_exact(2);
        for pair in &mut pairs {
            self.0 += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
        if let [last] = pairs.remainder() {
            self.0 += u64::from(*last) << 8;
        }
        self
    }

    /// Returns the checksum.
    pub fn finish(self) -> Checksum {
        Checksum(!fold(self.0))
    }
}

/// Folds the carries into 16 bits.
fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl fmt::Debug for InternetChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InternetChecksum({})", self.finish())
    }
}

impl Ipv4 {
    /// Length of the header with options in bytes.
    pub fn header_len(&self) -> usize {
        usize::from(self.header_words) * 4
    }

    /// Returns the header with its checksum set, computed without options.
    #[must_use]
    pub fn with_checksum(mut self) -> Self {
        self.checksum = Checksum(0);
        self.checksum = InternetChecksum::default().over(&self.to_bytes()).finish();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, word by word.
    fn plain(bytes: &[u8]) -> u16 {
        let words = bytes.chunks(2).map(|pair| {
            u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
        });
        !fold(words.sum())
    }

    #[test]
    fn checksums_match_rfc_1071_for_every_length_and_split() {
        let bytes: [u8; 600] = core::array::from_fn(|at| (at * 197 + at / 7) as u8 | 0x81);
        for len in 0..bytes.len() {
            let whole = InternetChecksum::default().over(&bytes[..len]).finish();
            assert_eq!(whole.0, plain(&bytes[..len]), "{len}");
            // Parts of an even number of bytes.
            let (first, second) = bytes[..len].split_at((len / 3) & !1);
            let parts = InternetChecksum::default().over(first).over(second).finish();
            assert_eq!(parts, whole, "{len}");
        }
        // The example of RFC 1071 3.
        let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(InternetChecksum::default().over(&example).finish(), Checksum(!0xddf2));
    }
}
