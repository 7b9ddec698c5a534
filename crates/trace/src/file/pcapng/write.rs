//! Writing pcapng: one little-endian section, nanoseconds, Enhanced Packet Blocks.

use std::fmt;
use std::io::{self, BufWriter, Write};

use super::{
    BLOCK_TRAILER_LEN, BYTE_ORDER_MAGIC, Batch, DIRECTION_INBOUND, DIRECTION_OUTBOUND,
    INTERFACE_FIXED_LEN, PACKET_FIXED_LEN, SECTION_FIXED_LEN, SECTION_LENGTH_UNKNOWN,
    STATISTICS_FIXED_LEN, block_type, option_code,
};
use crate::file::MAX_WRITTEN_LEN;
use crate::file::bytes::padded;
use crate::file::error::WriteError;
use crate::file::record::Direction;
use crate::file::writer::Packet;
use crate::link::LinkType;
use crate::timestamp::{Resolution, Timestamp};

/// Value of the application option.
const APPLICATION: &str = concat!("ferroce ", env!("CARGO_PKG_VERSION"));

/// Writes a pcapng file: one section, any number of interfaces, times in nanoseconds.
///
/// Interfaces can be added at any time before their first packet. Call [`PcapngWriter::finish`] at
/// the end: dropping the writer ignores write errors.
#[must_use = "a file is complete only when it is finished"]
pub struct PcapngWriter<W: Write> {
    output: BufWriter<W>,
    interfaces: u32,
    /// Options of the current block, kept to reuse the allocation.
    options: Vec<u8>,
}

impl<W: Write> PcapngWriter<W> {
    /// Starts a file.
    pub fn new(output: W) -> Result<PcapngWriter<W>, WriteError> {
        PcapngWriter::start(output, None)
    }

    /// Starts a file with a comment on its section.
    pub fn with_comment(output: W, comment: &str) -> Result<PcapngWriter<W>, WriteError> {
        PcapngWriter::start(output, Some(comment))
    }

    fn start(output: W, comment: Option<&str>) -> Result<PcapngWriter<W>, WriteError> {
        let output = BufWriter::with_capacity(64 << 10, output);
        let mut writer = PcapngWriter { output, interfaces: 0, options: Vec::new() };
        if let Some(comment) = comment {
            writer.option(option_code::COMMENT, comment.as_bytes())?;
        }
        writer.option(option_code::SECTION_APPLICATION, APPLICATION.as_bytes())?;
        // Section 4.1: writers must write version 1.0.
        let mut body = [0; SECTION_FIXED_LEN - 8];
        body[0..4].copy_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
        body[4..6].copy_from_slice(&1u16.to_le_bytes());
        body[8..16].copy_from_slice(&SECTION_LENGTH_UNKNOWN.to_le_bytes());
        writer.block(block_type::SECTION_HEADER, &body, &[])?;
        Ok(writer)
    }

    /// Describes an interface and returns its number, for [`Packet::on_interface`].
    pub fn add_interface(&mut self, link: LinkType, name: Option<&str>) -> Result<u32, WriteError> {
        self.describe_interface(link, name, None, MAX_WRITTEN_LEN as u32)
    }

    /// As [`PcapngWriter::add_interface`], with a description and the limit of bytes captured per packet; 0 is none.
    pub fn describe_interface(
        &mut self,
        link: LinkType,
        name: Option<&str>,
        description: Option<&str>,
        snap_len: u32,
    ) -> Result<u32, WriteError> {
        self.options.clear();
        if let Some(name) = name {
            self.option(option_code::INTERFACE_NAME, name.as_bytes())?;
        }
        if let Some(description) = description {
            self.option(option_code::INTERFACE_DESCRIPTION, description.as_bytes())?;
        }
        let resolution = [Resolution::NANOSECONDS.as_option()];
        self.option(option_code::INTERFACE_RESOLUTION, &resolution)?;
        // Section 4.2.
        let mut body = [0; INTERFACE_FIXED_LEN - 8];
        body[0..2].copy_from_slice(&link.0.to_le_bytes());
        body[4..8].copy_from_slice(&snap_len.to_le_bytes());
        self.block(block_type::INTERFACE_DESCRIPTION, &body, &[])?;
        let number = self.interfaces;
        self.interfaces += 1;
        Ok(number)
    }

    /// Writes a packet.
    pub fn write(&mut self, packet: &Packet<'_>) -> Result<(), WriteError> {
        if packet.interface >= self.interfaces {
            return Err(WriteError::UnknownInterface(packet.interface));
        }
        let captured_len = packet.captured_len()?;
        let body = packet_fields(packet, captured_len)?;
        self.options.clear();
        packet_options(packet, &mut self.options)?;
        self.block(block_type::ENHANCED_PACKET, &body, packet.data)
    }

    /// Writes a batch of packets, in one call to the output if it accepts all bytes.
    pub fn write_batch(&mut self, batch: Batch<'_>) -> Result<(), WriteError> {
        if batch.interfaces > self.interfaces {
            return Err(WriteError::UnknownInterface(batch.interfaces - 1));
        }
        self.output.flush()?;
        batch.write_to(self.output.get_mut())
    }

