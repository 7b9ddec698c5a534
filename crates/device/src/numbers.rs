//! QPN allocation: random within the process's slot, so that a QPN does not reveal others.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;

/// The QPNs of a slot: the low 16 bits. The first few of slot 0 are reserved by the specification and the set-up
/// exchange.
const FIRST: u32 = 16;
const COUNT: u32 = 1 << 16;

/// A QPN is reused only after this many others were allocated: packets for its last owner may still arrive, and other
/// threads allocate between the choice of a QPN and its entry in the table.
const REST: usize = 4096;

/// Random draws before QPNs are tried in sequence.
const DRAWS: usize = 64;

#[derive(Debug)]
pub(super) struct Numbers {
    /// The last QPNs allocated.
    recent: VecDeque<u32>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { recent: VecDeque::with_capacity(REST) }
    }
}

impl Numbers {
    /// Returns the low bits of a free QPN, or `None` if all are taken.
    pub(super) fn next(
        &mut self,
        mut random: impl FnMut() -> u64,
        is_taken: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut draw = || FIRST + (random() % u64::from(COUNT - FIRST)) as u32;
        let is_free = |low: &u32| !is_taken(*low) && !self.recent.contains(low);
        let drawn = (0..DRAWS).map(|_| draw()).find(is_free);
        let found = drawn.or_else(|| {
            let start = draw();
            let mut all = (start..COUNT).chain(FIRST..start);
            // If nearly all are taken, a recently used QPN is better than none.
            let rested = all.clone().find(is_free);
            rested.or_else(|| all.find(|&low| !is_taken(low)))
        })?;
        if self.recent.len() == REST {
            self.recent.pop_front();
        }
        self.recent.push_back(found);
        Some(found)
    }
}
