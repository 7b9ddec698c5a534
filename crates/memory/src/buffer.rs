//! Memory that this crate maps, and keeps mapped as long as it is in use.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64};

use ferroce_sys::memory as sys;
use ferroce_sys::tcp;

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

    /// Sends up to `length` bytes from `offset` over a stream socket, and returns how many the kernel took.
    ///
    /// # Errors
    ///
    /// Those of send(2); `InvalidInput` if the part is out of bounds.
    pub fn send(&self, socket: BorrowedFd<'_>, offset: usize, length: usize) -> io::Result<usize> {
        let from = self.part(offset, length).map_err(out_of_bounds)?;
        // SAFETY: within the buffer. The kernel's access is a copy that allows races, as in `read`.
        unsafe { tcp::send(socket, from, length) }
    }

    /// Receives up to `length` bytes from a stream socket to `offset`, and returns how many came; 0 at the end of the
    /// stream.
    ///
    /// # Errors
    ///
    /// Those of recv(2); `InvalidInput` if the part is out of bounds.
    pub fn receive(
        &self,
        socket: BorrowedFd<'_>,
        offset: usize,
        length: usize,
    ) -> io::Result<usize> {
        let to = self.part(offset, length).map_err(out_of_bounds)?;
        // SAFETY: as in `send`.
        unsafe { tcp::receive(socket, to, length) }
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

fn out_of_bounds(error: OutOfBounds) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
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

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn parts_travel_through_sockets() {
        let (from, to) = (Buffer::new(100).unwrap(), Buffer::new(100).unwrap());
        let (sender, receiver) = UnixStream::pair().unwrap();
        from.write(10, b"bytes").unwrap();
        assert_eq!(from.send(sender.as_fd(), 10, 5).unwrap(), 5);
        assert_eq!(to.receive(receiver.as_fd(), 95, 5).unwrap(), 5);
        assert_eq!(&to.to_vec()[95..], b"bytes");
        for error in [from.send(sender.as_fd(), 96, 5), to.receive(receiver.as_fd(), 101, 0)] {
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
