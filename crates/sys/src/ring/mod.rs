//! Rings: queues of records between two processes, in memory that they share.
//!
//! One process writes records ([`Producer`]), the other reads them ([`Consumer`]), and neither makes a system call while
//! both are awake. The memory is a sealed memfd(2), so it cannot shrink under a process that uses it.
//!
//! Neither side trusts the other. A consumer copies a record out of the ring before it looks at it, and both check every
//! position that the other side has written. A side that finds an impossible one stops using the ring ([`Broken`]); a
//! process can thus end its own connection and do no other harm.
//!
//! # Layout
//! One page with the positions (`Control`), then the records. Positions count all bytes ever written or read; their
//! lowest bits are the place in the ring. A record begins with its length in four bytes and a mark, and takes a multiple of
//! 64 bytes. The part with the records is mapped twice in a row, so that a record is always in one piece.

mod consumer;
mod control;
mod memory;
mod producer;

pub use consumer::{Consumer, SharedBytes, Taken};
pub use memory::RingFile;
pub use producer::Producer;

use control::Control;

/// Records begin at multiples of this: a cache line, so that two records never share one.
const ALIGNMENT: usize = 64;

/// Bytes before the data of a record.
const HEADER: usize = 8;

/// The bit of a record's header, above its length, that is its mark.
const MARK_BIT: u32 = 32;

/// The other process has written a position or a length that is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// The bytes that a record with this much data takes.
const fn record_length(data: usize) -> usize {
    (HEADER + data).next_multiple_of(ALIGNMENT)
}

#[cfg(all(test, not(ferroce_loom)))]
mod tests;
