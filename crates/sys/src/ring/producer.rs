//! The producer of a ring.

use std::io;

use ferroce_sync::RingControl;

use super::memory::{RingFile, RingMemory};
use super::{Broken, HEADER, MARK_BIT, record_length};

/// After a record up to this length, similar ones are expected, so their cache lines are prefetched: this far ahead.
const SHORT: usize = 512;
const AHEAD: u64 = 512;

/// The producer of a ring, which writes records.
#[derive(Debug)]
pub struct Producer {
    memory: RingMemory,
    /// The position after the records written, and after those published.
    tail: u64,
    published: u64,
    /// The consumer's head when it was last loaded.
    head: u64,
}

impl Producer {
    /// Maps a new ring.
    pub fn new(file: &RingFile) -> io::Result<Self> {
        Ok(Self { memory: file.map()?, tail: 0, published: 0, head: 0 })
    }

    /// Space for a record of `length` bytes; `None` if the ring is too full. The record exists after [`Producer::commit`].
    #[inline]
    pub fn room(&mut self, length: usize) -> Result<Option<&mut [u8]>, Broken> {
        if !self.has_room(length)? {
            return Ok(None);
        }
        // SAFETY: inside the mapping, which has a whole ring after each position, and `has_room` has checked that the
        // record fits in the ring. The consumer does not read it before it is published. A consumer that does, or that
        // writes there, corrupts only its own records: this process never reads what it has written.
        let room = unsafe {
            std::slice::from_raw_parts_mut(self.memory.at(self.tail).add(HEADER), length)
        };
        Ok(Some(room))
    }

    /// Whether there is space for a record of `length` bytes. [`Broken`] in a forked child, which does not have the memory.
    #[inline]
    pub fn has_room(&mut self, length: usize) -> Result<bool, Broken> {
        if self.memory.is_lost() {
            return Err(Broken);
        }
        let size = self.memory.size() as u64;
        let needed = record_length(length) as u64;
        if self.tail + needed - self.head <= size {
            return Ok(true);
        }
        let head = self.memory.control().ok_or(Broken)?.head();
        // The consumer cannot have read more than was published, nor have left more than the ring holds.
        match self.published.checked_sub(head) {
            Some(unread) if unread <= size => self.head = head,
            _ => return Err(Broken),
        }
        Ok(self.tail + needed - self.head <= size)
    }

    /// Completes a record of the first `length` bytes of [`Producer::room`]. The consumer sees it after [`Producer::publish`].
    #[inline]
    pub fn commit(&mut self, length: usize) {
        self.commit_record(length, false);
    }

    /// As [`Producer::commit`], with or without a mark for the consumer ([`super::Taken::is_marked`]).
    #[inline(always)]
    pub fn commit_record(&mut self, length: usize, is_marked: bool) {
        let header = length as u64 | u64::from(is_marked) << MARK_BIT;
        // SAFETY: inside the mapping: the header of the space that `room` returned.
        unsafe { self.memory.at(self.tail).cast::<u64>().write(header) };
        let taken = record_length(length);
        if taken <= SHORT {
            self.memory.prefetch_for_writing(self.tail + AHEAD, taken);
        }
        self.tail += taken as u64;
    }

    /// The position after the records written so far.
    #[inline]
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Whether the consumer has not yet released all records before this position.
    pub fn is_unread(&self, position: u64) -> bool {
        self.memory.control().is_some_and(|control| control.head() < position)
    }

    /// The bytes of records that were written but not published.
    #[inline]
    pub fn unpublished(&self) -> usize {
        (self.tail - self.published) as usize
    }

    /// Publishes the records written so far. Returns whether the consumer has to be woken.
    #[must_use]
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.published = self.tail;
        self.memory.control().is_some_and(|control| control.publish(self.tail))
    }

    /// Requests a wakeup when the consumer releases space. Returns whether there is space for a record of `length` bytes already.
    pub fn wait_for_room(&mut self, length: usize) -> Result<bool, Broken> {
        self.memory.control().ok_or(Broken)?.wait_for_space();
        self.has_room(length)
    }

    /// How many records of `length` bytes there is space for, according to the head that [`Producer::has_room`] last loaded.
    #[inline]
    pub fn rooms(&self, length: usize) -> usize {
        let used = (self.tail - self.head) as usize;
        self.memory.size().saturating_sub(used) / record_length(length)
    }

    /// Whether the consumer has not yet woken this process after [`Producer::wait_for_room`].
    pub fn awaits_room(&self) -> bool {
        self.memory.control().is_some_and(RingControl::awaits_space)
    }

    /// Announces a record before its timestamp is read from the clock: see [`super::Consumer::is_idle`]. Ended by [`Producer::end`].
    pub fn begin(&self) {
        if let Some(control) = self.memory.control() {
            control.begin();
        }
    }

    /// Ends the announcement by [`Producer::begin`], after the record was published or dropped.
    pub fn end(&self) {
        if let Some(control) = self.memory.control() {
            control.end();
        }
    }

    /// Counts a record that was dropped for lack of space, in shared memory that the consumer reads.
    pub fn count_dropped(&self) {
        if let Some(control) = self.memory.control() {
            control.count_dropped();
        }
    }
}
