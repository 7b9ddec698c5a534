//! A set of shards.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::options::MAX_SHARDS;

/// The shards of the QPs that use a CQ or a channel.
#[derive(Debug, Default)]
pub(crate) struct ShardSet(AtomicU32);

const _: () = assert!(MAX_SHARDS as u32 <= u32::BITS);

impl ShardSet {
    pub(crate) fn add(&self, shard: u8) {
        self.0.fetch_or(1 << shard, Ordering::Relaxed);
    }

    /// The first of them; `None` if there is none yet.
    pub(crate) fn first(&self) -> Option<u8> {
        let set = self.0.load(Ordering::Relaxed);
        (set != 0).then(|| set.trailing_zeros() as u8)
    }

    /// All of them; the first shard if there is none yet.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u8> + use<> {
        let mut left = self.0.load(Ordering::Relaxed).max(1);
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros() as u8)?;
            left &= left - 1;
            Some(next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_lists_its_shards_in_order() {
        let set = ShardSet::default();
        assert_eq!((set.first(), set.iter().collect::<Vec<_>>()), (None, vec![0]));
        set.add(5);
        set.add(2);
        assert_eq!((set.first(), set.iter().collect::<Vec<_>>()), (Some(2), vec![2, 5]));
    }
}
