//! Event channels: deliver the events of cm_ids.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use super::event::Event;
use crate::error::{Error, SystemError, WaitError};
use crate::event_queue::EventQueue;
use crate::options::Options;

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) events: EventQueue<Event>,
    pub(super) options: Options,
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
        Ok(Self { channel: Arc::new(Channel { events: EventQueue::new()?, options }) })
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
        self.channel.events.take()
    }

    /// Waits for an event; returns `None` at the deadline.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Option<Event>, WaitError> {
        self.channel.events.wait(deadline)
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.events.as_fd()
    }
}
