//! Rings: single-producer, single-consumer queues of records between two processes, in shared memory.
//!
//! One process writes records ([`Producer`]), the other reads them ([`Consumer`]), and neither makes a system call while
//! both are awake. The memory is a sealed memfd(2), so it cannot shrink under a process that uses it.
//!
//! Neither side trusts the other. A consumer copies a record out of the ring before it parses it, and both sides
//! validate every position that the other has written. A side that finds an invalid one stops using the ring
//! ([`Broken`]), so a malicious process can end its own connection but do no other harm.
//!
//! # Layout
//! One page with head, tail and flags (`RingControl`), then the records. Positions count all bytes ever written or read;
//! their low bits are the offset in the ring. A record starts with its length in four bytes and a mark, and takes a
//! multiple of 64 bytes. The records are mapped twice in a row, so that each one is contiguous.

mod consumer;
mod memory;
mod producer;

pub use consumer::{Consumer, SharedBytes, Taken};
pub(crate) use memory::MAX_SIZE;
pub use memory::RingFile;
pub use producer::Producer;

/// Records begin at multiples of this: a cache line, so that two records never share one.
const ALIGNMENT: usize = 64;

/// Bytes before the data of a record.
const HEADER: usize = 8;

/// The bit of a record's header, above the length, that holds the mark.
const MARK_BIT: u32 = 32;

/// The other process has written an invalid position or length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// The bytes that a record with this much data takes in the ring.
const fn record_length(data: usize) -> usize {
    (HEADER + data).next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests;
