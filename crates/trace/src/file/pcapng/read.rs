//! Reading pcapng.

use std::io::Read;

use super::options::{Options, add_comment, kept_text};
use super::{
    BLOCK_HEADER_LEN, BLOCK_TRAILER_LEN, BYTE_ORDER_MAGIC, DIRECTION_INBOUND, DIRECTION_MASK,
    DIRECTION_OUTBOUND, INTERFACE_FIXED_LEN, MIN_BLOCK_LEN, PACKET_FIXED_LEN, SECTION_FIXED_LEN,
    SECTION_MAGIC, SIMPLE_PACKET_FIXED_LEN, STATISTICS_FIXED_LEN, block_type, option_code,
};
use crate::file::bytes::{ByteOrder, padded};
use crate::file::drop_counters::DropCounters;
use crate::file::error::{FileError, Problem};
use crate::file::reader::{Annotations, Format, LocatedRecord};
use crate::file::record::{Direction, Interface, Oddities, Oddity};
use crate::file::source::Source;
use crate::file::{MAX_BLOCK_LEN, MAX_CAPTURED_LEN, MAX_INTERFACES};
use crate::link::LinkType;
use crate::timestamp::Resolution;

/// Limit of the length of a parsed statistics block. Longer ones are skipped.
const MAX_STATISTICS_LEN: u32 = 1 << 16;

/// The state of reading a pcapng file: that of its current section.
pub(in crate::file) struct Reader {
    order: ByteOrder,
    /// Number of earlier sections.
    section: u32,
    interfaces: Vec<Interface>,
    drop_counters: DropCounters,
    comment: Option<String>,
    /// Whether the version of the section is supported.
    readable: bool,
    /// Error of an unsupported section, reported after the rest of the file.
    unreadable: Option<FileError>,
}

/// Type, length and offset of a block.
#[derive(Clone, Copy)]
struct Block {
    offset: u64,
    kind: u32,
    length: u32,
}

impl Block {
    fn fail<T>(self, problem: Problem) -> Result<T, FileError> {
        Err(FileError::new(self.offset, problem))
    }

    /// Checks that the block has at least `fixed` bytes and its trailer.
    fn require(self, fixed: usize) -> Result<(), FileError> {
        let minimum = (fixed + BLOCK_TRAILER_LEN) as u32;
        if self.length < minimum {
            let (block_type, length) = (self.kind, self.length);
            return self.fail(Problem::BlockTooShort { block_type, length, minimum });
        }
        Ok(())
    }
}

impl Reader {
    /// Reads the first Section Header Block.
    pub(in crate::file) fn new<R: Read>(source: &mut Source<R>) -> Result<Reader, FileError> {
        let mut reader = Reader {
            order: ByteOrder::Little,
            section: 0,
            interfaces: Vec::new(),
            drop_counters: DropCounters::default(),
            comment: None,
            readable: false,
            unreadable: None,
        };
        if let Some(block) = reader.block(source)? {
            reader.start_section(source, block)?;
        }
        Ok(reader)
    }

    pub(in crate::file) fn section(&self) -> u32 {
        self.section
    }

    pub(in crate::file) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(in crate::file) fn dropped(&self) -> u64 {
        self.drop_counters.total()
    }

    pub(in crate::file) fn comment(&self) -> Option<&str> {
        self.comment.as_deref()
    }

