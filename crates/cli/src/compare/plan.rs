//! What is transferred: size, chunks, and how many of them are in flight.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::session::bytes::Size;
use crate::session::end::{COMPLETION_TIMEOUT, SENDS};

/// The longest message (IBA 9.7.7).
const LONGEST: u64 = 1 << 31;

/// The page size of the test pattern: a chunk consists of whole pages.
const PAGE: u64 = 4096;

/// The maximum number of WRITEs in flight: the length of the SQ.
pub(super) const MAX_DEPTH: u32 = SENDS;

/// The bytes that are in flight by default. TCP has about as many, in its socket buffers (`tcp_wmem`, `tcp_rmem`).
const IN_FLIGHT: u64 = 8 << 20;

/// The slowest rate at which a side fills, transfers or verifies memory, to decide when it no longer answers.
const SLOWEST: u64 = 20_000_000;

/// The transfer that both sides agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Bytes of a transfer.
    pub(super) size: u64,
    /// Bytes of a chunk; the last one may be shorter.
    pub(super) chunk: u64,
    /// WRITEs in flight.
    pub(super) depth: u32,
}

impl Plan {
    /// Checks the arguments. The message says what is wrong and what is possible.
    pub(super) fn new(size: Size, chunk: Size, depth: Option<u32>) -> Result<Self, String> {
        let enough = IN_FLIGHT.div_ceil(chunk.0.max(1)).clamp(2, MAX_DEPTH.into());
        let depth = depth.unwrap_or(u32::try_from(enough).unwrap_or(MAX_DEPTH));
        let plan = Self { size: size.0, chunk: chunk.0, depth };
        plan.check().map(|()| plan)
    }

    /// Checks a plan, which may come from a client.
    pub(super) fn check(&self) -> Result<(), String> {
        let (size, chunk) = (Size(self.size), Size(self.chunk));
        if self.chunk == 0 || self.chunk % PAGE != 0 {
            return Err(format!("a chunk of {chunk} is not a multiple of 4 KiB: change --chunk"));
        }
        if self.chunk > LONGEST {
            return Err(format!(
                "a chunk of {chunk} is too long for a WRITE: --chunk is limited to 2 GiB"
            ));
        }
        if self.chunk > self.size {
            return Err(format!(
                "a chunk of {chunk} is longer than the whole transfer of {size}: choose a smaller \
                 --chunk or a larger --size"
            ));
        }
        if !(1..=MAX_DEPTH).contains(&self.depth) {
            return Err(format!("{} WRITEs in flight: 1 to {MAX_DEPTH} are possible", self.depth));
        }
        usize::try_from(self.size).map(drop).map_err(|_| format!("{size} do not fit in memory"))
    }

    /// The number of chunks.
    pub(super) fn chunks(&self) -> u64 {
        self.size.div_ceil(self.chunk)
    }

    /// The bytes of a chunk.
    pub(super) fn range(&self, chunk: u64) -> Range<u64> {
        let start = chunk * self.chunk;
        start..(start + self.chunk).min(self.size)
    }

    /// The packets that the WRITEs of one transfer need without loss.
    pub(super) fn packets(&self, mtu: u64) -> u64 {
        let packets = |bytes: u64| bytes.div_ceil(mtu.max(1));
        let last = self.range(self.chunks() - 1);
        (self.chunks() - 1) * packets(self.chunk) + packets(last.end - last.start)
    }

    /// How long the other side may take for a step.
    pub(super) fn patience(&self) -> Duration {
        COMPLETION_TIMEOUT + Duration::from_secs(self.size / SLOWEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(size: &str, chunk: &str) -> Result<Plan, String> {
        Plan::new(size.parse().unwrap(), chunk.parse().unwrap(), None)
    }

    #[test]
    fn the_default_depth_keeps_8_mib_in_flight() {
        for (chunk, depth) in [("4M", 2), ("1G", 2), ("1M", 8), ("64K", 64), ("4K", 64)] {
            assert_eq!(plan("1G", chunk).unwrap().depth, depth, "{chunk}");
        }
    }

    #[test]
    fn impossible_plans_are_refused() {
        for (size, chunk, words) in [
            ("1M", "4M", "longer than the whole transfer of 1 MiB"),
            ("1M", "1000", "not a multiple of 4 KiB"),
            ("8G", "4G", "limited to 2 GiB"),
        ] {
            let message = plan(size, chunk).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
        let hostile = Plan { size: u64::MAX, chunk: 0, depth: 0 };
        assert!(hostile.check().is_err());
        assert!(Plan { chunk: 4096, ..hostile }.check().is_err());
    }

    #[test]
    fn the_last_chunk_may_be_shorter() {
        let plan = plan("10000", "4K").unwrap();
        assert_eq!((plan.chunks(), plan.range(0), plan.range(2)), (3, 0..4096, 8192..10000));
        assert_eq!((plan.packets(4096), plan.packets(1024)), (3, 4 + 4 + 2));
    }
}
