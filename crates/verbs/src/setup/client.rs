//! The side that begins an exchange.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use ferroce_proto::setup::{
    self, Agreement, ClientConfig, ClientEvent, ConnectionParameters, Device, PhaseTimes,
    QpParameters, RegionParameters, RegisteredRegion, RetryPolicy, WrongStep,
};
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Guid, RKey};
use ferroce_wire::setup::{Capabilities, ExchangeId, PeerId, Status, TransactionId};

use super::{CAPABILITIES, Side, states};
use crate::context::Context;
use crate::error::{SetupExchangeError as Error, WaitError};
use crate::event_queue::EventQueue;
use crate::queue_pair::QueuePair;
use crate::region::MemoryRegion;
use ferroce_sys::random::number as random;

/// How a client introduces itself, and how patient it is.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// The client's name for itself.
    pub id: PeerId,
    /// What it can do.
    pub capabilities: Capabilities,
    /// How each request is repeated.
    pub retry: RetryPolicy,
}

impl Default for ClientOptions {
    /// The process's number, all that the device can do, and patience for 7.9 s.
    fn default() -> Self {
        Self {
            id: PeerId(std::process::id()),
            capabilities: CAPABILITIES,
            retry: RetryPolicy::default(),
        }
    }
}

/// An exchange that this side has begun. One that is not connected ends when it is dropped.
#[derive(Debug)]
pub struct Client {
    context: Context,
    source_index: u8,
    server: Gid,
    exchange: ExchangeId,
    news: Arc<EventQueue<ClientEvent>>,
}

/// What an exchange has led to.
#[derive(Clone, Debug)]
pub struct Established {
    /// The server's device.
    pub device: Device,
    /// The server's queue pair.
    pub queue_pair: QpParameters,
    /// The server's regions, one for each of ours.
    pub regions: Vec<RegisteredRegion>,
    /// What was agreed; `None` for datagrams.
    pub agreement: Option<Agreement>,
    /// How long each phase took.
    pub times: PhaseTimes,
}

impl Client {
    /// Begins an exchange with the server of an address, from the GID of this index: the first request is sent.
    ///
    /// # Errors
    ///
    /// When there is no such GID, or it cannot reach the server's.
    pub fn begin(
        context: &Context,
        source_index: u8,
        server: Gid,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        let adapter = context.adapter();
        let exchange = adapter.management.exchanges.new_exchange();
        let config = ClientConfig {
            id: options.id,
            capabilities: options.capabilities,
            retry: options.retry,
            ..ClientConfig::new(exchange, TransactionId(random() as u32))
        };
        let news = Arc::new(EventQueue::new()?);
        let exchanges = &adapter.management.exchanges;
        exchanges.begin(adapter, source_index, server, config, Arc::clone(&news))?;
        Ok(Self { context: context.clone(), source_index, server, exchange, news })
    }

