//! Capture files as input: compressed or not, complete or still being written.
//!
//! [`Decompressed`] recognises gzip and Zstandard by their first bytes and decompresses them while reading.
//! [`LiveInput`] waits for a file that grows, for a pipe, and for Ctrl-C.

mod compressed;
mod limit;
mod live;
mod zstd;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

pub(crate) use compressed::{Damage, Decompressed};
pub(crate) use limit::DecompressionLimit;
pub(crate) use live::{Interrupted, LiveInput};

/// A capture file or standard input, decompressed while it is read.
pub(crate) struct Input {
    reader: Decompressed<Counted<Box<dyn Read>>>,
    count: ByteCount,
    /// The length of the file, if it is a regular file.
    pub(crate) length: Option<u64>,
}

impl Input {
    /// Opens a file; `-` is standard input.
    pub(crate) fn open(path: &Path, limit: DecompressionLimit) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::new(Box::new(io::stdin().lock()), None, limit));
        }
        let file = File::open(path)?;
        let data = file.metadata().ok().filter(|data| data.is_file());
        Ok(Self::new(Box::new(file), data.map(|data| data.len()), limit))
    }

    /// Wraps a reader of a file of this length.
    pub(crate) fn new(
        input: Box<dyn Read>,
        length: Option<u64>,
        limit: DecompressionLimit,
    ) -> Self {
        let count = ByteCount::default();
        let counted = Counted { input, count: count.clone() };
        Self { reader: Decompressed::new(counted, limit), count, length }
    }

    /// The bytes read from the file so far, before decompression: what progress is measured by.
    pub(crate) fn count(&self) -> ByteCount {
        self.count.clone()
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

/// A number of bytes that a reader updates.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteCount(Rc<Cell<u64>>);

impl ByteCount {
    /// The number so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// Counts the bytes read.
struct Counted<R> {
    input: R,
    count: ByteCount,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.count.0.set(self.count.0.get() + count as u64);
        Ok(count)
    }
}

/// Whether an error of reading is damage of compressed data, rather than a failure to read.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Damage>())
}