    /// Locates the next packet, processing section and interface blocks before it.
    #[inline]
    pub(in crate::file) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
    ) -> Result<Option<LocatedRecord>, FileError> {
        loop {
            let Some(block) = self.block(source)? else {
                return self.unreadable.take().map_or(Ok(None), Err);
            };
            match block.kind {
                block_type::SECTION_HEADER => {
                    self.section = self.section.saturating_add(1);
                    self.start_section(source, block)?;
                }
                // Section 3.4: everything up to the next section must be skipped.
                _ if !self.readable => self.skip(source, block)?,
                block_type::ENHANCED_PACKET | block_type::PACKET => {
                    let found = self.packet(source, block)?;
                    if found.dropped > 0 {
                        self.drop_counters.count(found.interface, found.dropped);
                    }
                    return Ok(Some(found));
                }
                block_type::SIMPLE_PACKET => return self.simple_packet(source, block).map(Some),
                block_type::INTERFACE_DESCRIPTION => self.describe_interface(source, block)?,
                block_type::INTERFACE_STATISTICS if block.length <= MAX_STATISTICS_LEN => {
                    self.statistics(source, block)?;
                }
                // Section 3.1: unknown blocks can be ignored.
                _ => self.skip(source, block)?,
            }
        }
    }

    /// Peeks at type and length of the next block (section 3.1); `None` at the end of the file.
    #[inline]
    fn block<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Block>, FileError> {
        if source.fill(MIN_BLOCK_LEN)? == 0 {
            return Ok(None);
        }
        source.require(MIN_BLOCK_LEN, "block header")?;
        let Some(header) = source.available().first_chunk::<MIN_BLOCK_LEN>() else {
            return Ok(None);
        };
        let offset = source.offset();
        if header.starts_with(&SECTION_MAGIC) {
            // Section 4.1: the byte order of a section applies to its header as well.
            let [.., a, b, c, d] = *header;
            let found = [a, b, c, d];
            self.order = match (u32::from_le_bytes(found), u32::from_be_bytes(found)) {
                (BYTE_ORDER_MAGIC, _) => ByteOrder::Little,
                (_, BYTE_ORDER_MAGIC) => ByteOrder::Big,
                _ => return Err(FileError::new(offset, Problem::BadByteOrderMagic { found })),
            };
        }
        let (kind, length) = (self.order.u32(header, 0), self.order.u32(header, 4));
        let block = Block { offset, kind, length };
        block.require(BLOCK_HEADER_LEN)?;
        if length % 4 != 0 {
            return block.fail(Problem::MisalignedBlock { length });
        }
        Ok(Some(block))
    }

    /// Buffers the whole block and checks the length at its end.
    #[inline]
    fn whole<'a, R: Read>(
        &self,
        source: &'a mut Source<R>,
        block: Block,
    ) -> Result<&'a [u8], FileError> {
        if block.length > MAX_BLOCK_LEN {
            let (length, limit) = (u64::from(block.length), u64::from(MAX_BLOCK_LEN));
            return block.fail(Problem::InvalidLength { of: "length of a block", length, limit });
        }
        let length = block.length as usize;
        source.require(length, "block")?;
        let bytes = &source.available()[..length];
        if let Some(trailer) = bytes.last_chunk::<BLOCK_TRAILER_LEN>() {
            self.check_trailer(block, trailer)?;
        }
        Ok(bytes)
    }

    #[inline]
    fn check_trailer(&self, block: Block, trailer: &[u8; 4]) -> Result<(), FileError> {
        let (header, trailer) = (block.length, self.order.u32(trailer, 0));
        if header != trailer {
            return block.fail(Problem::TrailerMismatch { header, trailer });
        }
        Ok(())
    }

    /// Skips a block of any length without buffering it.
    fn skip<R: Read>(&self, source: &mut Source<R>, block: Block) -> Result<(), FileError> {
        let needed = u64::from(block.length);
        let skipped = source.skip(needed - BLOCK_TRAILER_LEN as u64)?;
        let left = source.fill(BLOCK_TRAILER_LEN)?;
        let Some(trailer) = source.available().first_chunk::<BLOCK_TRAILER_LEN>() else {
            let available = skipped + left as u64;
            return block.fail(Problem::Truncated { inside: "block", needed, available });
        };
        self.check_trailer(block, trailer)?;
        source.take(BLOCK_TRAILER_LEN);
        Ok(())
    }

    /// Processes a Section Header Block (section 4.1).
    fn start_section<R: Read>(
        &mut self,
        source: &mut Source<R>,
        block: Block,
    ) -> Result<(), FileError> {
        block.require(SECTION_FIXED_LEN)?;
        let bytes = self.whole(source, block)?;
        let (header, options) = fixed_part::<SECTION_FIXED_LEN>(bytes);
        let (major, minor) = (self.order.u16(header, 12), self.order.u16(header, 14));
        // A minor version of 2 must be read as 0. The section length is not needed and not trusted.
        self.readable = major == 1 && (minor == 0 || minor == 2);
        if !self.readable && self.unreadable.is_none() {
            let format = Format::Pcapng;
            let problem = Problem::UnsupportedVersion { format, major, minor };
            self.unreadable = Some(FileError::new(block.offset, problem));
        }
        // Section 4.2: interfaces are numbered within a section.
        self.interfaces.clear();
        self.drop_counters.start_section();
        let mut comment = None;
        if self.readable {
            Options::new(self.order, options)
                .filter(|(code, _)| *code == option_code::COMMENT)
                .for_each(|(_, value)| add_comment(&mut comment, value));
        }
        self.comment = comment.map(|comment| comment.into_owned());
        source.take(block.length as usize);
        Ok(())
    }

    /// Processes an Interface Description Block (section 4.2).
    fn describe_interface<R: Read>(
        &mut self,
        source: &mut Source<R>,
        block: Block,
    ) -> Result<(), FileError> {
        block.require(INTERFACE_FIXED_LEN)?;
        let bytes = self.whole(source, block)?;
        if self.interfaces.len() == MAX_INTERFACES {
            return block.fail(Problem::TooManyInterfaces { limit: MAX_INTERFACES });
        }
        let (header, options) = fixed_part::<INTERFACE_FIXED_LEN>(bytes);
        let mut interface = Interface {
            link: LinkType(self.order.u16(header, 8)),
            snap_len: self.order.u32(header, 12),
            name: None,
            description: None,
            resolution: Resolution::MICROSECONDS,
            offset_seconds: 0,
        };
        for (code, value) in Options::new(self.order, options) {
            match (code, value) {
                (option_code::INTERFACE_NAME, name) => interface.name = Some(kept_text(name)),
                (option_code::INTERFACE_DESCRIPTION, description) => {
                    interface.description = Some(kept_text(description));
                }
                (option_code::INTERFACE_RESOLUTION, &[resolution]) => {
                    interface.resolution = Resolution::from_option(resolution);
                }
                (option_code::INTERFACE_TIME_OFFSET, value) => {
                    if let Ok(offset) = value.try_into() {
                        interface.offset_seconds = self.order.i64(offset);
                    }
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        self.drop_counters.add_interface();
        source.take(block.length as usize);
        Ok(())
    }

    fn interface(&self, block: Block, interface: u32) -> Result<&Interface, FileError> {
        let described = self.interfaces.len();
        match self.interfaces.get(interface as usize) {
            Some(interface) => Ok(interface),
            None => block.fail(Problem::UnknownInterface { interface, described }),
        }
    }

    /// Locates the packet of an Enhanced Packet Block (section 4.3) or an obsolete Packet Block
    /// (appendix A), which differs in the 16-bit interface and drop count.
    #[inline]
    fn packet<R: Read>(
        &self,
        source: &mut Source<R>,
        block: Block,
    ) -> Result<LocatedRecord, FileError> {
        block.require(PACKET_FIXED_LEN)?;
        let bytes = self.whole(source, block)?;
        let (header, _) = fixed_part::<PACKET_FIXED_LEN>(bytes);
        let order = self.order;
        let number = match block.kind {
            block_type::PACKET => u32::from(order.u16(header, 8)),
            _ => order.u32(header, 8),
        };
        let old_dropped = order.u16(header, 10);
        let interface = self.interface(block, number)?;
        let units = u64::from(order.u32(header, 12)) << 32 | u64::from(order.u32(header, 16));
        let (captured_len, original_len) = (order.u32(header, 20), order.u32(header, 24));
        let room = block.length - (PACKET_FIXED_LEN + BLOCK_TRAILER_LEN) as u32;
        check_captured_len(block, captured_len, room)?;

        let timestamp = interface.resolution.to_timestamp(units, interface.offset_seconds);
        let mut oddities = Oddities::NONE;
        oddities.note(Oddity::TimestampOutOfRange, timestamp.is_none());
        oddities.note_lengths(captured_len, original_len, interface.snap_len);
        let taken = source.take(block.length as usize);
        let start = taken.start + PACKET_FIXED_LEN;
        let end = start + captured_len as usize;
        // The block's length is a multiple of 4, so the padding is within the block.
        let options = start + padded(captured_len as usize)..taken.end - BLOCK_TRAILER_LEN;
        let dropped = match (block.kind, old_dropped) {
            // Appendix A: all ones if unknown.
            (block_type::PACKET, u16::MAX) => 0,
            (block_type::PACKET, dropped) => u64::from(dropped),
            _ => self.drop_count(source.bytes(options.clone())),
        };
        Ok(LocatedRecord {
            offset: block.offset,
            header_len: PACKET_FIXED_LEN as u32,
            timestamp,
            interface: number,
            original_len,
            data: start..end,
            options,
            dropped,
            oddities,
        })
    }

    /// Processes an Interface Statistics Block (section 4.6).
    fn statistics<R: Read>(
        &mut self,
        source: &mut Source<R>,
        block: Block,
    ) -> Result<(), FileError> {
        if block.length < (STATISTICS_FIXED_LEN + BLOCK_TRAILER_LEN) as u32 {
            return self.skip(source, block);
        }
        let bytes = self.whole(source, block)?;
        let (header, options) = fixed_part::<STATISTICS_FIXED_LEN>(bytes);
        let interface = self.order.u32(header, 8);
        let dropped = Options::new(self.order, options).filter_map(|(code, value)| match code {
            option_code::PACKETS_DROPPED | option_code::PACKETS_DROPPED_BY_SYSTEM => {
                Some(self.order.u64(value.try_into().ok()?))
            }
            _ => None,
        });
        let dropped = dropped.fold(0, u64::saturating_add);
        self.drop_counters.state(interface, dropped);
        source.take(block.length as usize);
        Ok(())
    }

    /// Locates the packet of a Simple Packet Block (section 4.4): no timestamp, no options, first
    /// interface.
    fn simple_packet<R: Read>(
        &self,
        source: &mut Source<R>,
        block: Block,
    ) -> Result<LocatedRecord, FileError> {
        block.require(SIMPLE_PACKET_FIXED_LEN)?;
        let bytes = self.whole(source, block)?;
        let (header, _) = fixed_part::<SIMPLE_PACKET_FIXED_LEN>(bytes);
        let interface = self.interface(block, 0)?;
        let original_len = self.order.u32(header, 8);
        // The captured length is not stored: it is the minimum of original and snap length.
        let due = match interface.snap_len {
            0 => original_len,
            snap_len => original_len.min(snap_len),
        };
        let room = block.length - (SIMPLE_PACKET_FIXED_LEN + BLOCK_TRAILER_LEN) as u32;
        let captured_len = due.min(room);
        check_captured_len(block, captured_len, room)?;
        let mut oddities = Oddities::NONE;
        oddities.note(Oddity::ShortSimplePacket, due > room);
        let taken = source.take(block.length as usize);
        let start = taken.start + SIMPLE_PACKET_FIXED_LEN;
        Ok(LocatedRecord {
            offset: block.offset,
            header_len: SIMPLE_PACKET_FIXED_LEN as u32,
            timestamp: None,
            interface: 0,
            original_len,
            data: start..start + captured_len as usize,
            options: 0..0,
            dropped: 0,
            oddities,
        })
    }

    /// Packets lost before this one (section 4.3, epb_dropcount).
    #[inline]
    fn drop_count(&self, options: &[u8]) -> u64 {
        Options::new(self.order, options)
            .find(|(code, _)| *code == option_code::PACKET_DROP_COUNT)
            .and_then(|(_, value)| Some(self.order.u64(value.try_into().ok()?)))
            .unwrap_or(0)
    }

    /// Parses the options of a packet block.
    #[inline]
    pub(in crate::file) fn annotations<'a>(&self, options: &'a [u8]) -> Annotations<'a> {
        let mut annotations = Annotations::default();
        if options.is_empty() {
            return annotations;
        }
        let mut options = Options::new(self.order, options);
        for (code, value) in options.by_ref() {
            match code {
                option_code::COMMENT => add_comment(&mut annotations.comment, value),
                option_code::PACKET_FLAGS => match value.try_into() {
                    Ok(flags) => annotations.direction = self.direction(flags),
                    Err(_) => annotations.damaged = true,
                },
                _ => {}
            }
        }
        annotations.damaged |= options.damaged();
        annotations
    }

    /// The direction (section 4.3.1): bits 0 and 1, counted from the least significant.
    fn direction(&self, flags: &[u8; 4]) -> Option<Direction> {
        match self.order.u32(flags, 0) & DIRECTION_MASK {
            DIRECTION_INBOUND => Some(Direction::Inbound),
            DIRECTION_OUTBOUND => Some(Direction::Outbound),
            _ => None,
        }
    }
}

/// Checks that a packet fits in its block and within [`MAX_CAPTURED_LEN`].
#[inline]
fn check_captured_len(block: Block, captured_len: u32, room: u32) -> Result<(), FileError> {
    let limit = room.min(MAX_CAPTURED_LEN);
    if captured_len > limit {
        let (length, limit) = (u64::from(captured_len), u64::from(limit));
        return block.fail(Problem::InvalidLength { of: "captured length", length, limit });
    }
    Ok(())
}

/// Splits a whole block into its fixed fields and the bytes up to its trailer. [`Block::require`] has
/// checked the length; the fallback of zeros is unreachable.
#[inline]
fn fixed_part<const N: usize>(block: &[u8]) -> (&[u8; N], &[u8]) {
    match block.split_first_chunk::<N>() {
        Some((fixed, rest)) => (fixed, &rest[..rest.len().saturating_sub(BLOCK_TRAILER_LEN)]),
        None => (&[0; N], &[]),
    }
}
