//! The one buffer of a reader: bytes in order, with their place in the file.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use super::error::{FileError, Problem};

/// The buffer at the start. Small enough to stay in the second-level cache, where the bytes are
/// still warm when they are looked at; large enough that a system call per refill costs nothing.
const INITIAL_LEN: usize = 256 << 10;

/// A buffered input that knows its offset and grows only as bytes arrive.
pub(super) struct Source<R> {
    input: R,
    buffer: Vec<u8>,
    /// The bytes read and not yet taken are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Where `start` is in the file.
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R) -> Source<R> {
        Source { input, buffer: vec![0; INITIAL_LEN], start: 0, end: 0, offset: 0 }
    }

    /// Where in the file the next byte to take is.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes read and not yet taken.
    #[inline]
    pub(super) fn available(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads until `needed` bytes are available or the input ends, and returns how many are.
    #[inline]
    pub(super) fn fill(&mut self, needed: usize) -> Result<usize, FileError> {
        if self.end - self.start < needed {
            self.refill(needed)?;
        }
        Ok(self.end - self.start)
    }

    /// As [`Source::fill`], and an error that the file ends `inside` of something if it is less.
    #[inline]
    pub(super) fn require(&mut self, needed: usize, inside: &'static str) -> Result<(), FileError> {
        let available = self.fill(needed)?;
        if available < needed {
            let (needed, available) = (needed as u64, available as u64);
            let problem = Problem::Truncated { inside, needed, available };
            return Err(FileError::new(self.offset, problem));
        }
        Ok(())
    }

    #[cold]
    fn refill(&mut self, needed: usize) -> Result<(), FileError> {
        // What is left over is less than a record, so moving it to the front is cheap.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < needed {
            if self.end == self.buffer.len() {
                // Doubled only when full of real bytes: what a length field says allocates nothing.
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let offset = self.offset + self.end as u64;
                    return Err(FileError::new(offset, Problem::Io(error)));
                }
            }
        }
        Ok(())
    }

    /// Takes `count` available bytes. They stay where they are until the next fill or skip.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Range<usize> {
        let count = count.min(self.end - self.start);
        let taken = self.start..self.start + count;
        self.start += count;
        self.offset += count as u64;
        taken
    }

    /// Bytes that were taken last.
    #[inline]
    pub(super) fn bytes(&self, taken: Range<usize>) -> &[u8] {
        &self.buffer[taken]
    }

    /// Takes `count` bytes, however many, without keeping them. Returns how many there were.
    pub(super) fn skip(&mut self, count: u64) -> Result<u64, FileError> {
        let mut skipped = 0;
        while skipped < count {
            let step = (count - skipped).min(INITIAL_LEN as u64) as usize;
            let taken = self.fill(1)?.min(step);
            if taken == 0 {
                break;
            }
            self.take(taken);
            skipped += taken as u64;
        }
        Ok(skipped)
    }
}

/// Shared by the readers' tests of bounded memory.
#[cfg(test)]
impl<R> Source<R> {
    pub(super) fn buffer_len(&self) -> usize {
        self.buffer.len()
    }
}
