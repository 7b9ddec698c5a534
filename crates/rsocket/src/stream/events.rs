//! Connection manager events of streams, handled by the service thread.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferroce::RnrRetry;
use ferroce::cm::{ConnectParameters, Event, EventChannel, EventKind, Request};

use super::connection::Connection;
use super::socket::{Phase, State, StreamSocket};
use super::wire::ConnectData;
use crate::error::{Errno, Result};
use crate::service::{self, KEEPALIVE_INTERVAL, Served};
use crate::wait::Pollable;

impl Served for StreamSocket {
    fn descriptor(&self) -> RawFd {
        self.channel.as_fd().as_raw_fd()
    }

    fn handle_ready(self: Arc<Self>) {
        while let Ok(Some(event)) = self.channel.try_event() {
            // Events of an id that has migrated to its own channel are skipped.
            if event.id == self.id.name() {
                handle(&self, event);
            }
        }
    }

    /// Probes a silent peer.
    fn tick(&self) {
        let mut state = self.state();
        let interval = state.options.keepalive_interval(KEEPALIVE_INTERVAL);
        if !state.phase.is_connected() || state.last_heard.elapsed() < interval {
            return;
        }
        state.process_completions();
        state.last_heard = Instant::now();
        if let Some(connection) = &mut state.connection {
            // Its completion wakes the threads that wait for the connection; if there are none, the next call finds it.
            let _ = connection.probe();
        }
    }
}

fn handle(socket: &Arc<StreamSocket>, event: Event) {
    let result = match event.kind {
        EventKind::AddressResolved => socket.id.resolve_route(Duration::ZERO).map_err(Errno::from),
        EventKind::RouteResolved => connect(socket),
        EventKind::ConnectRequest(request) => {
            // Dropping the id of the request rejects it.
            let _ = accept(socket, *request);
            Ok(())
        }
        EventKind::Established(established) => {
            establish(socket, &established.private_data);
            Ok(())
        }
        EventKind::AddressError(error)
        | EventKind::RouteError(error)
        | EventKind::ConnectError(error) => Err(error.into()),
        EventKind::Unreachable(_) => Err(Errno(libc::ETIMEDOUT)),
        EventKind::Rejected { .. } => Err(Errno(libc::ECONNREFUSED)),
        EventKind::Disconnected(_) => Err(Errno(libc::ECONNRESET)),
        _ => Ok(()),
    };
    if let Err(error) = result {
        end(socket, error);
    }
}

/// The parameters that rdma-core uses.
fn parameters(data: &ConnectData) -> ConnectParameters {
    ConnectParameters {
        private_data: data.write().to_vec(),
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: true,
        retry_count: 7,
        rnr_retry: RnrRetry::FOR_EVER,
        ..ConnectParameters::default()
    }
}

fn new_connection(socket: &StreamSocket, state: &State) -> Result<Connection> {
    let context = socket.id.context().ok_or(Errno(libc::ENODEV))?;
    Connection::new(&socket.id, &context, state.settings)
}

/// Sends the REQ, once the route is resolved.
fn connect(socket: &StreamSocket) -> Result<()> {
    let request = {
        let mut state = socket.state();
        let connection = new_connection(socket, &state)?;
        let request = parameters(&connection.connect_data());
        state.connection = Some(connection);
        request
    };
    Ok(socket.id.connect(&request)?)
}

/// Accepts a request before the program calls `raccept`, as TCP does.
fn accept(listener: &Arc<StreamSocket>, request: Request) -> Result<()> {
    let peer = ConnectData::read(&request.private_data).ok_or(Errno(libc::EPROTO))?;
    let (settings, options, flags) = {
        let state = listener.state();
        if state.phase != Phase::Listening || state.accept_queue.len() >= state.backlog {
            return Err(Errno(libc::ECONNREFUSED));
        }
        (state.settings, state.options, state.flags)
    };
    let channel = EventChannel::from_env()?;
    request.id.migrate(&channel);
    let state = State::new(flags, settings);
    let socket = StreamSocket::with_id(channel, request.id, listener.family(), state);
    let reply = {
        let mut state = socket.state();
        let mut connection = new_connection(&socket, &state)?;
        connection.set_peer(&peer)?;
        let reply = parameters(&connection.connect_data());
        state.connection = Some(connection);
        state.options = options;
        state.phase = Phase::Connecting;
        state.listener = Arc::downgrade(listener);
        reply
    };
    service::add(&socket)?;
    if let Err(error) = socket.id.accept(&reply) {
        service::remove(&*socket);
        return Err(error.into());
    }
    Ok(())
}

/// Enters the connected phase. The active side learns the peer's private data only now.
fn establish(socket: &Arc<StreamSocket>, private_data: &[u8]) {
    let listener = socket.change(|state| {
        if state.phase != Phase::Connecting {
            return None;
        }
        let has_peer = match &mut state.connection {
            Some(connection) if connection.peer.is_none() => {
                let peer = ConnectData::read(private_data);
                peer.ok_or(Errno(libc::EPROTO)).and_then(|peer| connection.set_peer(&peer))
            }
            Some(_) => Ok(()),
            None => Err(Errno(libc::EPROTO)),
        };
        match has_peer {
            Ok(()) => {
                state.phase = Phase::Connected { readable: true, writable: true };
                state.last_heard = Instant::now();
                // Grants the peer the second half of the receive buffer.
                state.process_completions();
            }
            Err(error) => (state.phase, state.error) = (Phase::Refused, error.0),
        }
        state.listener.upgrade()
    });
    if let Some(listener) = listener {
        listener.change(|state| state.accept_queue.push_back(Arc::clone(socket)));
    }
}

/// Ends a connection that failed, was refused or was disconnected.
fn end(socket: &Arc<StreamSocket>, error: Errno) {
    let is_unaccepted = socket.change(|state| match state.phase {
        Phase::Connecting => {
            (state.phase, state.error) = (Phase::Refused, error.0);
            state.listener.upgrade().is_some()
        }
        Phase::Connected { .. } => {
            // Bytes that arrived before the end can still be read.
            state.process_completions();
            if state.phase.is_connected() {
                state.phase = Phase::Disconnected;
            }
            false
        }
        _ => false,
    });
    // The program never sees an incoming connection that was not established.
    if is_unaccepted {
        service::remove(&**socket);
    }
}