    /// Writes a statistics block: packets received by an interface until now, and packets dropped by the capture.
    pub fn write_statistics(
        &mut self,
        interface: u32,
        until: Timestamp,
        received: u64,
        dropped: u64,
    ) -> Result<(), WriteError> {
        if interface >= self.interfaces {
            return Err(WriteError::UnknownInterface(interface));
        }
        let units = units(until)?;
        self.options.clear();
        self.option(option_code::PACKETS_RECEIVED, &received.to_le_bytes())?;
        self.option(option_code::PACKETS_DROPPED, &dropped.to_le_bytes())?;
        // Section 4.6, with the timestamp as in section 4.3.
        let mut body = [0; STATISTICS_FIXED_LEN - 8];
        body[0..4].copy_from_slice(&interface.to_le_bytes());
        body[4..8].copy_from_slice(&((units >> 32) as u32).to_le_bytes());
        body[8..12].copy_from_slice(&(units as u32).to_le_bytes());
        self.block(block_type::INTERFACE_STATISTICS, &body, &[])
    }

    /// The output. Bytes of blocks that were not flushed are missing in it.
    pub fn get_ref(&self) -> &W {
        self.output.get_ref()
    }

    /// The output. What is written to it does not go through the buffer.
    pub fn get_mut(&mut self) -> &mut W {
        self.output.get_mut()
    }

    /// Whether blocks, or the rest of one after a failure, wait to be written.
    pub fn is_buffering(&self) -> bool {
        !self.output.buffer().is_empty()
    }

    /// Flushes all packets to the output, for readers of the growing file.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        Ok(self.output.flush()?)
    }

    /// Ends the file and returns the output.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.output.flush()?;
        self.output.into_inner().map_err(|error| WriteError::Io(io::Error::from(error)))
    }

    /// Adds an option to the next block (section 3.5). Nothing is written yet, so an oversized value
    /// leaves the file valid.
    fn option(&mut self, code: u16, value: &[u8]) -> Result<(), WriteError> {
        put_option(&mut self.options, code, value)
    }

    /// Writes a block with the fixed fields, the packet data and the collected options (section 3.1).
    fn block(&mut self, kind: u32, fixed: &[u8], data: &[u8]) -> Result<(), WriteError> {
        if !self.options.is_empty() {
            // Section 3.5: writers must end the list.
            self.option(option_code::END, &[])?;
        }
        let padding = padded(data.len()) - data.len();
        let length =
            8 + fixed.len() + data.len() + padding + self.options.len() + BLOCK_TRAILER_LEN;
        // At most 256 KiB of packet and twice 64 KiB of options.
        let length = (length as u32).to_le_bytes();
        self.output.write_all(&kind.to_le_bytes())?;
        self.output.write_all(&length)?;
        self.output.write_all(fixed)?;
        self.output.write_all(data)?;
        self.output.write_all(&[0; 3][..padding])?;
        self.output.write_all(&self.options)?;
        self.output.write_all(&length)?;
        self.options.clear();
        Ok(())
    }
}

/// Appends an option to `out`, whose start is aligned to 4 bytes (section 3.5).
pub(super) fn put_option(out: &mut Vec<u8>, code: u16, value: &[u8]) -> Result<(), WriteError> {
    let length =
        u16::try_from(value.len()).map_err(|_| WriteError::TextTooLong { length: value.len() })?;
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(&[0; 3][..padded(value.len()) - value.len()]);
    Ok(())
}

/// The fixed fields of an Enhanced Packet Block after its length (section 4.3).
pub(super) fn packet_fields(
    packet: &Packet<'_>,
    captured_len: u32,
) -> Result<[u8; PACKET_FIXED_LEN - 8], WriteError> {
    let units = units(packet.timestamp)?;
    // The upper half of the timestamp comes first, whatever the byte order.
    let mut body = [0; PACKET_FIXED_LEN - 8];
    body[0..4].copy_from_slice(&packet.interface.to_le_bytes());
    body[4..8].copy_from_slice(&((units >> 32) as u32).to_le_bytes());
    body[8..12].copy_from_slice(&(units as u32).to_le_bytes());
    body[12..16].copy_from_slice(&captured_len.to_le_bytes());
    body[16..20].copy_from_slice(&packet.original_len.to_le_bytes());
    Ok(body)
}

/// The options of an Enhanced Packet Block, without the end of the list.
pub(super) fn packet_options(packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<(), WriteError> {
    if let Some(direction) = packet.direction {
        // Section 4.3.1.
        let flags = match direction {
            Direction::Inbound => DIRECTION_INBOUND,
            Direction::Outbound => DIRECTION_OUTBOUND,
        };
        put_option(out, option_code::PACKET_FLAGS, &flags.to_le_bytes())?;
    }
    if packet.dropped > 0 {
        put_option(out, option_code::PACKET_DROP_COUNT, &packet.dropped.to_le_bytes())?;
    }
    if let Some(comment) = packet.comment {
        put_option(out, option_code::COMMENT, comment.as_bytes())?;
    }
    Ok(())
}

/// A timestamp in units of the interface's resolution.
fn units(time: Timestamp) -> Result<u64, WriteError> {
    u64::try_from(time.as_nanoseconds()).map_err(|_| WriteError::TimestampOutOfRange(time))
}

impl<W: Write> fmt::Debug for PcapngWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapngWriter").finish_non_exhaustive()
    }
}
