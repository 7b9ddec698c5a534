//! Reading pcap.

use std::io::Read;

use super::{FILE_HEADER_LEN, MAGIC_MICROSECONDS, MAGIC_NANOSECONDS, RECORD_HEADER_LEN, VERSION};
use crate::file::MAX_CAPTURED_LEN;
use crate::file::bytes::ByteOrder;
use crate::file::error::{FileError, Problem};
use crate::file::reader::{Format, LocatedRecord};
use crate::file::record::{Interface, Oddities, Oddity};
use crate::file::source::Source;
use crate::link::LinkType;
use crate::timestamp::{Resolution, Timestamp};

/// The state of reading a pcap file.
pub(in crate::file) struct Reader {
    order: ByteOrder,
    /// Nanoseconds in a unit of the fraction: 1 or 1000.
    unit: u32,
    interface: Interface,
}

impl Reader {
    /// Reads the file's header, which starts with `magic`.
    pub(in crate::file) fn new<R: Read>(
        source: &mut Source<R>,
        magic: [u8; 4],
    ) -> Result<Reader, FileError> {
        let fail = |problem| Err(FileError::new(0, problem));
        // Section 4: the magic number is in the byte order of the writer, and so is the rest.
        let (order, resolution, unit) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic))
        {
            (MAGIC_MICROSECONDS, _) => (ByteOrder::Little, Resolution::MICROSECONDS, 1000),
            (_, MAGIC_MICROSECONDS) => (ByteOrder::Big, Resolution::MICROSECONDS, 1000),
            (MAGIC_NANOSECONDS, _) => (ByteOrder::Little, Resolution::NANOSECONDS, 1),
            (_, MAGIC_NANOSECONDS) => (ByteOrder::Big, Resolution::NANOSECONDS, 1),
            (little, big) => match variant(little).or_else(|| variant(big)) {
                Some(variant) => return fail(variant),
                None => return fail(Problem::NotACapture { found: magic, hint: hint(magic) }),
            },
        };
        source.require(FILE_HEADER_LEN, "file header")?;
        let Some(header) = source.available().first_chunk::<FILE_HEADER_LEN>() else {
            return fail(Problem::Empty);
        };
        let version = (order.u16(header, 4), order.u16(header, 6));
        if version != VERSION {
            let (major, minor) = version;
            return fail(Problem::UnsupportedVersion { format: Format::Pcap, major, minor });
        }
        // Section 4, figure 2: bits 0 to 3 are the length of the frame check sequence and bit 5
        // says whether that is valid, which is not needed here. Bit 4 and
        // bits 6 to 15 are reserved, and a reader should treat them as an error if set.
        let field = order.u32(header, 20);
        if field & 0x0bff_0000 != 0 {
            return fail(Problem::ReservedBits { field });
        }
        let interface = Interface {
            link: LinkType(field as u16),
            snap_len: order.u32(header, 16),
            name: None,
            description: None,
            resolution,
            offset_seconds: 0,
        };
        source.take(FILE_HEADER_LEN);
        Ok(Reader { order, unit, interface })
    }

    pub(in crate::file) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Locates the next record.
    #[inline]
    pub(in crate::file) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
    ) -> Result<Option<LocatedRecord>, FileError> {
        if source.fill(RECORD_HEADER_LEN)? == 0 {
            return Ok(None);
        }
        source.require(RECORD_HEADER_LEN, "record header")?;
        let Some(header) = source.available().first_chunk::<RECORD_HEADER_LEN>() else {
            return Ok(None);
        };
        let order = self.order;
        let (seconds, fraction) = (order.u32(header, 0), order.u32(header, 4));
        let (captured_len, original_len) = (order.u32(header, 8), order.u32(header, 12));

        let offset = source.offset();
        if captured_len > MAX_CAPTURED_LEN {
            let (length, limit) = (u64::from(captured_len), u64::from(MAX_CAPTURED_LEN));
            let problem = Problem::InvalidLength { of: "captured length", length, limit };
            return Err(FileError::new(offset, problem));
        }
        let record_len = RECORD_HEADER_LEN + captured_len as usize;
        source.require(record_len, "record")?;
        let taken = source.take(record_len);

        // 32 bits of seconds and at most 43 bits of nanoseconds: no overflow.
        let nanoseconds = i64::from(fraction) * i64::from(self.unit);
        let timestamp = i64::from(seconds) * 1_000_000_000 + nanoseconds;
        let mut oddities = Oddities::NONE;
        oddities.note(Oddity::FractionOverflow, nanoseconds >= 1_000_000_000);
        oddities.note_lengths(captured_len, original_len, self.interface.snap_len);
        Ok(Some(LocatedRecord {
            offset,
            header_len: RECORD_HEADER_LEN as u32,
            timestamp: Some(Timestamp::from_nanoseconds(timestamp)),
            interface: 0,
            original_len,
            data: taken.start + RECORD_HEADER_LEN..taken.end,
            options: 0..0,
            dropped: 0,
            oddities,
        }))
    }
}

/// Unsupported pcap variants, whose records have other headers.
fn variant(magic: u32) -> Option<Problem> {
    let name = match magic {
        0xa1b2_cd34 => "modified pcap (Kuznetzov's libpcap patch)",
        0x1c00_01ab => "pcap of IXIA software",
        0x1c00_01ac => "pcap of IXIA hardware",
        _ => return None,
    };
    Some(Problem::UnsupportedVariant { magic, name })
}

/// Guesses the type of a file that is not a capture.
fn hint(magic: [u8; 4]) -> Option<&'static str> {
    Some(match magic {
        [0x1f, 0x8b, ..] => "gzip: decompress it first",
        [0x28, 0xb5, 0x2f, 0xfd] => "zstd: decompress it first",
        [0xfd, b'7', b'z', b'X'] => "xz: decompress it first",
        [b'B', b'Z', b'h', _] => "bzip2: decompress it first",
        [0x04, 0x22, 0x4d, 0x18] => "lz4: decompress it first",
        [b'P', b'K', 3, 4] => "a zip archive: unpack it first",
        [b's', b'n', b'o', b'o'] => "Solaris snoop: convert it with `editcap -F pcapng`",
        [b'G', b'M', b'B', b'U'] | [b'R', b'T', b'S', b'S'] => {
            "Microsoft Network Monitor: convert it with `editcap -F pcapng`"
        }
        // draft-ietf-opsawg-pcapng section 4.1: the result of a line-ending conversion of its magic.
        [0x0a, 0x0d, 0x0a, _] | [0x0d, 0x0a, 0x0d, 0x0d] => {
            "pcapng damaged by a transfer in text mode: transfer it again, in binary mode"
        }
        text if text.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t')) => {
            "text"
        }
        _ => return None,
    })
}