    /// Waits for what the server answers, at most until the deadline in nanoseconds of the monotonic clock.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Option<ClientEvent>, WaitError> {
        self.context.adapter().stop_polling();
        self.news.wait(deadline)
    }

    /// What the server answered, without waiting.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self) -> Result<Option<ClientEvent>, WaitError> {
        self.news.take()
    }

    /// The times of the phases that are over.
    pub fn times(&self) -> Option<PhaseTimes> {
        self.with(|client, _| *client.times())
    }

    /// Phase 2: offers a queue pair and asks for one to match.
    ///
    /// # Errors
    ///
    /// When the exchange is not there yet.
    pub fn create_queue_pair(&self, parameters: QpParameters) -> Result<(), Error> {
        self.step(|client, now| client.create_queue_pair(now, parameters))
    }

    /// Phase 3: offers a region and asks for one. May be repeated.
    ///
    /// # Errors
    ///
    /// When the exchange is not there yet.
    pub fn register_region(&self, parameters: RegionParameters) -> Result<(), Error> {
        self.step(|client, now| client.register_region(now, parameters))
    }

    /// Phase 4: asks for the connection. Our queue pair is in RTR by now, for the server may send at once.
    ///
    /// # Errors
    ///
    /// When the exchange is not there yet.
    pub fn connect(&self, parameters: ConnectionParameters) -> Result<(), Error> {
        self.step(|client, now| client.connect(now, parameters))
    }

    /// Phase 4: our queue pair is in RTS.
    ///
    /// # Errors
    ///
    /// When the server has not accepted.
    pub fn confirm(&self) -> Result<(), Error> {
        self.step(setup::Client::confirm)
    }

    /// Gives up. The server is told when it may have accepted.
    pub fn abort(&self, status: Status) {
        self.with(|client, now| client.abort(now, status));
    }

    /// All phases in one: brings a queue pair from RESET to RTS, and trades a region of the server's for each of ours.
    /// The first of them are those whose keys the connection is about.
    ///
    /// # Errors
    ///
    /// [`Error::Exchange`] when the server refuses or does not answer; others when the queue pair cannot be used so.
    pub fn establish(
        &self,
        queue_pair: &QueuePair,
        regions: &[&MemoryRegion],
        parameters: ConnectionParameters,
    ) -> Result<Established, Error> {
        let established = self.phases(queue_pair, regions, parameters);
        if let Err(error) = &established {
            if !matches!(error, Error::Exchange(_)) {
                self.abort(Status::INTERNAL_ERROR);
            }
        }
        established
    }

    fn phases(
        &self,
        queue_pair: &QueuePair,
        regions: &[&MemoryRegion],
        parameters: ConnectionParameters,
    ) -> Result<Established, Error> {
        let ClientEvent::Discovered(device) = self.answer()? else { return Err(UNEXPECTED) };
        let side = Side::new(queue_pair.clone(), self.source_index)?;
        self.create_queue_pair(side.parameters())?;
        let ClientEvent::QueuePairCreated(theirs) = self.answer()? else { return Err(UNEXPECTED) };
        let mut established = Established {
            device,
            queue_pair: theirs,
            regions: Vec::new(),
            agreement: None,
            times: self.times().ok_or(Error::Closed)?,
        };
        if queue_pair.service() == crate::ServiceType::UnreliableDatagram {
            return Ok(established);
        }
        side.receive_from(self.server, &theirs)?;
        for (number, region) in regions.iter().enumerate() {
            self.register_region(states::describe(region, number as u32))?;
            let ClientEvent::RegionRegistered(theirs) = self.answer()? else {
                return Err(UNEXPECTED);
            };
            established.regions.push(theirs);
        }
        self.connect(ConnectionParameters {
            client_guid: Guid(self.context.device().guid()),
            client_key: regions.first().map_or(RKey(0), |region| region.rkey()),
            server_key: established.regions.first().map_or(RKey(0), |region| region.remote_key),
            ..parameters
        })?;
        let ClientEvent::Accepted(agreement) = self.answer()? else { return Err(UNEXPECTED) };
        side.send_to(&theirs, &agreement)?;
        self.confirm()?;
        established.agreement = Some(agreement);
        established.times = self.times().ok_or(Error::Closed)?;
        Ok(established)
    }

    /// The server's next answer: the machine gives up by itself if there is none.
    fn answer(&self) -> Result<ClientEvent, Error> {
        match self.wait(None)? {
            Some(ClientEvent::Failed(error)) => Err(Error::Exchange(error)),
            Some(event) => Ok(event),
            None => Err(Error::Closed),
        }
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&mut setup::Client, ferroce_proto::time::Instant) -> T,
    ) -> Option<T> {
        let adapter = self.context.adapter();
        adapter.management.exchanges.with_client(adapter, self.exchange, act)
    }

    fn step(
        &self,
        act: impl FnOnce(&mut setup::Client, ferroce_proto::time::Instant) -> Result<(), WrongStep>,
    ) -> Result<(), Error> {
        let done = self.with(act).ok_or(Error::Closed)?;
        done.map_err(|WrongStep| Error::WrongStep)
    }
}

/// The machine answers a step with its own event or a failure, so this is not met.
const UNEXPECTED: Error = Error::WrongStep;

impl AsFd for Client {
    /// Readable while there is an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.fd()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let adapter = self.context.adapter();
        adapter.management.exchanges.remove_client(adapter, self.exchange);
    }
}
