//! Errors of reading and writing capture files.

use std::fmt;
use std::io;

/// A capture file cannot be read further. All records before the error have been delivered.
#[derive(Debug)]
pub struct FileError {
    /// Offset in the file of the record or block at fault.
    pub offset: u64,
    /// The problem.
    pub problem: Problem,
}

/// A problem of a capture file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The file is empty.
    Empty,
    /// The first bytes are not those of pcap or pcapng.
    NotACapture {
        /// The first four bytes.
        found: [u8; 4],
        /// What the file seems to be, and how to make it readable.
        hint: Option<&'static str>,
    },
    /// An unsupported pcap variant with other record headers.
    UnsupportedVariant {
        /// Its magic number.
        magic: u32,
        /// Its name.
        name: &'static str,
    },
    /// An unknown version of the format. In pcapng, only the section is skipped, and the error is
    /// reported after the rest of the file.
    UnsupportedVersion {
        /// The format.
        format: super::Format,
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// Reserved bits of the pcap header are set, so the link type in the same field cannot be trusted.
    ReservedBits {
        /// The field with the reserved bits.
        field: u32,
    },
    /// The file ends within a structure.
    Truncated {
        /// The structure.
        inside: &'static str,
        /// Its length in bytes.
        needed: u64,
        /// Bytes left in the file.
        available: u64,
    },
    /// A length exceeds its limit.
    InvalidLength {
        /// The structure with this length.
        of: &'static str,
        /// The length in the file.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// A pcapng block is too short for its fixed fields.
    BlockTooShort {
        /// The block type.
        block_type: u32,
        /// Its length.
        length: u32,
        /// The minimum length of a block of this type.
        minimum: u32,
    },
    /// The length of a pcapng block is not a multiple of 4.
    MisalignedBlock {
        /// Its length.
        length: u32,
    },
    /// The lengths at start and end of a pcapng block differ.
    TrailerMismatch {
        /// The length at the start.
        header: u32,
        /// The length at the end.
        trailer: u32,
    },
    /// A pcapng section has no valid byte-order magic.
    BadByteOrderMagic {
        /// The bytes found instead.
        found: [u8; 4],
    },
    /// A packet refers to an interface not described in its section.
    UnknownInterface {
        /// The interface index.
        interface: u32,
        /// Number of interfaces described so far.
        described: usize,
    },
    /// A section describes too many interfaces.
    TooManyInterfaces {
        /// The limit per section.
        limit: usize,
    },
    /// Reading the input failed.
    Io(io::Error),
}

impl FileError {
    pub(super) fn new(offset: u64, problem: Problem) -> FileError {
        FileError { offset, problem }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problem {
            // These concern the file as a whole.
            Problem::Empty | Problem::NotACapture { .. } | Problem::UnsupportedVariant { .. } => {
                self.problem.fmt(f)
            }
            _ => write!(f, "at byte {}: {}", self.offset, self.problem),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Empty => f.write_str("the file is empty"),
            Problem::NotACapture { found: [a, b, c, d], hint } => {
                write!(
                    f,
                    "not a pcap or pcapng file: it starts with {a:02x} {b:02x} {c:02x} {d:02x}"
                )?;
                match hint {
                    Some(hint) => write!(f, ", which looks like {hint}"),
                    None => Ok(()),
                }
            }
            Problem::UnsupportedVariant { magic, name } => write!(
                f,
                "{name} (magic number 0x{magic:08x}) is not supported; \
                 convert it with `editcap -F pcapng`"
            ),
            Problem::UnsupportedVersion { format, major, minor } => {
                write!(f, "version {major}.{minor} of {format} is not supported")
            }
            Problem::ReservedBits { field } => write!(
                f,
                "the link type field of the header, 0x{field:08x}, has bits set that are reserved"
            ),
            Problem::Truncated { inside, needed, available } => write!(
                f,
                "the file is cut short: a {inside} of {needed} bytes starts here \
                 and only {available} bytes follow"
            ),
            Problem::InvalidLength { of, length, limit } => write!(
                f,
                "the {of} is {length} bytes, but the limit is {limit}: \
                 the file is damaged here"
            ),
            Problem::BlockTooShort { block_type, length, minimum } => write!(
                f,
                "a block of type 0x{block_type:08x} has {length} bytes \
                 and needs at least {minimum}: the file is damaged here"
            ),
            Problem::MisalignedBlock { length } => write!(
                f,
                "a block has {length} bytes, which is not a multiple of 4: \
                 the file is damaged here"
            ),
            Problem::TrailerMismatch { header, trailer } => write!(
                f,
                "a block has length {header} at its start and {trailer} at its end: \
                 the file is damaged here"
            ),
            Problem::BadByteOrderMagic { found: [a, b, c, d] } => write!(
                f,
                "a section starts without its byte-order magic: \
                 {a:02x} {b:02x} {c:02x} {d:02x} instead of 1a 2b 3c 4d in either order"
            ),
            Problem::UnknownInterface { interface, described } => write!(
                f,
                "a packet refers to interface {interface}, \
                 but the section has described only {described}"
            ),
            Problem::TooManyInterfaces { limit } => {
                write!(f, "the section describes more than {limit} interfaces")
            }
            Problem::Io(error) => write!(f, "cannot read: {error}"),
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// A packet or an interface cannot be written.
///
/// All errors but [`WriteError::Io`] are detected before anything is written, so the file stays
/// valid and writing can continue.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// Writing the output failed; the file may end within a record.
    Io(io::Error),
    /// The packet is longer than Wireshark and libpcap accept.
    PacketTooLong {
        /// Its length.
        length: usize,
    },
    /// A name or comment does not fit in the 16 bits of an option's length.
    TextTooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The format cannot hold this time: before 1970, or after 2106 in a pcap file.
    TimestampOutOfRange(super::Timestamp),
    /// The packet refers to an interface that was not added.
    UnknownInterface(u32),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::Io(error) => write!(f, "cannot write: {error}"),
            WriteError::PacketTooLong { length } => write!(
                f,
                "a packet of {length} bytes is too long for a capture file (at most {})",
                super::MAX_WRITTEN_LEN
            ),
            WriteError::TextTooLong { length } => write!(
                f,
                "a text of {length} bytes is too long for a capture file (at most {})",
                u16::MAX
            ),
            WriteError::TimestampOutOfRange(timestamp) => {
                write!(f, "the capture file cannot hold the time {timestamp}")
            }
            WriteError::UnknownInterface(interface) => {
                write!(f, "interface {interface} was not added to the capture file")
            }
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WriteError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> WriteError {
        WriteError::Io(error)
    }
}
