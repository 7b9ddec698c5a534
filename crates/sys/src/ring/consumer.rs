//! The consumer of a ring.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_sync::RingControl;

use super::memory::{RingFile, RingMemory};
use super::{ALIGNMENT, Broken, HEADER, MARK_BIT, record_length};

/// How many bytes to prefetch: a few short records.
const AHEAD: usize = 256;

/// The consumer of a ring, which reads records. Only one thread at a time takes records; any thread may check for them.
#[derive(Debug)]
pub struct Consumer {
    memory: RingMemory,
    /// The position after the records taken, and after those whose space was released.
    head: AtomicU64,
    released: AtomicU64,
    /// The head at the last check whether the producer waits for a wakeup.
    checked_waiters: AtomicU64,
}

/// A record taken by [`Consumer::take_start`].
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// The length of the record.
    pub length: usize,
    /// How many of its first bytes were copied.
    pub copied: usize,
    /// Whether the producer has marked the record. The mark's meaning is up to the two sides.
    pub is_marked: bool,
    /// All its bytes in the ring, which may have changed since.
    pub bytes: SharedBytes<'a>,
}

impl Taken<'_> {
    /// The bytes that were not copied.
    pub fn rest(&self) -> SharedBytes<'_> {
        let copied = self.copied.min(self.bytes.length);
        // SAFETY: inside these bytes.
        let start = unsafe { self.bytes.start.add(copied) };
        SharedBytes { start, length: self.bytes.length - copied, ring: PhantomData }
    }
}

/// Bytes of a record that are still in the ring. The other process may change them at any time, so no reference to them
/// is created: they are copied once, to their destination, and not read before.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    start: *const u8,
    length: usize,
    /// Borrows the mapping.
    ring: PhantomData<&'a Consumer>,
}

impl SharedBytes<'_> {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Their address, which stays mapped for the lifetime of this borrow, whatever the other process does.
    pub fn as_ptr(&self) -> *const u8 {
        self.start
    }

    /// `length` bytes from offset `start` on; `None` if there are not as many.
    #[must_use]
    pub fn part(&self, start: usize, length: usize) -> Option<Self> {
        if start.checked_add(length)? > self.length {
            return None;
        }
        // SAFETY: inside these bytes.
        Some(Self { start: unsafe { self.start.add(start) }, length, ring: PhantomData })
    }

    /// Copies them to the start of `out`, as far as they fit.
    pub fn copy_to(&self, out: &mut [u8]) {
        let length = self.length.min(out.len());
        // SAFETY: both have at least this length. Nothing else in this process writes there.
        unsafe { std::ptr::copy_nonoverlapping(self.start, out.as_mut_ptr(), length) };
    }
}

impl Consumer {
    /// Maps a ring that another process created.
    pub fn new(file: &RingFile) -> io::Result<Self> {
        let memory = file.map()?;
        Ok(Self {
            memory,
            head: AtomicU64::new(0),
            released: AtomicU64::new(0),
            checked_waiters: AtomicU64::new(0),
        })
    }

