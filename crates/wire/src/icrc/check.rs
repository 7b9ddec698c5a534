//! ICRC check of a whole packet.

use core::fmt;

use super::{Icrc, LENGTH, ipv4_header_length};

/// Encapsulation of a packet, which determines its first header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encapsulation {
    /// RoCEv2: an IPv4 header, with or without options.
    Ipv4,
    /// RoCEv2: an IPv6 header without extension headers.
    Ipv6,
    /// RoCEv1: a global route header.
    RoceV1,
    /// InfiniBand: a local route header, optionally followed by a global one.
    Native,
}

/// A packet without a locatable ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// It is too short for a BTH and an ICRC.
    TooShort,
    /// Its IPv4 header length is below 20 bytes, or does not match the header.
    Ipv4HeaderLength,
    /// It is a raw InfiniBand packet (LRH next header 0 or 1), which carries no ICRC (IBA 7.8.1).
    Raw,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "packet too short for a BTH and an ICRC",
            Self::Ipv4HeaderLength => "IPv4 header length is wrong",
            Self::Raw => "raw InfiniBand packets carry no ICRC",
        })
    }
}

impl core::error::Error for Malformed {}

/// The computed and the received ICRC of a packet, in wire order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Check {
    /// The ICRC computed from the packet's bytes.
    pub computed: [u8; LENGTH],
    /// The ICRC in the packet.
    pub found: [u8; LENGTH],
}

impl Check {
    /// Whether both are equal.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.computed == self.found
    }
}

/// Computes the ICRC of `packet`, whose last four bytes are the received one.
///
/// `packet` must not include anything after the ICRC: Ethernet padding and FCS, or InfiniBand's VCRC.
///
/// # Errors
/// [`Malformed`] if the packet has no ICRC.
pub fn check(encapsulation: Encapsulation, packet: &[u8]) -> Result<Check, Malformed> {
    let (packet, found) = packet.split_last_chunk::<LENGTH>().ok_or(Malformed::TooShort)?;
    let (icrc, rest) = match encapsulation {
        Encapsulation::Ipv4 => {
            let length = ipv4_header_length(*packet.first().ok_or(Malformed::TooShort)?);
            if length == 20 {
                let (headers, rest) = take(packet)?;
                return Ok(finish(Icrc::ipv4_headers(headers), rest, found));
            }
            let (ip, rest) = packet.split_at_checked(length).ok_or(Malformed::TooShort)?;
            let (udp, rest) = take(rest)?;
            let (bth, rest) = take(rest)?;
            (Icrc::ipv4_with_options(ip, udp, bth)?, rest)
        }
        Encapsulation::Ipv6 => {
            let (headers, rest) = take(packet)?;
            (Icrc::ipv6_headers(headers), rest)
        }
        Encapsulation::RoceV1 => {
            let (grh, rest) = take(packet)?;
            let (bth, rest) = take(rest)?;
            (Icrc::roce_v1(grh, bth), rest)
        }
        Encapsulation::Native => {
            let (lrh, rest) = take::<8>(packet)?;
            // Link next header (IBA 7.7): 3 IBA global, 2 IBA local, 1 and 0 raw.
            let (grh, rest) = match lrh[1] & 0b11 {
                0b11 => take(rest).map(|(grh, rest)| (Some(grh), rest))?,
                0b10 => (None, rest),
                _ => return Err(Malformed::Raw),
            };
            let (bth, rest) = take(rest)?;
            (Icrc::native(lrh, grh, bth), rest)
        }
    };
    Ok(finish(icrc, rest, found))
}

fn finish(mut icrc: Icrc, rest: &[u8], found: &[u8; LENGTH]) -> Check {
    icrc.update(rest);
    Check { computed: icrc.finish(), found: *found }
}

/// Whether `packet` ends with a correct ICRC.
#[must_use]
pub fn verify(encapsulation: Encapsulation, packet: &[u8]) -> bool {
    check(encapsulation, packet).is_ok_and(|check| check.is_ok())
}

/// The next `N` bytes and the rest.
fn take<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), Malformed> {
    bytes.split_first_chunk().ok_or(Malformed::TooShort)
}
