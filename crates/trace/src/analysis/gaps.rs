//! Gaps in the sequence numbers of one sender, which packets that are merely late may still fill.

use std::collections::VecDeque;

/// Gaps kept open. Packets are late by a few others, not by this many gaps.
const MAX_GAPS: usize = 64;

/// The longest gap that late packets are expected to fill.
const MAX_LENGTH: u64 = 128;

/// A gap, and what its tracker knows about it.
#[derive(Debug)]
struct Gap<T> {
    first: u64,
    /// A bit for each missing packet, the lowest for the first.
    missing: u128,
    about: T,
}

/// The open gaps, oldest first.
#[derive(Debug)]
pub(super) struct Gaps<T>(VecDeque<Gap<T>>);

impl<T> Default for Gaps<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Gaps<T> {
    /// Opens a gap from `first` up to, excluding, `end`. Returns one that no packet will fill any more: the oldest, if there
    /// are too many, or this one, if it is too long.
    pub(super) fn open(&mut self, first: u64, end: u64, about: T) -> Option<T> {
        let length = end.saturating_sub(first);
        if length == 0 || length > MAX_LENGTH {
            return Some(about);
        }
        let missing = u128::MAX >> (MAX_LENGTH - length);
        self.0.push_back(Gap { first, missing, about });
        if self.0.len() > MAX_GAPS { self.0.pop_front().map(|gap| gap.about) } else { None }
    }

    /// Records that a packet was late. Returns the gap in which it was the last one missing.
    pub(super) fn fill(&mut self, sequence: u64) -> Filled<T> {
        let bit = |gap: &Gap<T>| {
            let at = sequence.checked_sub(gap.first).filter(|at| *at < MAX_LENGTH)?;
            Some(1_u128 << at).filter(|bit| gap.missing & bit != 0)
        };
        let mut newest_first = self.0.iter().enumerate().rev();
        let found = newest_first.find_map(|(index, gap)| Some((index, bit(gap)?)));
        let Some((index, bit)) = found else { return Filled::Nothing };
        self.0[index].missing &= !bit;
        if self.0[index].missing != 0 {
            return Filled::Part;
        }
        self.0.remove(index).map_or(Filled::Nothing, |gap| Filled::Whole(gap.about))
    }

    /// Takes the gaps that were never filled.
    pub(super) fn take(&mut self) -> impl Iterator<Item = T> {
        std::mem::take(&mut self.0).into_iter().map(|gap| gap.about)
    }
}

/// What a late packet has filled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Filled<T> {
    /// No gap: it is a copy.
    Nothing,
    Part,
    Whole(T),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_closes_with_its_last_packet() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.open(10, 12, 'a'), None);
        assert_eq!(gaps.open(20, 20 + MAX_LENGTH, 'b'), None);
        assert_eq!(gaps.fill(11), Filled::Part);
        assert_eq!(gaps.fill(11), Filled::Nothing);
        assert_eq!(gaps.fill(12), Filled::Nothing);
        assert_eq!(gaps.fill(10), Filled::Whole('a'));
        assert_eq!(gaps.fill(10), Filled::Nothing);
        for late in 20..20 + MAX_LENGTH - 1 {
            assert_eq!(gaps.fill(late), Filled::Part);
        }
        assert_eq!(gaps.fill(20 + MAX_LENGTH - 1), Filled::Whole('b'));
        assert_eq!(gaps.take().count(), 0);
    }

    #[test]
    fn old_and_long_gaps_are_given_up() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.open(0, MAX_LENGTH + 1, 1000), Some(1000));
        for index in 0..MAX_GAPS as u64 {
            assert_eq!(gaps.open(2 * index, 2 * index + 1, index), None);
        }
        assert_eq!(gaps.open(500, 501, 500), Some(0));
        assert_eq!(gaps.fill(0), Filled::Nothing);
        assert_eq!(gaps.take().count(), MAX_GAPS);
    }
}
