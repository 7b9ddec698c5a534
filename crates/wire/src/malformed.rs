//! Parse errors of packets.

use core::fmt;

/// A parse error and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Offset of the header at fault in the bytes passed to the parser.
    pub offset: usize,
    /// The problem.
    pub problem: Problem,
}

/// The ways in which a packet can be malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The packet ends within a header.
    Short {
        /// The header's name.
        header: &'static str,
        /// Length of the header.
        needed: usize,
        /// Bytes available.
        available: usize,
    },
    /// The capture truncated the packet within a header.
    Snapped {
        /// The header's name.
        header: &'static str,
        /// Length of the header.
        needed: usize,
        /// Bytes captured.
        available: usize,
    },
    /// A version field has an unknown value.
    Version {
        /// The header's name.
        header: &'static str,
        /// The value found.
        found: u8,
    },
    /// A length field exceeds the packet, or is less than the header.
    Length {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: usize,
        /// The minimum.
        min: usize,
        /// The maximum.
        max: usize,
    },
    /// The BTH pad count exceeds the payload.
    Pad {
        /// The pad count.
        pad: usize,
        /// Bytes between the headers and the ICRC.
        available: usize,
    },
    /// An IP fragment: RoCE packets are never fragmented, so the rest cannot be parsed.
    Fragment {
        /// Its offset in bytes.
        offset: usize,
    },
    /// Too many VLAN tags.
    VlanDepth,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { header, needed, available } => {
                write!(
                    f,
                    "{header} has {needed} bytes, but only {available} bytes of the packet are left"
                )
            }
            Self::Snapped { header, needed, available } => write!(
                f,
                "{header} has {needed} bytes, but only {available} were captured: record with a larger snap length"
            ),
            Self::Version { header, found } => write!(f, "{header} of unknown version {found}"),
            Self::Length { field, value, min, max } if value < min => {
                write!(f, "{field} is {value}, but must be at min {min} (and at max {max})")
            }
            Self::Length { field, value, max, .. } => {
                write!(f, "{field} is {value}, but only {max} bytes are available")
            }
            Self::Pad { pad, available } => {
                write!(f, "BTH pad count is {pad}, but only {available} bytes precede the ICRC")
            }
            Self::Fragment { offset } => {
                write!(f, "IP fragment at offset {offset}: RoCE packets are never fragmented")
            }
            Self::VlanDepth => f.write_str("more than two VLAN tags"),
        }
    }
}

impl core::error::Error for Malformed {}
