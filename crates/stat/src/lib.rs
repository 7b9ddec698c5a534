//! Published state: the counters and the objects of every process that has a device open, for other processes to read.
//!
//! A process writes to a memfd(2) called `ferroce-stat` ([`Page`]). Whoever may look into its `/proc/PID/fd`, which is the
//! same user and root, reads it there (`read_all`, feature `reader`). There is no daemon and no file: the memory is there
//! while a device is open, and is gone with the process, however it ends. Reading takes no lock and stops nobody.
//!
//! This crate knows the format and `/proc`. It does not know devices or packets: `crates/verbs` writes, `crates/cli` reads.
//!
//! # Format
//! All is in words of 64 bits in the byte order of the host: a [header](layout::Header), then slots. A slot is a device, a
//! QP, a CQ, an MR or an SRQ, or free. Its second word is the [kind](layout::Kind) and the number of words, which never
//! changes. Its last and its first word are sequence numbers: the writer increments the last, changes the fields, and sets
//! the first to the same. A reader copies the slot from front to back, and copies it again if the two are different.
//!
//! The format has a [version](layout::VERSION). A reader of another version shows that the process exists, no more.
#![forbid(unsafe_code)]

#[cfg(test)]
use ferroce_test_support as _;

pub mod histogram;
pub mod layout;
#[cfg(feature = "reader")]
mod process;
#[cfg(feature = "reader")]
mod reader;
#[cfg(feature = "reader")]
pub mod snapshot;
mod writer;

#[cfg(feature = "reader")]
pub use reader::{Filter, read_all};
pub use writer::{Page, Slot};
