//! Memory that takes time: accesses begin, and finish later in any order.

use core::ops::Range;
use core::time::Duration;
use std::vec::Vec;

use super::{Random, TestMemory};
use crate::memory::{Accessor, Atomic, Begun, Finished, Outcome, PayloadRead, Staged, Token};
use crate::time::Instant;

/// Which accesses take time, and the unfinished ones.
pub(crate) struct Pending {
    /// Of 1,000 accesses.
    pub(crate) chance: u64,
    /// Whether reads take time as well.
    pub(crate) reads: bool,
    /// Of 1,000 that take time.
    pub(crate) failing: u64,
    /// The shortest and the longest time.
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
    pub(crate) open: Vec<Open>,
    /// How many have begun.
    pub(crate) begun: u64,
    random: Random,
}

/// An access that has finished.
#[derive(Debug)]
pub(crate) enum Ended {
    Access(Finished),
    Read(PayloadRead),
}

/// An unfinished access.
pub(crate) struct Open {
    pub(crate) by: Accessor,
    pub(crate) token: Token,
    pub(crate) range: Range<usize>,
    /// Random at first; a time once [`TestMemory::next_finish`] has seen it.
    due: Option<Instant>,
    wait: Duration,
    access: Access,
}

enum Access {
    /// Ranges of `bytes` in place of the one range.
    Read(Vec<Range<usize>>),
    Write(Vec<u8>),
    Atomic(Atomic),
}

impl Pending {
    pub(super) fn new() -> Self {
        let (shortest, longest) = (Duration::ZERO, Duration::from_micros(20));
        let (random, open) = (Random(0xca11), Vec::new());
        Self { chance: 0, reads: false, failing: 0, shortest, longest, open, begun: 0, random }
    }

    fn begin(&mut self, by: Accessor, range: Range<usize>, access: Access) -> Token {
        self.begun += 1;
        let token = Token(self.begun);
        let wait = Duration::from_nanos(self.random.below(1 + self.longest.as_nanos() as u64));
        let wait = wait.max(self.shortest);
        self.open.push(Open { by, token, range, due: None, wait, access });
        token
    }
}

impl TestMemory {
    /// Lets accesses take time.
    pub(crate) fn pend(&mut self, seed: u64, chance: u64, longest: Duration) {
        let random = Random(seed);
        self.pending = Pending { chance, longest, random, ..Pending::new() };
    }

    pub(super) fn takes_time(&mut self) -> bool {
        self.pending.chance > 0 && self.pending.random.chance(self.pending.chance)
    }

    pub(super) fn begin_write(
        &mut self,
        by: Accessor,
        range: Range<usize>,
        data: &[u8],
    ) -> Begun<()> {
        Begun::Pending(self.pending.begin(by, range, Access::Write(data.into())))
    }

    pub(super) fn begin_read(&mut self, by: Accessor, parts: Vec<Range<usize>>) -> Begun<()> {
        Begun::Pending(self.pending.begin(by, 0..0, Access::Read(parts)))
    }

    pub(super) fn begin_operation(
        &mut self,
        by: Accessor,
        range: Range<usize>,
        operation: Atomic,
    ) -> Begun<u64> {
        Begun::Pending(self.pending.begin(by, range, Access::Atomic(operation)))
    }

    /// Whether bytes of this range will still be written.
    pub(crate) fn is_open(&self, offset: u64, length: u32) -> bool {
        let (start, end) = (offset as usize, offset as usize + length as usize);
        self.pending.open.iter().any(|open| open.range.start < end && start < open.range.end)
    }

    /// When the next access finishes. Those that began since the last call begin now.
    pub(crate) fn next_finish(&mut self, now: Instant) -> Option<Instant> {
        let open = self.pending.open.iter_mut();
        open.map(|open| *open.due.get_or_insert(now + open.wait)).min()
    }

    /// Finishes the access that is due first.
    pub(crate) fn finish_next(&mut self) -> Ended {
        let open = self.pending.open.iter().enumerate();
        let (index, _) = open.min_by_key(|(_, open)| (open.due, open.token.0)).unwrap();
        self.finish(index)
    }

    /// Finishes the access at this index, or lets it fail.
    pub(crate) fn finish(&mut self, index: usize) -> Ended {
        let Open { by, token, range, access, .. } = self.pending.open.remove(index);
        let fails = self.pending.failing > 0 && self.pending.random.chance(self.pending.failing);
        let queue_pair = by.queue_pair;
        let outcome = match access {
            Access::Read(parts) => {
                let bytes = || parts.iter().flat_map(|part| &self.bytes[part.clone()]);
                let payload = (!fails).then(|| Staged::new(bytes().copied().collect::<Vec<_>>()));
                return Ended::Read(PayloadRead { queue_pair, token, payload });
            }
            _ if fails => Outcome::Failed,
            Access::Write(data) => {
                self.bytes[range].copy_from_slice(&data);
                Outcome::Written
            }
            Access::Atomic(operation) => Outcome::Executed(self.execute(range, operation)),
        };
        Ended::Access(Finished { queue_pair, token, outcome })
    }
}
