//! Who holds the credit of a pool, for assertions: in builds without debug assertions it is empty and costs nothing.

use alloc::collections::BTreeMap;

use crate::handle::{Handle, Schedulable};

/// What a pool counts for each QP, by QPN.
#[derive(Debug)]
pub(super) struct Ledger<Q> {
    charged: BTreeMap<u32, usize>,
    reserved: BTreeMap<u32, (Q, usize)>,
}

impl<Q> Default for Ledger<Q> {
    fn default() -> Self {
        Self { charged: BTreeMap::new(), reserved: BTreeMap::new() }
    }
}

impl<Q: Handle> Ledger<Q> {
    /// Above this number of members, only their changes are checked, not their sum.
    const MAX_SUMMED: usize = 16;

    #[inline]
    pub(super) fn charge(&mut self, queue_pair: &Q, before: usize, after: usize) {
        if cfg!(debug_assertions) {
            let number = queue_pair.number().0;
            let charged = self.charged.remove(&number).unwrap_or(0);
            assert_eq!(before, charged, "QP {number:#x} returns what it is not charged with");
            if after > 0 {
                self.charged.insert(number, after);
            }
        }
    }

    #[inline]
    pub(super) fn reserve(&mut self, queue_pair: &Q, bytes: usize) {
        if cfg!(debug_assertions) {
            let number = queue_pair.number().0;
            let before = self.reserved.insert(number, (queue_pair.clone(), bytes));
            let before = before.map(|(_, bytes)| bytes);
            assert_eq!(before, None, "credit is set aside for QP {number:#x} twice");
        }
    }

    #[inline]
    pub(super) fn release(&mut self, queue_pair: &Q, bytes: usize) {
        if cfg!(debug_assertions) && bytes > 0 {
            let number = queue_pair.number().0;
            let reserved = self.reserved.remove(&number).map_or(0, |(_, bytes)| bytes);
            assert_eq!(bytes, reserved, "QP {number:#x} returns what was not set aside for it");
        }
    }

    /// Panics if the sums of the members are not what the pool counts, or if credit is set aside for a QP that does not know
    /// of it.
    pub(super) fn check(&self, used: usize, reserved: usize) {
        if !cfg!(debug_assertions) || self.charged.len() + self.reserved.len() > Self::MAX_SUMMED {
            return;
        }
        assert_eq!(
            self.charged.values().sum::<usize>(),
            used,
            "credit in use, and charged to members"
        );
        let mut sum = 0;
        for (number, (queue_pair, bytes)) in &self.reserved {
            let known = queue_pair.marks().credit.reserved();
            assert_eq!(
                known, *bytes,
                "credit that QP {number:#x} can take, and that is set aside for it"
            );
            sum += bytes;
        }
        assert_eq!(sum, reserved, "credit set aside, and by member");
    }
}
