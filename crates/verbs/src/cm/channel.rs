//! Event channels: deliver the events of cm_ids.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ferroce_sys::{Interest, Poller};

use super::event::{Event, IdName};
use crate::error::{Error, SystemError, WaitError};
use crate::options::Options;
use crate::sync::lock;
use crate::time::nanos;

#[derive(Debug)]
pub(super) struct Channel {
    event: ferroce_sys::Event,
    pending: Mutex<VecDeque<Event>>,
    /// Notified when an event is added, for threads that wait for certain events ([`Channel::wait_for`]).
    raised: Condvar,
    pub(super) options: Options,
}

impl Channel {
    /// Adds an event. The eventfd counts the pending events, and is only touched under their lock: a read never blocks,
    /// even if the program has cleared O_NONBLOCK.
    pub(super) fn raise(&self, event: Event) {
        let mut pending = lock(&self.pending);
        pending.push_back(event);
        let _ = self.event.signal();
        self.raised.notify_all();
    }

    fn take(&self) -> Result<Option<Event>, WaitError> {
        let mut pending = lock(&self.pending);
        let next = pending.pop_front();
        if next.is_some() {
            self.event.take()?;
        }
        Ok(next)
    }

    fn wait(&self, deadline: Option<Instant>) -> Result<Option<Event>, WaitError> {
        let deadline = nanos(deadline);
        let mut poller = Poller::new();
        poller.watch(&self.event, Interest::Read);
        loop {
            if let Some(event) = self.take()? {
                return Ok(Some(event));
            }
            if poller.wait(deadline)? == 0 {
                return Ok(None);
            }
        }
    }

    /// Waits for an event that `is_wanted` accepts, and leaves all others to the threads that wait for them. `None` at the
    /// deadline.
    pub(super) fn wait_for(
        &self,
        deadline: Option<Instant>,
        is_wanted: impl Fn(&Event) -> bool,
    ) -> Result<Option<Event>, WaitError> {
        let mut pending = lock(&self.pending);
        loop {
            if let Some(at) = pending.iter().position(&is_wanted) {
                self.event.take()?;
                return Ok(pending.remove(at));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            pending = match left {
                None => self.raised.wait(pending).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Ok(None),
                Some(left) => {
                    let woken = self.raised.wait_timeout(pending, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Removes and returns the events of a cm_id.
    pub(super) fn take_all(&self, id: IdName) -> VecDeque<Event> {
        let mut pending = lock(&self.pending);
        let (taken, others): (VecDeque<_>, _) = pending.drain(..).partition(|event| event.id == id);
        *pending = others;
        for _ in &taken {
            let _ = self.event.take();
        }
        taken
    }
}

/// An event channel: delivers the events of [cm_ids](super::CmId). Clones share it.
///
/// Its file descriptor is readable while an event is pending. [`EventChannel::wait`] and [`EventChannel::try_event`] take any
/// event, also one that another thread waits for with [`CmId::wait_disconnected`](super::CmId::wait_disconnected) and its like.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_event_channel")]
pub struct EventChannel {
    pub(super) channel: Arc<Channel>,
}

impl EventChannel {
    /// Creates a channel whose cm_ids open devices with [`Options::default`].
    ///
    /// # Errors
    ///
    /// When the process has no file descriptor left.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<Self, SystemError> {
        Self::with_options(Options::default())
    }

    /// Creates a channel whose cm_ids open devices with these options.
    ///
    /// # Errors
    ///
    /// As [`EventChannel::new`].
    pub fn with_options(options: Options) -> Result<Self, SystemError> {
        let event = ferroce_sys::Event::counting()?;
        Ok(Self {
            channel: Arc::new(Channel {
                event,
                pending: Mutex::default(),
                raised: Condvar::new(),
                options,
            }),
        })
    }

    /// Creates a channel whose cm_ids open devices with [`Options::from_env`].
    ///
    /// # Errors
    ///
    /// When an environment variable is invalid, or the process has no file descriptor left.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self::with_options(Options::from_env()?)?)
    }

    /// Takes an event without waiting.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self) -> Result<Option<Event>, WaitError> {
        self.channel.take()
    }

    /// Waits for an event; returns `None` at the deadline.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Option<Event>, WaitError> {
        self.channel.wait(deadline)
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.event.as_fd()
    }
}
