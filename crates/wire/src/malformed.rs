//! What can be wrong with bytes that claim to be a packet.

use core::fmt;

/// A problem and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Offset of the header at fault, from the first byte that was given to the parser.
    pub offset: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

/// The ways in which a packet can be malformed, each with the figures that show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The packet ends before a header does.
    Short {
        /// The header's name.
        header: &'static str,
        /// Bytes it takes.
        needed: usize,
        /// Bytes there are.
        available: usize,
    },
    /// The capture kept fewer bytes than the packet had, and the cut went through a header.
    Snapped {
        /// The header's name.
        header: &'static str,
        /// Bytes it takes.
        needed: usize,
        /// Bytes that were kept.
        available: usize,
    },
    /// A version field has a value that this header does not come in.
    Version {
        /// The header's name.
        header: &'static str,
        /// The value found.
        found: u8,
    },
    /// A length field says more than there is, or less than the header itself.
    Length {
        /// The field's name.
        field: &'static str,
        /// What it says.
        says: usize,
        /// The least it could say.
        least: usize,
        /// The most it could say.
        most: usize,
    },
    /// The BTH announces more pad bytes than the packet has payload.
    Pad {
        /// Pad bytes announced.
        pad: usize,
        /// Bytes between the headers and the ICRC.
        available: usize,
    },
    /// An IP fragment: RoCE packets are sent whole, so nothing behind it can be trusted.
    Fragment {
        /// Its offset in bytes.
        offset: usize,
    },
    /// More VLAN tags than are followed.
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
                write!(f, "{header} takes {needed} bytes, the packet has {available} left")
            }
            Self::Snapped { header, needed, available } => write!(
                f,
                "{header} takes {needed} bytes, the capture kept {available}: record with a larger snap length"
            ),
            Self::Version { header, found } => write!(f, "{header} of unknown version {found}"),
            Self::Length { field, says, least, most } if says < least => {
                write!(
                    f,
                    "{field} says {says}, but at least {least} are needed (at most {most} are there)"
                )
            }
            Self::Length { field, says, most, .. } => {
                write!(f, "{field} says {says}, but only {most} bytes are there")
            }
            Self::Pad { pad, available } => {
                write!(
                    f,
                    "BTH announces {pad} pad bytes, but {available} bytes stand before the ICRC"
                )
            }
            Self::Fragment { offset } => {
                write!(f, "IP fragment at offset {offset}: RoCE packets are never fragmented")
            }
            Self::VlanDepth => f.write_str("more than two VLAN tags"),
        }
    }
}

impl core::error::Error for Malformed {}
