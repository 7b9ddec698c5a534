//! Memory that this crate maps, and keeps mapped as long as it is in use.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64};

use ferroce_sys::memory as sys;

use crate::copy;

/// Zeroed pages. It guarantees what an [`crate::AddressRange`] requires of the program: it is unmapped when neither its
/// owner nor a region refers to it, and its bytes are accessible as copies and as atomics only.
pub struct Buffer {
    pointer: NonNull<u8>,
    length: usize,
    mapped: usize,
}

// SAFETY: the bytes are accessed by copies that allow races, and by atomics.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// The error for a part that is not within the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds;

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the part is not within the buffer")
    }
}

impl std::error::Error for OutOfBounds {}

impl Buffer {
    /// Maps a zeroed buffer of `length` bytes that starts at a page. Pages are allocated on first use.
    pub fn new(length: usize) -> io::Result<Self> {
        let page = sys::page_size();
        let pages = length.max(1).checked_next_multiple_of(page);
        let mapped = pages.ok_or(io::ErrorKind::OutOfMemory)?;
        let pointer = NonNull::new(sys::map(mapped)?).ok_or(io::ErrorKind::OutOfMemory)?;
        // Regions store addresses only.
        pointer.as_ptr().expose_provenance();
        Ok(Self { pointer, length, mapped })
    }

    /// The address of the first byte.
    pub fn address(&self) -> usize {
        self.pointer.as_ptr().addr()
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The first byte, for foreign code.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// Copies the bytes at `offset` to `out`.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let from = self.part(offset, out.len())?;
        // SAFETY: within the buffer, to which there are only references as atomics.
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

    /// Copies the whole buffer.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        // SAFETY: as in `read`, with the same length.
        unsafe { copy::load(self.pointer.as_ptr(), &mut bytes) };
        bytes
    }

    /// The bytes, to poll on the last byte of a message with an acquire load.
    pub fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: mapped as long as `self`; an AtomicU8 has the layout of a byte and allows concurrent changes.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr().cast(), self.length) }
    }

    /// The words of 8 bytes, which atomic operations of peers access.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: as in `bytes`; the start of a page is aligned to 8.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr().cast(), self.length / 8) }
    }

    fn part(&self, offset: usize, length: usize) -> Result<*mut u8, OutOfBounds> {
        let end = offset.checked_add(length).ok_or(OutOfBounds)?;
        if end > self.length {
            return Err(OutOfBounds);
        }
        // SAFETY: within the buffer, or one byte behind it.
        Ok(unsafe { self.pointer.add(offset) }.as_ptr())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; all users hold a reference.
        unsafe { sys::unmap(self.pointer.as_ptr(), self.mapped) };
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
