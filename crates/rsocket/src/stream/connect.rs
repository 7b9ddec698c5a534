//! Binding, listening, connecting, accepting, shutting down and closing.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::socket::{Phase, StreamSocket};
use super::wire::StreamMessage;
use crate::error::{Errno, Result};
use crate::service;

/// Minimum length of the accept queue: that of the kernel's listeners, so that bursts are not refused.
const MIN_BACKLOG: usize = 128;
/// Timeout of address resolution.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(1);

impl StreamSocket {
    /// Binds the socket to an address.
    pub fn bind(&self, address: SocketAddr) -> Result<()> {
        self.id.bind(address)?;
        self.change(|state| state.phase = Phase::Bound);
        Ok(())
    }

    /// Listens for connections, at a free port if the socket is not bound.
    pub fn listen(self: &Arc<Self>, backlog: usize) -> Result<()> {
        let backlog = backlog.max(MIN_BACKLOG);
        match self.state().phase {
            Phase::Listening => return Ok(()),
            Phase::New | Phase::Bound => {}
            _ => return Err(Errno(libc::EINVAL)),
        }
        if self.state().phase == Phase::New {
            let any: SocketAddr = match self.family() {
                libc::AF_INET6 => ([0u16; 8], 0).into(),
                _ => ([0u8; 4], 0).into(),
            };
            self.id.bind(any)?;
        }
        self.change(|state| (state.phase, state.backlog) = (Phase::Listening, backlog));
        let listening = service::add(self).and_then(|()| Ok(self.id.listen(backlog)?));
        if listening.is_err() {
            self.change(|state| state.phase = Phase::Bound);
        }
        listening
    }

    /// Takes the next connection of a listener, and waits for one unless the socket is non-blocking.
    pub fn accept(&self) -> Result<Arc<Self>> {
        let nonblocking = self.state().flags.nonblocking;
        self.wait_until(!nonblocking, None, |state| match state.phase {
            Phase::Listening => state.accept_queue.pop_front().map(Ok),
            _ => Some(Err(Errno(libc::EINVAL))),
        })?
    }

    /// Starts connecting to a peer.
    fn start_connecting(self: &Arc<Self>, to: SocketAddr) -> Result<()> {
        let before = self.state().phase;
        match before {
            Phase::New | Phase::Bound => {}
            Phase::Connecting => return Err(Errno(libc::EALREADY)),
            Phase::Connected { .. } => return Err(Errno(libc::EISCONN)),
            Phase::Listening => return Err(Errno(libc::EOPNOTSUPP)),
            // A CM id serves one connection.
            Phase::Refused | Phase::Disconnected | Phase::Failed => {
                return Err(Errno(libc::EINVAL));
            }
        }
        self.change(|state| state.phase = Phase::Connecting);
        let resolving = service::add(self)
            .and_then(|()| Ok(self.id.resolve_address(None, to, RESOLVE_TIMEOUT)?));
        if resolving.is_err() {
            service::remove(&**self);
            self.change(|state| state.phase = before);
        }
        resolving
    }

    /// Connects to a peer, and waits until the connection is established. A non-blocking socket returns `EINPROGRESS`.
    pub fn connect(self: &Arc<Self>, to: SocketAddr) -> Result<()> {
        if let Err(error) = self.start_connecting(to) {
            // Some programs call it a second time to learn the result of the first call.
            let is_second = error.0 == libc::EALREADY && !self.state().flags.nonblocking;
            if !is_second {
                return Err(error);
            }
        }
        let nonblocking = self.state().flags.nonblocking;
        let result = self.wait_until(!nonblocking, None, |state| match state.phase {
            Phase::Connecting => None,
            Phase::Connected { .. } => Some(Ok(())),
            _ => Some(Err(state.take_error().unwrap_or(Errno(libc::ECONNREFUSED)))),
        });
        match result {
            Err(Errno(libc::EAGAIN)) => Err(Errno(libc::EINPROGRESS)),
            result => result?,
        }
    }

    /// Ends one direction or both (`SHUT_RD`, `SHUT_WR`, `SHUT_RDWR`). Returns when the peer has acknowledged
    /// everything sent.
    pub fn shutdown(&self, how: c_int) -> Result<()> {
        self.shutdown_until(how, None)
    }

    fn shutdown_until(&self, how: c_int, deadline: Option<Instant>) -> Result<()> {
        let message = {
            let mut state = self.state();
            let Phase::Connected { readable, writable } = state.phase else {
                return match state.phase {
                    Phase::Disconnected | Phase::Failed => Ok(()),
                    _ => Err(Errno(libc::ENOTCONN)),
                };
            };
            let (readable, still_writable) = match how {
                libc::SHUT_RDWR => (false, false),
                libc::SHUT_WR => (readable, false),
                libc::SHUT_RD => (false, writable),
                _ => return Err(Errno(libc::EINVAL)),
            };
            state.phase = Phase::Connected { readable, writable: still_writable };
            state.wake();
            match (readable, still_writable) {
                (false, false) => StreamMessage::Disconnect,
                (true, false) if writable => StreamMessage::Shutdown,
                // The peer need not know, or knows already.
                _ => return Ok(()),
            }
        };
        let mut sent = false;
        let acknowledged = self.wait_until(true, deadline, |state| {
            let connected = state.phase.is_connected();
            let connection = state.connection.as_mut().filter(|_| connected);
            let Some(connection) = connection else { return Some(Ok(())) };
            if !sent {
                match connection.send_control(message) {
                    Ok(done) => sent = done,
                    Err(error) => return Some(Err(error)),
                }
            }
            (sent && connection.is_idle()).then_some(Ok(()))
        });
        if message == StreamMessage::Disconnect {
            self.change(|state| {
                if state.phase.is_connected() {
                    state.phase = Phase::Disconnected;
                }
            });
        }
        acknowledged?
    }

    /// Closes the socket, and the connections of a listener that were not accepted. Waits for acknowledgements until
    /// the deadline.
    pub(crate) fn close(self: &Arc<Self>, deadline: Option<Instant>) {
        // It fails if there is no connection to shut down.
        let _ = self.shutdown_until(libc::SHUT_RDWR, deadline);
        service::remove(&**self);
        let unaccepted = self.change(|state| {
            state.phase = Phase::Disconnected;
            std::mem::take(&mut state.accept_queue)
        });
        for socket in unaccepted {
            socket.close(deadline);
        }
        self.id.close();
    }
}
