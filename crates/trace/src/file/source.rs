//! The buffered input of a reader, which tracks its offset in the file.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use super::error::{FileError, Problem};

/// Initial buffer size: small enough to stay in the L2 cache, large enough to make the cost of a
/// system call per refill negligible.
const INITIAL_LEN: usize = 256 << 10;

/// A buffered input that tracks its offset and grows only as bytes arrive.
pub(super) struct Source<R> {
    input: R,
    buffer: Vec<u8>,
    /// The bytes read and not yet taken are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Offset of `start` in the file.
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R) -> Source<R> {
        Source { input, buffer: vec![0; INITIAL_LEN], start: 0, end: 0, offset: 0 }
    }

    /// Offset in the file of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes read and not yet taken.
    #[inline]
    pub(super) fn available(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads until `needed` bytes are available or the input ends; returns the number available.
    #[inline]
    pub(super) fn fill(&mut self, needed: usize) -> Result<usize, FileError> {
        if self.end - self.start < needed {
            self.refill(needed)?;
        }
        Ok(self.end - self.start)
    }

    /// Like [`Source::fill`], but fails if fewer bytes are available. `inside` names the truncated structure.
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
        // The remainder is less than a record, so moving it to the front is cheap.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < needed {
            if self.end == self.buffer.len() {
                // Grow only when full, so that a length field alone allocates nothing.
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

    /// Consumes `count` available bytes, which stay in the buffer until the next fill or skip.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Range<usize> {
        let count = count.min(self.end - self.start);
        let taken = self.start..self.start + count;
        self.start += count;
        self.offset += count as u64;
        taken
    }

    /// The bytes of a consumed range.
    #[inline]
    pub(super) fn bytes(&self, taken: Range<usize>) -> &[u8] {
        &self.buffer[taken]
    }

    /// Consumes `count` bytes without buffering them; returns the number consumed.
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
