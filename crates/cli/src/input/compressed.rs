//! Decompression of gzip and Zstandard, recognised by their first bytes.
//!
//! It is streaming: what can be decompressed is delivered before an error is, and memory is bounded by the format's window
//! (32 KiB for gzip, [`super::zstd::MAX_WINDOW`] for Zstandard), however much a small input expands to.

use std::fmt;
use std::io::{self, BufReader, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;

use super::limit::DecompressionLimit;
use super::zstd::{self, ZstdReader};

/// The first bytes of gzip (RFC 1952, 2.3.1): the magic number, and deflate as the method.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// Bytes needed to recognise a format.
const MAGIC_LEN: usize = 4;

/// Compressed data that cannot be decompressed further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The format.
    pub(crate) format: &'static str,
    /// Position in the compressed data.
    pub(crate) offset: u64,
    /// What is wrong.
    pub(crate) problem: DamageKind,
}

/// What is wrong with compressed data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DamageKind {
    /// It ends too early.
    Truncated,
    /// It is not valid.
    Corrupt(String),
    /// It needs more memory than is allowed.
    Window {
        /// The window size in bytes.
        size: u64,
    },
    /// It expands to more than is allowed.
    Expansion {
        /// The limit in bytes.
        limit: u64,
    },
}

impl Damage {
    pub(super) fn error(format: &'static str, offset: u64, problem: DamageKind) -> io::Error {
        io::Error::new(ErrorKind::InvalidData, Self { format, offset, problem })
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, offset, .. } = self;
        match &self.problem {
            DamageKind::Truncated => {
                write!(f, "the {format} data is cut short after {offset} compressed bytes")
            }
            DamageKind::Corrupt(why) => {
                write!(f, "the {format} data is damaged near compressed byte {offset}: {why}")
            }
            DamageKind::Window { size } => write!(
                f,
                "the {format} data needs a window of {size} bytes, but the limit is {}: compress it again with \
                 level 19 or lower and without --long",
                zstd::MAX_WINDOW
            ),
            DamageKind::Expansion { limit } => write!(
                f,
                "{offset} bytes of {format} data expand to more than {limit}: if it is a capture all the same, allow more \
                 with --max-decompressed"
            ),
        }
    }
}

impl std::error::Error for Damage {}

/// Reads plain, gzip or Zstandard data.
pub(crate) struct Decompressed<R: Read> {
    state: State<R>,
    /// Bytes that were decompressed.
    expanded: u64,
    limit: DecompressionLimit,
}

/// The input after the bytes that were read to recognise the format.
type Whole<R> = io::Chain<io::Cursor<Vec<u8>>, R>;

enum State<R: Read> {
    /// Nothing was read yet.
    Start(R),
    Plain(Whole<R>),
    Gzip(Box<MultiGzDecoder<Positioned<Whole<R>>>>),
    Zstd(Box<ZstdReader<Positioned<Whole<R>>>>),
    /// An error was reported.
    Failed,
}

impl<R: Read> Decompressed<R> {
    pub(crate) fn new(input: R, limit: DecompressionLimit) -> Self {
        Self { state: State::Start(input), expanded: 0, limit }
    }

    /// Reads the first bytes and selects the decoder.
    fn start(mut input: R) -> io::Result<State<R>> {
        let mut head = Vec::with_capacity(MAGIC_LEN);
        input.by_ref().take(MAGIC_LEN as u64).read_to_end(&mut head)?;
        let gzip = head.starts_with(&GZIP_MAGIC);
        let zstd = zstd::is_magic(&head);
        let whole = io::Cursor::new(head).chain(input);
        Ok(match (gzip, zstd) {
            (true, _) => State::Gzip(Box::new(MultiGzDecoder::new(Positioned::new(whole)))),
            (_, true) => State::Zstd(Box::new(ZstdReader::new(Positioned::new(whole)))),
            _ => State::Plain(whole),
        })
    }
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if matches!(self.state, State::Start(_)) {
            if let State::Start(input) = std::mem::replace(&mut self.state, State::Failed) {
                self.state = Self::start(input)?;
            }
        }
        let (result, format, compressed) = match &mut self.state {
            State::Start(_) | State::Failed => return Ok(0),
            State::Plain(input) => return input.read(buffer),
            State::Gzip(decoder) => {
                let result = decoder.read(buffer);
                let result = result.map_err(|error| gzip_error(decoder.get_ref(), error));
                (result, "gzip", decoder.get_ref().position)
            }
            State::Zstd(decoder) => (decoder.read(buffer), "zstd", decoder.position()),
        };
        let result = result.and_then(|length| {
            self.expanded += length as u64;
            let limit = self.limit.after(compressed);
            match self.expanded > limit {
                true => Err(Damage::error(format, compressed, DamageKind::Expansion { limit })),
                false => Ok(length),
            }
        });
        if result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Interrupted) {
            self.state = State::Failed;
        }
        result
    }
}

/// Distinguishes damage of the data from a failure to read it.
fn gzip_error<R: Read>(input: &Positioned<R>, error: io::Error) -> io::Error {
    let problem = match error.kind() {
        _ if input.failed => return error,
        ErrorKind::UnexpectedEof => DamageKind::Truncated,
        ErrorKind::InvalidInput | ErrorKind::InvalidData => DamageKind::Corrupt(error.to_string()),
        _ => return error,
    };
    Damage::error("gzip", input.position, problem)
}

/// A buffered input that knows its position, and whether reading it failed.
pub(super) struct Positioned<R> {
    input: BufReader<R>,
    pub(super) position: u64,
    pub(super) failed: bool,
}

impl<R: Read> Positioned<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(1 << 16, input), position: 0, failed: false }
    }
}

impl<R: Read> Read for Positioned<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.input.read(buffer);
        self.failed |= result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Interrupted);
        self.position += *result.as_ref().unwrap_or(&0) as u64;
        result
    }
}

impl<R: Read> io::BufRead for Positioned<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let result = self.input.fill_buf();
        self.failed |= result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Interrupted);
        result
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
        self.position += count as u64;
    }
}

#[cfg(test)]
mod tests;
