//! Decompression of Zstandard (RFC 8878): any number of frames, and skippable frames between them.
//!
//! The decoder keeps the window, up to several megabytes, until the frame ends. If the input ends or is damaged within a
//! frame, the frame is ended with an empty block, so that everything decoded so far is delivered before the error.

mod block_size;

use std::io::{self, ErrorKind, Read};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::compressed::{Damage, DamageKind, Positioned};
use block_size::{BlockSizes, MAX_BLOCK_SIZE};

/// The largest window: that of level 21. The reference implementation's levels up to 19 use at most 8 MiB.
pub(super) const MAX_WINDOW: u64 = 64 << 20;

/// The magic number of a frame (RFC 8878, 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The longest frame header after the magic number: descriptor, window, dictionary, content size.
const MAX_HEADER_LEN: usize = 1 + 1 + 4 + 8;

/// An empty raw block, the last of its frame, followed by space for a checksum.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// Blocks decoded before data is collected.
const ONE_BLOCK: BlockDecodingStrategy = BlockDecodingStrategy::UptoBlocks(1);

/// Block types (RFC 8878, 3.1.1.2.2).
const RLE_BLOCK: u32 = 1;
const COMPRESSED_BLOCK: u32 = 2;

/// Whether these are the first bytes of Zstandard data.
pub(super) fn is_magic(bytes: &[u8]) -> bool {
    bytes == MAGIC || is_skippable(bytes)
}

/// Whether a skippable frame starts with these bytes (RFC 8878, 3.1.2).
fn is_skippable(bytes: &[u8]) -> bool {
    matches!(bytes, [0x50..=0x5f, 0x2a, 0x4d, 0x18])
}

/// Decompresses an input.
pub(super) struct ZstdReader<R> {
    input: R,
    decoder: FrameDecoder,
    /// Whether a frame has started whose data is not yet collected in full.
    in_frame: bool,
    /// Checks the blocks of the frame before they are decoded.
    sizes: BlockSizes,
    /// The current block, with its header.
    block: Vec<u8>,
    /// The error to report after the data before it.
    error: Option<io::Error>,
}

impl<R: Read> ZstdReader<Positioned<R>> {
    /// Compressed bytes that were read.
    pub(super) fn position(&self) -> u64 {
        self.input.position
    }

    pub(super) fn new(input: Positioned<R>) -> Self {
        Self {
            input,
            decoder: FrameDecoder::new(),
            in_frame: false,
            sizes: BlockSizes::default(),
            block: Vec::new(),
            error: None,
        }
    }

