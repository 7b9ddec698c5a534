//! Calls that wait for their result, for programs with one connection per thread.
//!
//! Events of other cm_ids of the channel stay pending, but are delayed until the call returns.

use std::net::SocketAddr;
use std::time::Duration;

use ferroce_wire::rdmacm::PortSpace;

use super::channel::EventChannel;
use super::event::{DisconnectCause, Established, Event, EventKind, Request};
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
        Ok(self.channel.wait_for(|event| match event.kind {
            EventKind::ConnectRequest(request) => Ok(*request),
            kind => Err(Event { kind, ..event }),
        })?)
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
        id.wait_kind()?;
        id.resolve_route(timeout)?;
        id.wait_kind()?;
        Ok(id)
    }

    /// Connects, and waits until the peer has accepted, rejected or timed out.
    ///
    /// # Errors
    ///
    /// As [`CmId::connect`], and [`Error::Rejected`] or [`Error::Unreachable`].
    pub fn connect_blocking(&self, parameters: &ConnectParameters) -> Result<Established, Error> {
        self.connect(parameters)?;
        match self.wait_kind()? {
            EventKind::Established(established) => Ok(*established),
            _ => Err(Error::Disconnected),
        }
    }

    /// Waits until the connection has ended, and returns why.
    ///
    /// # Errors
    ///
    /// When it was not established, or the wait fails.
    pub fn wait_disconnected(&self) -> Result<DisconnectCause, Error> {
        loop {
            if let EventKind::Disconnected(cause) = self.wait_kind()? {
                return Ok(cause);
            }
        }
    }

    /// Waits for the next event of this cm_id, and turns failures into errors.
    fn wait_kind(&self) -> Result<EventKind, Error> {
        let kind = self.shared().channel().wait_for(|event| match event.id == self.name() {
            true => Ok(event.kind),
            false => Err(event),
        })?;
        match kind {
            EventKind::AddressError(error)
            | EventKind::RouteError(error)
            | EventKind::ConnectError(error) => Err(error),
            EventKind::Unreachable(_) => Err(Error::Unreachable),
            EventKind::Rejected { reason, .. } => Err(Error::Rejected { reason }),
            kind => Ok(kind),
        }
    }
}
