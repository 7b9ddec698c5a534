//! Memory that is ours to lend: mapped for as long as anything uses it.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64};

use crate::{copy, system};

/// Zeroed pages of our own. What an [`crate::AddressRange`] has to promise, this keeps by itself: it is unmapped when
/// neither its owner nor a region holds it any more, and it shows its bytes only as copies and as atomics.
pub struct Buffer {
    pointer: NonNull<u8>,
    length: usize,
    mapped: usize,
}

// SAFETY: the bytes are reached by copies that allow for races, and by atomics.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// A part of a buffer that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds;

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not all of this is within the buffer")
    }
}

impl std::error::Error for OutOfBounds {}

impl Buffer {
    /// Maps a buffer of this many bytes, all zero, from the start of a page on. Pages take memory when they are used.
    pub fn new(length: usize) -> io::Result<Self> {
        let page = system::page_size();
        let pages = length.max(1).checked_next_multiple_of(page);
        let mapped = pages.ok_or(io::ErrorKind::OutOfMemory)?;
        let pointer = NonNull::new(system::map(mapped)?).ok_or(io::ErrorKind::OutOfMemory)?;
        // Regions know addresses only.
        pointer.as_ptr().expose_provenance();
        Ok(Self { pointer, length, mapped })
    }

    /// Where it starts.
    pub fn address(&self) -> usize {
        self.pointer.as_ptr().addr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The address of the first byte, for foreign code that is given the buffer.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// Copies from `offset` on, as many bytes as `out` has.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let from = self.part(offset, out.len())?;
        // SAFETY: within the buffer, to which there are no references but of atomics.
        unsafe { copy::load(from, out) };
        Ok(())
    }

    /// Copies `data` to `offset`, the last byte last.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), OutOfBounds> {
        let to = self.part(offset, data.len())?;
        // SAFETY: as in `read`.
        unsafe { copy::store(to, data) };
        Ok(())
    }

    /// A copy of the whole.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        // SAFETY: as in `read`, and exactly as long.
        unsafe { copy::load(self.pointer.as_ptr(), &mut bytes) };
        bytes
    }

    /// The bytes themselves: to poll on the last of a message, with an acquire load.
    pub fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: mapped as long as `self`; an AtomicU8 is a byte, and may be changed by others.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr().cast(), self.length) }
    }

    /// The whole words of 8 bytes: what peers do atomic operations on.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: as in `bytes`; the start of a page is aligned to 8.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr().cast(), self.length / 8) }
    }

    fn part(&self, offset: usize, length: usize) -> Result<*mut u8, OutOfBounds> {
        let end = offset.checked_add(length).ok_or(OutOfBounds)?;
        if end > self.length {
            return Err(OutOfBounds);
        }
        // SAFETY: within the buffer, or just behind it.
        Ok(unsafe { self.pointer.add(offset) }.as_ptr())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: from `new`; whoever uses the buffer holds it.
        unsafe { system::unmap(self.pointer.as_ptr(), self.mapped) };
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("address", &self.pointer)
            .field("length", &self.length)
            .finish()
    }
}
