//! Vectored write of many packets without copying their bodies.

use std::io::{ErrorKind, IoSlice, Write};

use super::write::{packet_fields, packet_options, put_option};
use super::{BLOCK_TRAILER_LEN, PACKET_FIXED_LEN, block_type, option_code};
use crate::file::MAX_WRITTEN_LEN;
use crate::file::bytes::padded;
use crate::file::error::WriteError;
use crate::file::writer::Packet;

/// Bodies shorter than this are copied, which is cheaper than a separate I/O slice.
const MAX_COPIED_LEN: usize = 512;

/// Packets to be written together by [`super::PcapngWriter::write_batch`]. Long packet bodies are borrowed, not copied.
///
/// ```
/// use ferroce_trace::file::{Batch, CaptureReader, LinkType, Packet, PcapngWriter, Timestamp};
///
/// let mut writer = PcapngWriter::new(Vec::new())?;
/// writer.add_interface(LinkType::ETHERNET, None)?;
/// let (header, body) = ([1; 14], [2; 1000]);
/// let mut batch = Batch::default();
/// batch.add(&Packet::new(Timestamp::default(), &header), &body)?;
/// writer.write_batch(batch)?;
/// let file = writer.finish()?;
/// let mut reader = CaptureReader::new(&file[..])?;
/// assert_eq!(reader.next_record()?.unwrap().data, [&header[..], &body].concat());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Batch<'p> {
    /// Headers, copied bodies and trailers.
    bytes: Vec<u8>,
    /// Borrowed bodies, each with its position in `bytes`.
    bodies: Vec<(usize, &'p [u8])>,
    /// Number of interfaces that the packets require.
    pub(super) interfaces: u32,
}

impl<'p> Batch<'p> {
    /// Adds a packet whose data continues with `body`. An error leaves the batch unchanged.
    pub fn add(&mut self, packet: &Packet<'_>, body: &'p [u8]) -> Result<(), WriteError> {
        let start = self.bytes.len();
        let added = self.encode(packet, body);
        if added.is_err() {
            self.bytes.truncate(start);
            self.bodies.retain(|(at, _)| *at <= start);
        }
        added
    }

    fn encode(&mut self, packet: &Packet<'_>, body: &'p [u8]) -> Result<(), WriteError> {
        let length = packet.data.len() + body.len();
        if length > MAX_WRITTEN_LEN {
            return Err(WriteError::PacketTooLong { length });
        }
        let cut = packet.original_len.saturating_sub(packet.data.len() as u32);
        let whole = packet.cut_from((length as u32).saturating_add(cut));
        let fields = packet_fields(&whole, length as u32)?;
        let out = &mut self.bytes;
        let start = out.len();
        out.extend_from_slice(&block_type::ENHANCED_PACKET.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&fields);
        out.extend_from_slice(packet.data);
        let mut elsewhere = 0;
        if body.len() < MAX_COPIED_LEN {
            out.extend_from_slice(body);
        } else {
            elsewhere = body.len();
            self.bodies.push((out.len(), body));
        }
        out.extend_from_slice(&[0; 3][..padded(length) - length]);
        let options = out.len();
        packet_options(packet, out)?;
        if out.len() > options {
            // Section 3.5: writers must end the list.
            put_option(out, option_code::END, &[])?;
        }
        let length = (out.len() - start + elsewhere + BLOCK_TRAILER_LEN) as u32;
        debug_assert!(length as usize >= PACKET_FIXED_LEN + BLOCK_TRAILER_LEN && length % 4 == 0);
        out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&length.to_le_bytes());
        self.interfaces = self.interfaces.max(packet.interface.saturating_add(1));
        Ok(())
    }

    /// Writes the batch.
    pub(super) fn write_to(&self, output: &mut impl Write) -> Result<(), WriteError> {
        let mut slices = Vec::with_capacity(2 * self.bodies.len() + 1);
        let mut from = 0;
        for &(at, body) in &self.bodies {
            slices.push(IoSlice::new(&self.bytes[from..at]));
            slices.push(IoSlice::new(body));
            from = at;
        }
        slices.push(IoSlice::new(&self.bytes[from..]));
        let mut rest = &mut slices[..];
        // Skip empty slices: writing zero bytes would be taken for a full disk.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match output.write_vectored(rest) {
                Ok(0) => return Err(WriteError::Io(ErrorKind::WriteZero.into())),
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
