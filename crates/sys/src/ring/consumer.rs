//! The end of a ring that reads records.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::{RingFile, RingMemory};
use super::{ALIGNMENT, Broken, HEADER, record_length};

/// The end of a ring that reads. One thread at a time takes records; any thread may ask whether there are some.
#[derive(Debug)]
pub struct Consumer {
    memory: RingMemory,
    /// The end of the records taken, and of those whose space was given back.
    head: AtomicU64,
    released: AtomicU64,
}

impl Consumer {
    /// Maps a ring that another process made.
    pub fn new(file: &RingFile) -> io::Result<Self> {
        let memory = file.map()?;
        Ok(Self { memory, head: AtomicU64::new(0), released: AtomicU64::new(0) })
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        let tail = self.memory.control().map(super::Control::tail);
        tail.is_none_or(|tail| tail == self.head.load(Ordering::Relaxed))
    }

    /// Copies the next record to the start of `out` and returns its length; `None` if there is none. A record that does
    /// not fit is [`Broken`].
    pub fn take(&self, out: &mut [u8]) -> Result<Option<usize>, Broken> {
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
        let start = self.memory.at(head);
        // SAFETY: inside the mapping. The length is read once: the other process may change it at any time.
        let length = unsafe { start.cast::<u32>().read_volatile() } as usize;
        if length > out.len() || record_length(length) as u64 > unread {
            return Err(Broken);
        }
        // SAFETY: the record is shorter than the ring, and a whole ring is mapped behind its start.
        unsafe { std::ptr::copy_nonoverlapping(start.add(HEADER), out.as_mut_ptr(), length) };
        self.head.store(head + record_length(length) as u64, Ordering::Relaxed);
        Ok(Some(length))
    }

    /// Gives the space of the records taken back to the producer. Returns whether it has to be woken.
    #[must_use]
    pub fn release(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        if self.released.swap(head, Ordering::Relaxed) == head {
            return false;
        }
        self.memory.control().is_some_and(|control| control.release(head))
    }

    /// Asks to be woken when there is a record. Returns false if there is one already.
    #[must_use]
    pub fn sleep(&self) -> bool {
        if let Some(control) = self.memory.control() {
            control.sleep();
        }
        self.is_empty()
    }
}
