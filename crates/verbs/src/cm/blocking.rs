//! Calls that wait for their result, for programs with one connection per thread.
//!
//! Several threads may wait on one channel at the same time, each for events of its own cm_id, or for requests: other events stay
//! pending for the threads that wait for them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ferroce_wire::rdmacm::PortSpace;

use super::channel::EventChannel;
use super::event::{DisconnectCause, Established, EventKind, Request};
use super::id::CmId;
use super::parameters::ConnectParameters;
use crate::error::CmError as Error;

impl EventChannel {
    /// Waits for a connection request to one of the listeners.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    pub fn wait_request(&self) -> Result<Request, Error> {
        self.wait_request_for(None)?.ok_or(Error::TimedOut)
    }

    /// Waits for a connection request to one of the listeners, or returns `None` at the deadline.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    pub fn wait_request_until(&self, deadline: Instant) -> Result<Option<Request>, Error> {
        self.wait_request_for(Some(deadline))
    }

    fn wait_request_for(&self, deadline: Option<Instant>) -> Result<Option<Request>, Error> {
        let event = self.channel.events.wait_for(deadline, |event| event.kind.is_request())?;
        Ok(match event.map(|event| event.kind) {
            Some(EventKind::ConnectRequest(request)) => Some(*request),
            _ => None,
        })
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
    ) -> Result<Self, Error> {
        let id = Self::new(channel, space)?;
        id.resolve_address(None, peer, timeout)?;
        id.wait_kind(None)?;
        id.resolve_route(timeout)?;
        id.wait_kind(None)?;
        Ok(id)
    }

    /// Connects, and waits until the peer has accepted, rejected or timed out.
    ///
    /// # Errors
    ///
    /// As [`CmId::connect`], and [`Error::Rejected`] or [`Error::Unreachable`].
    pub fn connect_blocking(&self, parameters: &ConnectParameters) -> Result<Established, Error> {
        self.connect_within(parameters, None)
    }

    /// Connects, and waits until the peer has accepted or rejected, at most until the deadline.
    ///
    /// # Errors
    ///
    /// As [`CmId::connect_blocking`], and [`Error::TimedOut`] at the deadline. The attempt goes on then: drop or
    /// [close](CmId::close) the cm_id to end it.
    pub fn connect_until(
        &self,
        parameters: &ConnectParameters,
        deadline: Instant,
    ) -> Result<Established, Error> {
        self.connect_within(parameters, Some(deadline))
    }

    fn connect_within(
        &self,
        parameters: &ConnectParameters,
        deadline: Option<Instant>,
    ) -> Result<Established, Error> {
        self.connect(parameters)?;
        match self.wait_kind(deadline)? {
            Some(EventKind::Established(established)) => Ok(*established),
            Some(_) => Err(Error::Disconnected),
            None => Err(Error::TimedOut),
        }
    }

    /// Waits until the connection has ended, and returns why.
    ///
    /// # Errors
    ///
    /// When it was not established, or the wait fails.
    pub fn wait_disconnected(&self) -> Result<DisconnectCause, Error> {
        self.wait_disconnected_for(None)?.ok_or(Error::TimedOut)
    }

    /// Waits until the connection has ended, and returns why, or `None` at the deadline.
    ///
    /// # Errors
    ///
    /// As [`CmId::wait_disconnected`].
    pub fn wait_disconnected_until(
        &self,
        deadline: Instant,
    ) -> Result<Option<DisconnectCause>, Error> {
        self.wait_disconnected_for(Some(deadline))
    }

    fn wait_disconnected_for(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<DisconnectCause>, Error> {
        loop {
            match self.wait_kind(deadline)? {
                Some(EventKind::Disconnected(cause)) => return Ok(Some(cause)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Waits for the next event of this cm_id that is not a request to it, and turns failures into errors.
    fn wait_kind(&self, deadline: Option<Instant>) -> Result<Option<EventKind>, Error> {
        let name = self.name();
        let event = self
            .shared()
            .channel()
            .events
            .wait_for(deadline, |event| event.id == name && !event.kind.is_request())?;
        match event.map(|event| event.kind) {
            Some(
                EventKind::AddressError(error)
                | EventKind::RouteError(error)
                | EventKind::ConnectError(error),
            ) => Err(error),
            Some(EventKind::Unreachable(_)) => Err(Error::Unreachable),
            Some(EventKind::Rejected { reason, .. }) => Err(Error::Rejected { reason }),
            kind => Ok(kind),
        }
    }
}
