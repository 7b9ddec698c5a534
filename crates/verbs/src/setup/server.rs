//! The side that answers.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ferroce_proto::setup::{
    self, Agreement, ExchangeHandle, Peer, PhaseTimes, QpParameters, RegionParameters,
    RegisteredRegion, RequestHandle, ServerConfig, ServerEvent, UnknownRequest,
};
use ferroce_wire::setup::{QpType, Status};

use super::search::listener;
use super::{LONGEST, Side, states};
use crate::context::Context;
use crate::error::{SetupExchangeError as Error, WaitError};
use crate::event_queue::EventQueue;
use crate::queue_pair::QueuePair;
use crate::region::MemoryRegion;
use crate::sync::lock;

/// Answers the exchanges that reach one address, until it is dropped. An address has one server, in all processes.
#[derive(Debug)]
pub struct Server {
    context: Context,
    source_index: u8,
    news: Arc<EventQueue<ServerEvent>>,
    /// What was made for exchanges that are not connected yet, by [`Server::accept`].
    pending: Mutex<HashMap<ExchangeHandle, Pending>>,
    /// Where the network has multicast, questions to everybody are heard.
    _listener: Option<QueuePair>,
}

#[derive(Debug)]
struct Pending {
    peer: Peer,
    side: Side,
    theirs: QpParameters,
    regions: Vec<Arc<MemoryRegion>>,
}

/// What a program makes for its clients.
pub trait Application {
    /// A queue pair in RESET to match the client's, or why there is none.
    ///
    /// # Errors
    ///
    /// The status that the client is told.
    fn queue_pair(&mut self, peer: &Peer, theirs: &QpParameters) -> Result<QueuePair, Status>;

    /// A region for the client, which offers one of its own.
    ///
    /// # Errors
    ///
    /// The status that the client is told.
    fn region(
        &mut self,
        peer: &Peer,
        theirs: &RegionParameters,
    ) -> Result<Arc<MemoryRegion>, Status>;

    /// Whether the client may connect.
    ///
    /// # Errors
    ///
    /// The status that the client is told.
    fn connect(&mut self, _peer: &Peer, _asked: &Agreement) -> Result<(), Status> {
        Ok(())
    }
}

/// A client that is connected.
#[derive(Debug)]
pub struct Accepted {
    /// Who it is.
    pub peer: Peer,
    /// Our queue pair, in RTS.
    pub queue_pair: QueuePair,
    /// The client's.
    pub theirs: QpParameters,
    /// Our regions that it has keys of.
    pub regions: Vec<Arc<MemoryRegion>>,
    /// What was agreed; `None` for datagrams.
    pub agreement: Option<Agreement>,
    /// How long each phase took.
    pub times: Option<PhaseTimes>,
}

impl Server {
    /// Serves the address with this index in the GID table. [`super::present`] makes the device of a configuration.
    ///
    /// # Errors
    ///
    /// When another process, or this one, serves it already.
    pub fn new(context: &Context, source_index: u8, config: ServerConfig) -> Result<Self, Error> {
        let news = Arc::new(EventQueue::new()?);
        let adapter = context.adapter();
        let exchanges = &adapter.management.exchanges;
        exchanges.serve(adapter, source_index, config, Some(Arc::clone(&news)))?;
        Ok(Self {
            context: context.clone(),
            source_index,
            news,
            pending: Mutex::default(),
            _listener: listener(context).ok(),
        })
    }

