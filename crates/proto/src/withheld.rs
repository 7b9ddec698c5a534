//! What a QP withholds until accesses to memory have finished: completions, and responses of RC. A program sees a
//! completion, and the peer an ACK, only after the data of the message is in memory (IBA 9.7.5.1, 10.8.5).
//!
//! The order is that of the packets: an effect waits for the accesses before it, and for no later one. Host memory
//! answers at once, so nothing is ever withheld for it.

use alloc::collections::VecDeque;

use crate::memory::{Outcome, Token};

/// Unfinished accesses with a context `A`, and the effects `E` behind them.
#[derive(Debug)]
pub(crate) struct Withheld<A, E> {
    entries: VecDeque<Entry<A, E>>,
    /// Accesses that have not finished.
    unfinished: usize,
}

#[derive(Debug)]
enum Entry<A, E> {
    Access { token: Token, context: A, outcome: Option<Outcome> },
    Effect(E),
}

/// The oldest entry, which waits for nothing.
#[derive(Debug)]
pub(crate) enum Released<A, E> {
    Access(A, Outcome),
    Effect(E),
}

impl<A, E> Default for Withheld<A, E> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), unfinished: 0 }
    }
}

impl<A, E> Withheld<A, E> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of unfinished accesses.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// The oldest access. Everything before it is placed.
    pub(crate) fn oldest(&self) -> Option<&A> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Access { context, .. } => Some(context),
            Entry::Effect(_) => None,
        })
    }

    /// Adds an access that was begun.
    #[cold]
    pub(crate) fn begin(&mut self, token: Token, context: A) {
        self.unfinished += 1;
        self.entries.push_back(Entry::Access { token, context, outcome: None });
    }

    /// Adds an effect that waits for all accesses so far.
    #[cold]
    pub(crate) fn push(&mut self, effect: E) {
        self.entries.push_back(Entry::Effect(effect));
    }

    /// The effects, oldest first.
    pub(crate) fn effects(&self) -> impl Iterator<Item = &E> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Effect(effect) => Some(effect),
            Entry::Access { .. } => None,
        })
    }

    /// The newest effect, if no access was begun after it.
    pub(crate) fn newest_effect(&mut self) -> Option<&mut E> {
        match self.entries.back_mut()? {
            Entry::Effect(effect) => Some(effect),
            Entry::Access { .. } => None,
        }
    }

    /// An access has finished. Returns false if the token is of none of these.
    pub(crate) fn finish(&mut self, token: Token, result: Outcome) -> bool {
        let open = self.entries.iter_mut().find_map(|entry| match entry {
            Entry::Access { token: begun, outcome: outcome @ None, .. } if *begun == token => {
                Some(outcome)
            }
            _ => None,
        });
        let Some(outcome) = open else { return false };
        *outcome = Some(result);
        self.unfinished -= 1;
        true
    }

    /// Panics if an effect could be released, or the count is wrong. Between two events.
    #[cfg(debug_assertions)]
    pub(crate) fn check_invariants(&self) {
        let open = |entry: &Entry<A, E>| matches!(entry, Entry::Access { outcome: None, .. });
        assert!(self.entries.front().is_none_or(open), "an effect waits for a finished access");
        let unfinished = self.entries.iter().filter(|entry| open(entry)).count();
        assert_eq!(self.unfinished, unfinished, "count of unfinished accesses");
    }

    /// Takes the oldest entry, if it waits for nothing.
    pub(crate) fn pop(&mut self) -> Option<Released<A, E>> {
        if let Entry::Access { outcome: None, .. } = self.entries.front()? {
            return None;
        }
        Some(match self.entries.pop_front()? {
            Entry::Access { context, outcome, .. } => {
                Released::Access(context, outcome.unwrap_or(Outcome::Failed))
            }
            Entry::Effect(effect) => Released::Effect(effect),
        })
    }
}

impl<A, E> Withheld<A, E> {
    /// Adds an access that was begun, behind the completions that `done` has from index `released` on.
    #[cold]
    pub(crate) fn begin_behind(
        &mut self,
        done: &mut VecDeque<E>,
        released: &mut usize,
        token: Token,
        context: A,
    ) {
        if self.is_empty() {
            *released = done.len();
        }
        self.absorb(done, *released);
        self.begin(token, context);
    }

    /// Moves what `done` has from index `from` on behind the accesses, if there are any.
    pub(crate) fn absorb(&mut self, done: &mut VecDeque<E>, from: usize) {
        if !self.is_empty() {
            done.drain(from.min(done.len())..).for_each(|effect| self.push(effect));
        }
    }
}
