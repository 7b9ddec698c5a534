//! Writing pcap: little-endian, with nanoseconds.

use std::fmt;
use std::io::{self, BufWriter, Write};

use super::{MAGIC_NANOSECONDS, RECORD_HEADER_LEN, VERSION};
use crate::file::MAX_WRITTEN_LEN;
use crate::file::error::WriteError;
use crate::file::writer::Packet;
use crate::link::LinkType;

/// Writes a pcap file with nanosecond timestamps.
///
/// The format has one unnamed interface and neither comments nor directions: those of a packet are
/// dropped. Call [`PcapWriter::finish`] at the end: dropping the writer ignores write errors.
#[must_use = "a file is complete only when it is finished"]
pub struct PcapWriter<W: Write> {
    output: BufWriter<W>,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a file with packets of this link type.
    pub fn new(output: W, link: LinkType) -> Result<PcapWriter<W>, WriteError> {
        let mut output = BufWriter::with_capacity(64 << 10, output);
        // Section 4. The two reserved words are zero.
        output.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        output.write_all(&VERSION.0.to_le_bytes())?;
        output.write_all(&VERSION.1.to_le_bytes())?;
        output.write_all(&[0; 8])?;
        output.write_all(&(MAX_WRITTEN_LEN as u32).to_le_bytes())?;
        output.write_all(&u32::from(link.0).to_le_bytes())?;
        Ok(PcapWriter { output })
    }

    /// Writes a packet.
    pub fn write(&mut self, packet: &Packet<'_>) -> Result<(), WriteError> {
        let captured_len = packet.captured_len()?;
        let seconds = u32::try_from(packet.timestamp.seconds())
            .map_err(|_| WriteError::TimestampOutOfRange(packet.timestamp))?;
        // Section 5.
        let mut header = [0; RECORD_HEADER_LEN];
        header[0..4].copy_from_slice(&seconds.to_le_bytes());
        header[4..8].copy_from_slice(&packet.timestamp.subsecond_nanoseconds().to_le_bytes());
        header[8..12].copy_from_slice(&captured_len.to_le_bytes());
        header[12..16].copy_from_slice(&packet.original_len.to_le_bytes());
        self.output.write_all(&header)?;
        self.output.write_all(packet.data)?;
        Ok(())
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
}

impl<W: Write> fmt::Debug for PcapWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapWriter").finish_non_exhaustive()
    }
}
