//! What can be wrong with a capture file, each with its name and place.

use std::fmt;
use std::io;

/// A capture file cannot be read on. The records before it have all been delivered.
#[derive(Debug)]
pub struct FileError {
    /// The byte of the file where the record or block at fault starts.
    pub offset: u64,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a capture file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The file is empty.
    Empty,
    /// The first bytes are not those of pcap or pcapng.
    NotACapture {
        /// The first four bytes.
        found: [u8; 4],
        /// What the file seems to be instead, and what to do about it.
        hint: Option<&'static str>,
    },
    /// A relative of pcap that records more per packet, and that is not read here.
    UnsupportedVariant {
        /// Its magic number.
        magic: u32,
        /// What it is known as.
        name: &'static str,
    },
    /// A version of the format that is not known. For pcapng, only the section that has it is
    /// skipped, and this is reported once everything else has been read.
    UnsupportedVersion {
        /// The format.
        format: super::Format,
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// Bits of the pcap header that must be zero are not, so the link type beside them is not to
    /// be trusted.
    ReservedBits {
        /// The field they are in.
        field: u32,
    },
    /// The file ends inside of something.
    Truncated {
        /// What it ends in.
        inside: &'static str,
        /// How many bytes that has.
        needed: u64,
        /// How many of them the file still has.
        available: u64,
    },
    /// A length is larger than what it is the length of can be.
    InvalidLength {
        /// The length of what.
        of: &'static str,
        /// What the file says.
        length: u64,
        /// What it can be at most.
        limit: u64,
    },
    /// A pcapng block is too short for its own fixed fields.
    BlockTooShort {
        /// The block's type number.
        block_type: u32,
        /// Its length.
        length: u32,
        /// The least length of a block of this type.
        minimum: u32,
    },
    /// The length of a pcapng block is not a multiple of 4.
    MisalignedBlock {
        /// Its length.
        length: u32,
    },
    /// The length at the end of a pcapng block is not the one at its start.
    TrailerMismatch {
        /// The length at the start.
        header: u32,
        /// The length at the end.
        trailer: u32,
    },
    /// A pcapng section does not say what its byte order is.
    BadByteOrderMagic {
        /// What it has instead, as the file has the bytes.
        found: [u8; 4],
    },
    /// A packet refers to an interface that the section has not described.
    UnknownInterface {
        /// The interface it refers to.
        interface: u32,
        /// How many were described before it.
        described: usize,
    },
    /// A section describes more interfaces than are kept.
    TooManyInterfaces {
        /// The most a section may have.
        limit: usize,
    },
    /// The input itself failed.
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
            // The place is no news for what is wrong with the file as a whole.
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
                "the {of} is given as {length} bytes and can be at most {limit}: \
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
                "a block says {header} bytes at its start and {trailer} at its end: \
                 the file is damaged here"
            ),
            Problem::BadByteOrderMagic { found: [a, b, c, d] } => write!(
                f,
                "a section starts without its byte-order magic: \
                 {a:02x} {b:02x} {c:02x} {d:02x} instead of 1a 2b 3c 4d in either order"
            ),
            Problem::UnknownInterface { interface, described } => write!(
                f,
                "a packet was captured on interface {interface}, \
                 and the section has described {described} so far"
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
/// All but [`WriteError::Io`] are found before the first byte is written, so the file is as sound
/// as before and more can be written to it.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The output itself failed; the file may end inside of a record.
    Io(io::Error),
    /// The packet is longer than Wireshark and libpcap read.
    PacketTooLong {
        /// How long it is.
        length: usize,
    },
    /// A name or comment does not fit in the 16 bits of an option's length.
    TextTooLong {
        /// How many bytes it has.
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
