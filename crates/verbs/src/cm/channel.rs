//! Where events of ids come out.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ferroce_sys::{Interest, Poller};

use super::event::{Event, IdName};
use crate::error::{Error, SystemError, WaitError};
use crate::options::Options;
use crate::sync::lock;
use crate::time::nanos;

#[derive(Debug)]
pub(super) struct Channel {
    event: ferroce_sys::Event,
    waiting: Mutex<VecDeque<Event>>,
    pub(super) options: Options,
}

impl Channel {
    /// Events and signals are one for one at every moment, so that a program may make reads of the descriptor wait: we
    /// read only what is there.
    pub(super) fn raise(&self, event: Event) {
        let mut waiting = lock(&self.waiting);
        waiting.push_back(event);
        let _ = self.event.signal();
    }

    fn take(&self) -> Result<Option<Event>, WaitError> {
        let mut waiting = lock(&self.waiting);
        let next = waiting.pop_front();
        if next.is_some() {
            self.event.take()?;
        }
        Ok(next)
    }

    /// Takes out the events of an id.
    pub(super) fn take_all(&self, id: IdName) -> VecDeque<Event> {
        let mut waiting = lock(&self.waiting);
        let (gone, kept): (VecDeque<_>, _) = waiting.drain(..).partition(|event| event.id == id);
        *waiting = kept;
        for _ in &gone {
            let _ = self.event.take();
        }
        gone
    }
}

/// A channel for the events of ids. Its file descriptor is readable while there is one. Clones are the same one.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_event_channel")]
pub struct EventChannel {
    pub(super) channel: Arc<Channel>,
}

impl EventChannel {
    /// A channel that no id uses yet.
    ///
    /// # Errors
    ///
    /// When the process has no file descriptor left.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<Self, SystemError> {
        Self::with_options(Options::default())
    }

    /// The same, whose ids open devices with these options.
    ///
    /// # Errors
    ///
    /// As [`EventChannel::new`].
    pub fn with_options(options: Options) -> Result<Self, SystemError> {
        let event = ferroce_sys::Event::counting()?;
        Ok(Self { channel: Arc::new(Channel { event, waiting: Mutex::default(), options }) })
    }

    /// Creates a channel whose cm_ids open devices with [`Options::from_env`].
    ///
    /// # Errors
    ///
    /// When an environment variable is invalid, or the process has no file descriptor left.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self::with_options(Options::from_env()?)?)
    }

    /// Takes an event, without waiting.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self) -> Result<Option<Event>, WaitError> {
        self.channel.take()
    }

    /// Waits for an event, at most until the deadline in nanoseconds of the monotonic clock.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Option<Event>, WaitError> {
        let deadline = nanos(deadline);
        let mut poller = Poller::new();
        poller.watch(&self.channel.event, Interest::Read);
        loop {
            if let Some(event) = self.try_event()? {
                return Ok(Some(event));
            }
            if poller.wait(deadline)? == 0 {
                return Ok(None);
            }
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.event.as_fd()
    }
}
