//! The server of set-up exchanges.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ferroce_proto::setup::{
    self, Agreement, ExchangeHandle, Peer, PhaseTimes, QpParameters, RegionParameters,
    RegisteredRegion, RequestHandle, ServerConfig, ServerEvent, UnknownRequest,
};
use ferroce_proto::time;
use ferroce_wire::setup::{QpType, Status};

use super::search::listener;
use super::{Handle, MAX_MESSAGE_LEN, Side, states};
use crate::context::Context;
use crate::engine::Machine;
use crate::error::{OpenError, SetupExchangeError as Error, WaitError};
use crate::event_queue::EventQueue;
use crate::queue_pair::QueuePair;
use crate::region::MemoryRegion;
use crate::sync::lock;
use crate::time::now;

/// A server of set-up exchanges on one address, until it is dropped. An address has one server in all processes.
#[derive(Debug)]
pub struct Server {
    handle: Handle,
    link: u8,
    events: Arc<EventQueue<ServerEvent>>,
    /// Resources of exchanges that are not connected yet, created by [`Server::accept`].
    pending: Mutex<HashMap<ExchangeHandle, Pending>>,
    /// A member of the discovery groups, if the network has multicast.
    _listener: Option<QueuePair>,
}

/// A client that is not connected yet, and what [`Server::accept`] will return for it.
#[derive(Debug)]
struct Pending {
    side: Side,
    client: Accepted,
}

/// Creates the resources for clients.
pub trait Application {
    /// Creates a QP in RESET of the client's type.
    ///
    /// # Errors
    ///
    /// The status to respond with.
    fn queue_pair(&mut self, peer: &Peer, theirs: &QpParameters) -> Result<QueuePair, Status>;

    /// Returns an MR for the client, which offers one of its own.
    ///
    /// # Errors
    ///
    /// The status to respond with.
    fn region(
        &mut self,
        peer: &Peer,
        theirs: &RegionParameters,
    ) -> Result<Arc<MemoryRegion>, Status>;

    /// Decides whether the client may connect.
    ///
    /// # Errors
    ///
    /// The status to respond with.
    fn connect(&mut self, _peer: &Peer, _asked: &Agreement) -> Result<(), Status> {
        Ok(())
    }
}

/// A connected client.
#[derive(Debug)]
pub struct Accepted {
    /// The client.
    pub peer: Peer,
    /// Our QP, in RTS.
    pub queue_pair: QueuePair,
    /// The client's QP.
    pub theirs: QpParameters,
    /// The MRs that the client has keys of.
    pub regions: Vec<Arc<MemoryRegion>>,
    /// The negotiated parameters; `None` for UD.
    pub agreement: Option<Agreement>,
    /// How long each phase took.
    pub times: Option<PhaseTimes>,
}

impl Server {
    /// Serves an address of the device. [`super::present`] makes the device of a configuration.
    ///
    /// # Errors
    ///
    /// When the device does not have the address, or when another process, or this one, serves it already.
    pub fn new(context: &Context, address: IpAddr, config: ServerConfig) -> Result<Self, Error> {
        let events = Arc::new(EventQueue::new()?);
        let adapter = context.adapter();
        let link = adapter.port.link_of(address).ok_or_else(|| OpenError::NoAddress {
            interface: context.device().interface().name.clone(),
        })?;
        let server = setup::Server::new(config);
        let machine = Machine::Server { link, server, events: Some(Arc::clone(&events)) };
        Ok(Self {
            handle: Handle::new(context, machine)?,
            link,
            events,
            pending: Mutex::default(),
            _listener: listener(context),
        })
    }

