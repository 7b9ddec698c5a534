//! The core of a completion queue (CQ): the ring that the device fills, and the channel of its events.
//!
//! [`CompletionQueue`](crate::CompletionQueue) is the handle of a program to it.

mod channel;
#[cfg(test)]
mod tests;
mod wait;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ferroce_proto::work::{Completion, Status};
use ferroce_stat::Slot;
use ferroce_stat::layout::{CompletionQueue as Field, Kind};
use ferroce_sync::{CompletionRing, Observer};
use ferroce_wire::number::Qpn;

pub use self::channel::CompletionChannel;
use self::channel::ShardSet;
use crate::engine::Counters;
use crate::event::{AsyncEvent, Events, Source};
use crate::time::Timestamp;

/// A completion queue entry (CQE): the completion of a work request. Dereferences to its [`Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_wc")]
#[non_exhaustive]
pub struct WorkCompletion {
    /// The queue pair of the work request.
    pub queue_pair: Qpn,
    /// When the work request completed.
    pub time: Timestamp,
    /// Its ID, status and result.
    pub completion: Completion,
}

impl Deref for WorkCompletion {
    type Target = Completion;

    fn deref(&self) -> &Completion {
        &self.completion
    }
}

/// The part of a completion queue that queue pairs refer to.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) ring: CompletionRing<WorkCompletion, Published>,
    pub(crate) overrun: AtomicBool,
    pub(crate) channel: Option<CompletionChannel>,
    /// Receives the overrun event.
    events: Arc<Events>,
    pub(crate) id: u64,
    /// Queue pairs and shared receive queues that complete here.
    pub(crate) users: AtomicUsize,
    pub(crate) shards: ShardSet,
}

/// What a CQ publishes: changed only under the lock of its ring.
#[derive(Debug)]
pub(crate) struct Published(Slot);

impl Published {
    #[inline]
    fn count(&self, field: Field, more: u64) {
        let word = self.0.word(field as usize);
        word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}

impl Observer for Published {
    fn set_capacity(&self, capacity: usize) {
        self.0.set(Field::Capacity as usize, capacity as u64);
    }

    #[inline]
    fn set_length(&self, length: usize, added: u64) {
        self.0.set(Field::Pending as usize, length as u64);
        if added > 0 {
            self.count(Field::Completions, added);
        }
    }

    fn count_overrun(&self) {
        self.count(Field::Overruns, 1);
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A completion found the CQ full: it is lost, and the CQ is in error (IBA 11.6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun {
    pub(crate) queue: u64,
    pub(crate) capacity: u32,
}

/// Whether a completion raises the event of a queue that is armed for solicited ones. A failed one does (IBA 11.4.2.2).
fn is_solicited(entry: &WorkCompletion) -> bool {
    entry.solicited || entry.status != Status::Success
}

impl Queue {
    pub(crate) fn new(
        capacity: usize,
        channel: Option<CompletionChannel>,
        events: Arc<Events>,
        device: &Counters,
    ) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let slot = device.publish(Kind::CompletionQueue, |slot| {
            slot.set(Field::Id as usize, id);
        });
        Self {
            ring: CompletionRing::new(capacity, Published(slot)),
            overrun: AtomicBool::new(false),
            channel,
            events,
            id,
            users: AtomicUsize::new(0),
            shards: ShardSet::default(),
        }
    }

    /// Adds a completion, and raises an event if the CQ is armed for it.
    #[inline]
    pub(crate) fn push(&self, entry: WorkCompletion) -> Result<(), Overrun> {
        let solicited = is_solicited(&entry);
        let Ok(notify) = self.ring.push(entry, solicited) else { return Err(self.overrun()) };
        if let (true, Some(channel)) = (notify, &self.channel) {
            channel.raise(self.id);
        }
        Ok(())
    }

    #[cold]
    fn overrun(&self) -> Overrun {
        if !self.overrun.swap(true, Ordering::Relaxed) {
            self.events.raise(AsyncEvent::completion_lost(self.id));
        }
        Overrun { queue: self.id, capacity: self.ring.capacity() as u32 }
    }

    /// Requests an event, and raises it if a completion came since the program polled.
    pub(crate) fn arm(&self, solicited_only: bool) {
        let raises = self.ring.arm(solicited_only, is_solicited);
        if let (true, Some(channel)) = (raises, &self.channel) {
            channel.raise(self.id);
        }
    }

    /// The shard of its queue pairs, or of others with the same channel. `None` if there are none yet.
    pub(crate) fn shard(&self) -> Option<u8> {
        self.shards.first().or_else(|| self.channel.as_ref()?.0.shards.first())
    }

    /// A queue pair of this shard completes here.
    pub(crate) fn add_shard(&self, shard: u8) {
        self.shards.add(shard);
        if let Some(channel) = &self.channel {
            channel.0.shards.add(shard);
        }
    }

    /// Removes the completions of a destroyed or reset QP (IBA 10.3.1.1).
    pub(crate) fn forget(&self, queue_pair: Qpn) {
        self.ring.retain(|entry| entry.queue_pair != queue_pair);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.events.forget(Source::CompletionQueue(self.id));
        if let Some(channel) = &self.channel {
            channel.forget(self.id);
        }
    }
}
