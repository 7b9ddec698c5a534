//! Event channels, and calls that wait for their result, for programs with one connection per thread.
//!
//! Several threads may wait on one channel at the same time, each for events of its own cm_id, or for requests: other events stay
//! pending for the threads that wait for them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferroce_wire::rdmacm::PortSpace;

use super::id::{Channel, CmId, Event, EventChannel, EventKind, Request};
use super::parameters::{ConnectParameters, DisconnectCause, Established};
use crate::error::{CmError, Error, SystemError, WaitError};
use crate::event_queue::EventQueue;
use crate::options::Options;

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

    /// Waits for a connection request to one of the listeners, at most until the deadline.
    ///
    /// # Errors
    ///
    /// When the wait fails, and [`CmError::TimedOut`] at the deadline.
    pub fn wait_request(&self, deadline: impl Into<Option<Instant>>) -> Result<Request, CmError> {
        let wanted = |event: &Event| event.kind.is_request();
        let event = self.channel.events.wait_for(deadline.into(), wanted)?;
        match event.map(|event| event.kind) {
            Some(EventKind::ConnectRequest(request)) => Ok(*request),
            _ => Err(CmError::TimedOut),
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.events.as_fd()
    }
}

impl CmId {
    /// Creates a cm_id, resolves address and route of a peer, and waits for both. The cm_id has a device afterwards.
    ///
    /// # Errors
    ///
    /// When the peer cannot be resolved within the timeout.
    pub fn resolve(
        channel: &EventChannel,
        space: PortSpace,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, CmError> {
        let id = Self::new(channel, space)?;
        id.resolve_address(None, peer, timeout)?;
        id.wait_kind(None)?;
        id.resolve_route(timeout)?;
        id.wait_kind(None)?;
        Ok(id)
    }

    /// Connects, and waits until the peer has accepted, rejected or timed out, at most until the deadline.
    ///
    /// # Errors
    ///
    /// As [`CmId::connect`], and [`CmError::Rejected`] or [`CmError::Unreachable`]; [`CmError::TimedOut`] at the deadline.
    /// The attempt goes on then: drop or [close](CmId::close) the cm_id to end it.
    pub fn connect_blocking(
        &self,
        parameters: &ConnectParameters,
        deadline: impl Into<Option<Instant>>,
    ) -> Result<Established, CmError> {
        self.connect(parameters)?;
        match self.wait_kind(deadline.into())? {
            EventKind::Established(established) => Ok(*established),
            _ => Err(CmError::Disconnected),
        }
    }

    /// Waits until the connection has ended, at most until the deadline, and returns why.
    ///
    /// # Errors
    ///
    /// When it was not established, or the wait fails, and [`CmError::TimedOut`] at the deadline.
    pub fn wait_disconnected(
        &self,
        deadline: impl Into<Option<Instant>>,
    ) -> Result<DisconnectCause, CmError> {
        let deadline = deadline.into();
        loop {
            if let EventKind::Disconnected(cause) = self.wait_kind(deadline)? {
                return Ok(cause);
            }
        }
    }

    /// Waits for the next event of this cm_id that is not a request to it, and turns failures into errors.
    fn wait_kind(&self, deadline: Option<Instant>) -> Result<EventKind, CmError> {
        let wanted = |event: &Event| event.id == self.name() && !event.kind.is_request();
        let event = self.shared().channel().events.wait_for(deadline, wanted)?;
        match event.ok_or(CmError::TimedOut)?.kind {
            EventKind::AddressError(error)
            | EventKind::RouteError(error)
            | EventKind::ConnectError(error) => Err(error),
            EventKind::Unreachable(_) => Err(CmError::Unreachable),
            EventKind::Rejected { reason, .. } => Err(CmError::Rejected { reason }),
            kind => Ok(kind),
        }
    }
}