    /// Whether there are no records.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let tail = self.memory.control().map(RingControl::tail);
        tail.is_none_or(|tail| tail == self.head.load(Ordering::Relaxed))
    }

    /// Whether there are records. If so, prefetches the cache lines of the first ones, which the other processor holds.
    #[inline]
    pub fn has_records(&self) -> bool {
        let Some(control) = self.memory.control() else { return false };
        let head = self.head.load(Ordering::Relaxed);
        let unread = control.tail().wrapping_sub(head);
        self.memory.prefetch(head, (unread as usize).min(AHEAD));
        unread != 0
    }

    /// Copies the next record to the start of `out` and returns its length; `None` if there is none. A record that does
    /// not fit is [`Broken`].
    pub fn take(&self, out: &mut [u8]) -> Result<Option<usize>, Broken> {
        let Some((head, length, _)) = self.next()? else { return Ok(None) };
        let Some(out) = out.get_mut(..length) else { return Err(Broken) };
        self.copy(head, HEADER, out);
        self.head.store(head + record_length(length) as u64, Ordering::Relaxed);
        Ok(Some(length))
    }

    /// As [`Consumer::take`], but copies only the first `start` bytes of a record longer than `limit`. The rest stays
    /// in the ring until the record is released.
    #[inline]
    pub fn take_start(
        &self,
        out: &mut [u8],
        limit: usize,
        start: usize,
    ) -> Result<Option<Taken<'_>>, Broken> {
        let Some((head, length, is_marked)) = self.next()? else { return Ok(None) };
        let start = if length > limit { start.min(length) } else { length };
        if length > out.len() {
            return Err(Broken);
        }
        self.copy_start(head, start, out);
        self.head.store(head + record_length(length) as u64, Ordering::Relaxed);
        let bytes = SharedBytes {
            // SAFETY: inside the mapping: the record is shorter than the ring, and a whole ring is mapped after its start.
            start: unsafe { self.memory.at(head).add(HEADER) },
            length,
            ring: PhantomData,
        };
        Ok(Some(Taken { length, copied: start, is_marked, bytes }))
    }

    /// Copies as much of the next record as fits to `out`, and returns the record's length; `None` if there is none.
    /// The record stays in the ring, and its contents may change until it is taken.
    pub fn peek(&self, out: &mut [u8]) -> Result<Option<usize>, Broken> {
        let Some((head, length, _)) = self.next()? else { return Ok(None) };
        let shown = length.min(out.len());
        self.copy(head, HEADER, &mut out[..shown]);
        Ok(Some(length))
    }

    /// The position and length of the next record, and whether it is marked.
    fn next(&self) -> Result<Option<(u64, usize, bool)>, Broken> {
        let Some(control) = self.memory.control() else { return Ok(None) };
        let head = self.head.load(Ordering::Relaxed);
        let tail = control.tail();
        if head == tail {
            return Ok(None);
        }
        let unread = tail.wrapping_sub(head);
        if unread > self.memory.size() as u64 || unread % ALIGNMENT as u64 != 0 {
            return Err(Broken);
        }
        // SAFETY: inside the mapping. The header is read once: the other process may change it at any time.
        let header = unsafe { self.memory.at(head).cast::<u64>().read_volatile() };
        let length = header as u32 as usize;
        if record_length(length) as u64 > unread {
            return Err(Broken);
        }
        Ok(Some((head, length, header >> MARK_BIT & 1 != 0)))
    }

    /// Copies bytes of the record at position `head`, from `offset` on: at most up to the end of its last cache line.
    #[inline(always)]
    fn copy(&self, head: u64, offset: usize, out: &mut [u8]) {
        // SAFETY: the copied range is shorter than the ring, and a whole ring is mapped after its start.
        unsafe {
            let start = self.memory.at(head).add(offset);
            std::ptr::copy_nonoverlapping(start, out.as_mut_ptr(), out.len());
        }
    }

    /// Copies the first `length` bytes of a record, for which `out` has room. Short records are copied in whole cache
    /// lines, because a constant length compiles to a few moves instead of a call.
    #[inline(always)]
    fn copy_start(&self, head: u64, length: usize, out: &mut [u8]) {
        /// The first cache line also holds the header.
        const FIRST: usize = ALIGNMENT - HEADER;
        const LINES: usize = 3;
        const SHORT: usize = LINES * ALIGNMENT - HEADER;
        let Some(short) = out.first_chunk_mut::<SHORT>().filter(|_| length <= SHORT) else {
            return self.copy(head, HEADER, &mut out[..length]);
        };
        let (first, others) = short.split_at_mut(FIRST);
        self.copy(head, HEADER, first);
        let mut copied = FIRST;
        for line in others.chunks_exact_mut(ALIGNMENT) {
            if copied >= length {
                break;
            }
            self.copy(head, HEADER + copied, line);
            copied += ALIGNMENT;
        }
    }

    /// Whether the producer is not preparing a record. If so, and if the ring is empty after this call, then records that
    /// appear later have a later timestamp than the caller read from the clock before this call ([`super::Producer::begin`]).
    pub fn is_idle(&self) -> bool {
        self.memory.control().is_none_or(RingControl::is_idle)
    }

    /// How many records the producer has dropped for lack of space.
    pub fn dropped(&self) -> u64 {
        self.memory.control().map_or(0, RingControl::dropped)
    }

    /// Releases the space of the records taken. Returns whether the producer has to be woken.
    #[must_use]
    pub fn release(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        if self.released.swap(head, Ordering::Relaxed) == head {
            return false;
        }
        self.checked_waiters.store(head, Ordering::Relaxed);
        self.memory.control().is_some_and(|control| control.release(head))
    }

    /// As [`Consumer::release`], but checks only once per quarter of the ring whether the producer has to be woken,
    /// because that costs more than the rest. Records must be at most half as long as the ring: the producer waits for
    /// space only while more than half is unread, so a check happens before everything is read.
    #[must_use]
    #[inline]
    pub fn release_some(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        if head - self.checked_waiters.load(Ordering::Relaxed) >= self.memory.size() as u64 / 4 {
            return self.release();
        }
        if self.released.load(Ordering::Relaxed) != head {
            self.released.store(head, Ordering::Relaxed);
            if let Some(control) = self.memory.control() {
                control.give_back(head);
            }
        }
        false
    }

    /// Requests a wakeup when there is a record. Returns false if there is one already.
    #[must_use]
    pub fn sleep(&self) -> bool {
        if let Some(control) = self.memory.control() {
            control.sleep();
        }
        self.is_empty()
    }
}