    /// Waits for an event; returns `None` at the deadline.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Option<ServerEvent>, WaitError> {
        self.handle.context.adapter().signals.stop_polling();
        let event = self.events.wait(deadline);
        self.refill();
        event
    }

    /// Takes an event without waiting.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self) -> Result<Option<ServerEvent>, WaitError> {
        let event = self.events.take();
        self.refill();
        event
    }

    /// Moves events that did not fit into the queue from the state machine.
    fn refill(&self) {
        self.with(|_, _| ());
    }

    /// Phase 2: responds with our QP in INIT, or with a status.
    ///
    /// # Errors
    ///
    /// When the request does not exist any more: release the QP.
    pub fn respond_queue_pair(
        &self,
        request: RequestHandle,
        answer: Result<QpParameters, Status>,
    ) -> Result<(), Error> {
        self.respond(|server, now| server.respond_queue_pair(now, request, answer))
    }

    /// Phase 3: responds with our MR, or with a status.
    ///
    /// # Errors
    ///
    /// As [`Server::respond_queue_pair`].
    pub fn respond_region(
        &self,
        request: RequestHandle,
        answer: Result<RegisteredRegion, Status>,
    ) -> Result<(), Error> {
        self.respond(|server, now| server.respond_region(now, request, answer))
    }

    /// Phase 4: accepts with our QP in RTR and the maximum message length, or responds with a status.
    ///
    /// # Errors
    ///
    /// As [`Server::respond_queue_pair`].
    pub fn respond_connection(
        &self,
        request: RequestHandle,
        answer: Result<u32, Status>,
    ) -> Result<(), Error> {
        self.respond(|server, now| server.respond_connection(now, request, answer))
    }

    /// Reports a packet on the QP of an exchange, which confirms the connection.
    pub fn data_received(&self, exchange: ExchangeHandle) {
        self.with(|server, now| server.handle_data_received(now, exchange));
    }

    /// Aborts an exchange that is not connected. No event follows.
    ///
    /// # Errors
    ///
    /// When the exchange has ended.
    pub fn abort(&self, exchange: ExchangeHandle, status: Status) -> Result<(), Error> {
        lock(&self.pending).remove(&exchange);
        self.respond(|server, now| server.abort(now, exchange, status))
    }

    /// Responds to clients with the resources of the application, until one is connected; returns `None` at the deadline.
    /// Other exchanges continue with the next call.
    ///
    /// # Errors
    ///
    /// When the wait fails. The failure of a client's exchange is not an error.
    pub fn accept(
        &self,
        application: &mut dyn Application,
        deadline: Option<Instant>,
    ) -> Result<Option<Accepted>, WaitError> {
        while let Some(event) = self.wait(deadline)? {
            if let Some(accepted) = self.handle(application, &event) {
                return Ok(Some(accepted));
            }
        }
        Ok(None)
    }

    fn handle(&self, application: &mut dyn Application, event: &ServerEvent) -> Option<Accepted> {
        match *event {
            ServerEvent::CreateQueuePair { request, peer, parameters } => {
                let source_index = self.handle.context.adapter().source_index(self.link);
                let made = application.queue_pair(&peer, &parameters).and_then(|queue_pair| {
                    let side = Side::new(queue_pair, source_index);
                    let side = side.map_err(|_| Status::NO_QUEUE_PAIR)?;
                    let fits = side.parameters().qp_type == parameters.qp_type;
                    if fits { Ok(side) } else { Err(Status::UNSUPPORTED_TRANSPORT) }
                });
                let answer = made.as_ref().map(Side::parameters).map_err(|status| *status);
                self.respond_queue_pair(request, answer).ok()?;
                let side = made.ok()?;
                let datagram = parameters.qp_type == QpType::UD;
                let client = Accepted {
                    peer,
                    queue_pair: side.queue_pair().clone(),
                    theirs: parameters,
                    regions: Vec::new(),
                    agreement: None,
                    times: datagram.then(|| self.times(request.exchange())).flatten(),
                };
                if datagram {
                    return Some(client);
                }
                lock(&self.pending).insert(request.exchange(), Pending { side, client });
            }
            ServerEvent::RegisterRegion { request, peer, parameters } => {
                let made = application.region(&peer, &parameters);
                let mut pending = lock(&self.pending);
                let regions = &mut pending.get_mut(&request.exchange())?.client.regions;
                let number = regions.len() as u32;
                let answer = made.as_ref().map(|region| states::registered(region, number));
                regions.extend(made.as_ref().ok().cloned());
                drop(pending);
                self.respond_region(request, answer.map_err(|status| *status)).ok()?;
            }
            ServerEvent::Connect { request, peer, parameters } => {
                let answer = application.connect(&peer, &parameters).and_then(|()| {
                    let pending = lock(&self.pending);
                    let entry = pending.get(&request.exchange()).ok_or(Status::NO_QUEUE_PAIR)?;
                    let ready = entry.side.receive_from(peer.address, &entry.client.theirs);
                    ready.map(|()| MAX_MESSAGE_LEN).map_err(|_| Status::INVALID_PARAMETER)
                });
                self.respond_connection(request, answer).ok()?;
            }
            ServerEvent::Connected { exchange, agreement, times } => {
                let Pending { side, client } = lock(&self.pending).remove(&exchange)?;
                side.send_to(&client.theirs, &agreement).ok()?;
                return Some(Accepted { agreement: Some(agreement), times: Some(times), ..client });
            }
            ServerEvent::Failed { exchange, .. } => {
                lock(&self.pending).remove(&exchange);
            }
        }
        None
    }

    /// Returns the durations of the completed phases of an exchange.
    pub fn times(&self, exchange: ExchangeHandle) -> Option<PhaseTimes> {
        self.with(|server, _| server.times(exchange).copied()).flatten()
    }

    fn with<T>(&self, act: impl FnOnce(&mut setup::Server, time::Instant) -> T) -> Option<T> {
        self.handle.with(|machine| match machine {
            Machine::Server { server, .. } => Some(act(server, now())),
            _ => None,
        })
    }

    fn respond(
        &self,
        act: impl FnOnce(&mut setup::Server, time::Instant) -> Result<(), UnknownRequest>,
    ) -> Result<(), Error> {
        let done = self.with(act).ok_or(Error::Closed)?;
        done.map_err(|UnknownRequest| Error::UnknownRequest)
    }
}

impl AsFd for Server {
    /// Readable while there is an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