    /// Waits for a wish of a client or news of one, at most until the deadline in nanoseconds of the monotonic clock.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Option<ServerEvent>, WaitError> {
        self.context.adapter().stop_polling();
        let event = self.news.wait(deadline);
        self.make_room();
        event
    }

    /// The same without waiting.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self) -> Result<Option<ServerEvent>, WaitError> {
        let event = self.news.take();
        self.make_room();
        event
    }

    /// What found no room among the news before finds it now.
    fn make_room(&self) {
        self.with(|_, _| ());
    }

    /// Phase 2: our queue pair in INIT, or why there is none.
    ///
    /// # Errors
    ///
    /// When there is no such request any more: what was made for it is to be released.
    pub fn respond_queue_pair(
        &self,
        request: RequestHandle,
        answer: Result<QpParameters, Status>,
    ) -> Result<(), Error> {
        self.respond(|server, now| server.respond_queue_pair(now, request, answer))
    }

    /// Phase 3: our region, or why there is none.
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

    /// Phase 4: consent, with our queue pair in RTR and the longest message we will have, or why not.
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

    /// A packet came on an exchange's queue pair: that confirms, too.
    pub fn data_received(&self, exchange: ExchangeHandle) {
        self.with(|server, now| server.handle_data_received(now, exchange));
    }

    /// Ends an exchange that is not connected. No event follows.
    ///
    /// # Errors
    ///
    /// When it is over already.
    pub fn abort(&self, exchange: ExchangeHandle, status: Status) -> Result<(), Error> {
        lock(&self.pending).remove(&exchange);
        self.respond(|server, now| server.abort(now, exchange, status))
    }

    /// Answers clients with what the program makes for them, until one is connected or the deadline comes: in
    /// nanoseconds of the monotonic clock. Exchanges that are under way then go on with the next call.
    ///
    /// # Errors
    ///
    /// When the wait fails. What goes wrong with one client is that client's affair.
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
                let made = application.queue_pair(&peer, &parameters).and_then(|queue_pair| {
                    Side::new(queue_pair, self.source_index).map_err(|_| Status::NO_QUEUE_PAIR)
                });
                let made = made.and_then(|side| match side.parameters().qp_type {
                    kind if kind == parameters.qp_type => Ok(side),
                    _ => Err(Status::UNSUPPORTED_TRANSPORT),
                });
                let answer = made.as_ref().map(Side::parameters).map_err(|status| *status);
                self.respond_queue_pair(request, answer).ok()?;
                let side = made.ok()?;
                let pending = Pending { peer, side, theirs: parameters, regions: Vec::new() };
                if parameters.qp_type == QpType::UD {
                    let times = self.times(request.exchange());
                    return Some(pending.accepted(None, times));
                }
                lock(&self.pending).insert(request.exchange(), pending);
            }
            ServerEvent::RegisterRegion { request, peer, parameters } => {
                let made = application.region(&peer, &parameters);
                let mut pending = lock(&self.pending);
                let entry = pending.get_mut(&request.exchange())?;
                let number = entry.regions.len() as u32;
                let answer = made.as_ref().map(|region| states::registered(region, number));
                entry.regions.extend(made.as_ref().ok().cloned());
                drop(pending);
                self.respond_region(request, answer.map_err(|status| *status)).ok()?;
            }
            ServerEvent::Connect { request, peer, parameters } => {
                let answer = application.connect(&peer, &parameters).and_then(|()| {
                    let pending = lock(&self.pending);
                    let entry = pending.get(&request.exchange()).ok_or(Status::NO_QUEUE_PAIR)?;
                    let ready = entry.side.receive_from(entry.peer.address, &entry.theirs);
                    ready.map(|()| LONGEST).map_err(|_| Status::INVALID_PARAMETER)
                });
                self.respond_connection(request, answer).ok()?;
            }
            ServerEvent::Connected { exchange, agreement, times } => {
                let pending = lock(&self.pending).remove(&exchange)?;
                pending.side.send_to(&pending.theirs, &agreement).ok()?;
                return Some(pending.accepted(Some(agreement), Some(times)));
            }
            ServerEvent::Failed { exchange, .. } => {
                lock(&self.pending).remove(&exchange);
            }
        }
        None
    }

    /// The times of an exchange's phases that are over, as long as it is known.
    pub fn times(&self, exchange: ExchangeHandle) -> Option<PhaseTimes> {
        self.with(|server, _| server.times(exchange).copied()).flatten()
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&mut setup::Server, ferroce_proto::time::Instant) -> T,
    ) -> Option<T> {
        let adapter = self.context.adapter();
        adapter.management.exchanges.with_server(adapter, self.source_index, act)
    }

    fn respond(
        &self,
        act: impl FnOnce(&mut setup::Server, ferroce_proto::time::Instant) -> Result<(), UnknownRequest>,
    ) -> Result<(), Error> {
        let done = self.with(act).ok_or(Error::Closed)?;
        done.map_err(|UnknownRequest| Error::UnknownRequest)
    }
}

impl Pending {
    fn accepted(self, agreement: Option<Agreement>, times: Option<PhaseTimes>) -> Accepted {
        Accepted {
            peer: self.peer,
            queue_pair: self.side.queue_pair().clone(),
            theirs: self.theirs,
            regions: self.regions,
            agreement,
            times,
        }
    }
}

impl AsFd for Server {
    /// Readable while there is an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.fd()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let adapter = self.context.adapter();
        adapter.management.exchanges.stop_serving(adapter, self.source_index);
    }
}
