//! The send requests of a queue pair that have not completed.

use std::collections::VecDeque;

use ferroce_proto::time::Instant;
use ferroce_proto::work::{Completion, Status};

use super::BOUND;
use crate::rdma::Summary;

/// A send request that has not completed. `T` is what its success means.
#[derive(Clone, Copy, Debug)]
struct Posted<T> {
    id: u64,
    at: Instant,
    /// Its memory was gone when it was posted.
    must_fail: bool,
    effect: T,
}

/// The send requests of a QP, in order.
#[derive(Debug)]
pub(super) struct Requests<T> {
    posted: VecDeque<Posted<T>>,
    /// A request completed in error.
    pub(super) failed: bool,
}

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self { posted: VecDeque::new(), failed: false }
    }
}

impl<T> Requests<T> {
    pub(super) fn push(&mut self, id: u64, at: Instant, must_fail: bool, effect: T) {
        self.posted.push_back(Posted { id, at, must_fail, effect });
    }

    pub(super) fn len(&self) -> usize {
        self.posted.len()
    }

    /// The effects of all that have not completed.
    pub(super) fn effects(&self) -> impl Iterator<Item = &T> {
        self.posted.iter().map(|posted| &posted.effect)
    }

    pub(super) fn effects_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.posted.iter_mut().map(|posted| &mut posted.effect)
    }

    /// Takes the request of a completion. Returns its effect if it succeeded.
    pub(super) fn complete(
        &mut self,
        done: &Completion,
        summary: &mut Summary,
    ) -> Result<Option<T>, String> {
        let posted = self.posted.pop_front().filter(|posted| posted.id == done.id.0);
        let Some(posted) = posted else { return Err(format!("{done:?} is not the next")) };
        if done.status != Status::Success {
            self.failed = true;
            summary.fail(done.status);
            return Ok(None);
        }
        if self.failed {
            return Err(format!("{done:?} after an error"));
        }
        if posted.must_fail {
            return Err(format!("{done:?} of memory that was gone before"));
        }
        summary.succeeded += 1;
        summary.bytes += u64::from(done.length);
        Ok(Some(posted.effect))
    }

    /// Verifies that none has been posted for longer than [`BOUND`].
    pub(super) fn verify(&self, now: Instant) -> Result<(), String> {
        match self.posted.front().filter(|posted| now.since(posted.at) > BOUND) {
            Some(posted) => Err(format!(
                "request {} was posted at {} and has not completed at {now}, {} requests are posted",
                posted.id,
                posted.at,
                self.len()
            )),
            None => Ok(()),
        }
    }
}