    /// Reads exactly `buffer.len()` bytes; false at the end of the input before the first.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(self.damage(DamageKind::Truncated)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn damage(&self, problem: DamageKind) -> io::Error {
        Damage::error("zstd", self.input.position, problem)
    }

    /// Starts the next frame; false at the end of the input.
    fn start_frame(&mut self) -> io::Result<bool> {
        loop {
            let mut magic = [0; 4];
            if !self.fill(&mut magic)? {
                return Ok(false);
            }
            if is_skippable(&magic) {
                self.skip_frame()?;
                continue;
            }
            if magic != MAGIC {
                return Err(self.corrupt("no frame starts here"));
            }
            self.sizes = BlockSizes::default();
            let header = self.header()?;
            let started = self.decoder.init(header.as_slice());
            started.map_err(|error| self.damage(DamageKind::Corrupt(error.to_string())))?;
            return Ok(true);
        }
    }

    fn skip_frame(&mut self) -> io::Result<()> {
        let mut length = [0; 4];
        let whole = self.fill(&mut length)?;
        let length = u64::from(u32::from_le_bytes(length));
        let skipped = io::copy(&mut self.input.by_ref().take(length), &mut io::sink())?;
        match whole && skipped == length {
            true => Ok(()),
            false => Err(self.damage(DamageKind::Truncated)),
        }
    }

    /// Reads a frame header, with the magic number before it, and checks its window size: the decoder would keep that many
    /// bytes.
    fn header(&mut self) -> io::Result<Vec<u8>> {
        let mut header = [0; MAX_HEADER_LEN];
        let truncated = |reader: &Self| reader.damage(DamageKind::Truncated);
        if !self.fill(&mut header[..1])? {
            return Err(truncated(self));
        }
        // RFC 8878, 3.1.1.1.1: the descriptor gives the lengths of the fields.
        let descriptor = header[0];
        let single_segment = descriptor & 0x20 != 0;
        let window_len = usize::from(!single_segment);
        let dictionary_len = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size_len = match (descriptor >> 6, single_segment) {
            (0, false) => 0,
            (0, true) => 1,
            (1, _) => 2,
            (2, _) => 4,
            _ => 8,
        };
        let len = 1 + window_len + dictionary_len + size_len;
        if len > 1 && !self.fill(&mut header[1..len])? {
            return Err(truncated(self));
        }
        let window = match single_segment {
            // The window is the content.
            true => {
                let mut size = [0; 8];
                size[..size_len].copy_from_slice(&header[len - size_len..len]);
                u64::from_le_bytes(size) + if size_len == 2 { 256 } else { 0 }
            }
            false => {
                let base = 1u64 << (10 + (header[1] >> 3));
                base + base / 8 * u64::from(header[1] & 7)
            }
        };
        if window > MAX_WINDOW {
            return Err(self.damage(DamageKind::Window { size: window }));
        }
        Ok([&MAGIC[..], &header[..len]].concat())
    }

    /// Decodes until data can be collected. After an error within a frame, ends the frame to collect the rest.
    fn decode(&mut self) -> io::Result<()> {
        while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
            let Err(error) = self.decode_block() else { continue };
            if self.decoder.decode_blocks(&LAST_BLOCK[..], ONE_BLOCK).is_err() {
                return Err(error);
            }
            self.error = Some(error);
        }
        Ok(())
    }

    /// Reads and decodes one block, if its size is within the limit.
    fn decode_block(&mut self) -> io::Result<()> {
        let mut block = std::mem::take(&mut self.block);
        let result = self.read_block(&mut block).and_then(|()| {
            // The checksum follows the last block.
            let source = block.as_slice().chain(&mut self.input);
            let decoded = self.decoder.decode_blocks(source, ONE_BLOCK);
            decoded.map(|_| ()).map_err(|error| self.block_error(&error))
        });
        self.block = block;
        result
    }

    fn read_block(&mut self, block: &mut Vec<u8>) -> io::Result<()> {
        let mut header = [0; 4];
        if !self.fill(&mut header[..3])? {
            return Err(self.damage(DamageKind::Truncated));
        }
        let value = u32::from_le_bytes(header);
        let (kind, size) = (value >> 1 & 3, value >> 3);
        if u64::from(size) > MAX_BLOCK_SIZE {
            return Err(self.corrupt("a block is larger than 128 KiB"));
        }
        let stored = if kind == RLE_BLOCK { 1 } else { size as usize };
        block.clear();
        block.extend_from_slice(&header[..3]);
        block.resize(3 + stored, 0);
        if !self.fill(&mut block[3..])? {
            return Err(self.damage(DamageKind::Truncated));
        }
        match kind {
            COMPRESSED_BLOCK => {
                self.sizes.check(&block[3..]).map_err(|problem| self.corrupt(problem))
            }
            _ => Ok(()),
        }
    }

    fn corrupt(&self, why: &str) -> io::Error {
        self.damage(DamageKind::Corrupt(why.to_owned()))
    }

    fn block_error(&self, error: &(dyn std::error::Error + 'static)) -> io::Error {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(read) = error.downcast_ref::<io::Error>() {
                return match read.kind() {
                    ErrorKind::UnexpectedEof if !self.input.failed => {
                        self.damage(DamageKind::Truncated)
                    }
                    kind => io::Error::new(kind, read.to_string()),
                };
            }
            cause = error.source();
        }
        self.damage(DamageKind::Corrupt(error.to_string()))
    }

    /// Compares the checksum after a frame with that of its data.
    fn check(&self) -> io::Result<()> {
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(self.corrupt("wrong checksum of a frame"));
        }
        Ok(())
    }
}

impl<R: Read> Read for ZstdReader<Positioned<R>> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_frame {
                match self.error.take() {
                    Some(error) => return Err(error),
                    None if !self.start_frame()? => return Ok(0),
                    None => self.in_frame = true,
                }
            }
            self.decode()?;
            let count = self.decoder.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            // The frame has ended, and all of its data was collected.
            self.in_frame = false;
            if self.error.is_none() {
                self.check()?;
            }
        }
    }
}
