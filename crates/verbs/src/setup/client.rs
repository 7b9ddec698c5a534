//! The client of a set-up exchange.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use ferroce_proto::setup::{
    self, Agreement, ClientConfig, ClientEvent, ConnectionParameters, Device, Peer, PhaseTimes,
    QpParameters, RegionParameters, RegisteredRegion, RetryPolicy, WrongStep,
};
use ferroce_proto::time;
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Guid, RKey};
use ferroce_wire::setup::{PeerId, Status, TransactionId};

use super::{CAPABILITIES, Handle, Side, states};
use crate::context::Context;
use crate::engine::Machine;
use crate::error::{SetupExchangeError as Error, WaitError};
use crate::event_queue::EventQueue;
use crate::queue_pair::QueuePair;
use crate::region::MemoryRegion;
use crate::time::now;
use ferroce_sys::random::number as random;

/// A set-up exchange that this side started. Dropping it ends an exchange that is not connected.
#[derive(Debug)]
pub struct Client {
    handle: Handle,
    source_index: u8,
    server: Gid,
    events: Arc<EventQueue<ClientEvent>>,
}

/// The result of an exchange.
#[derive(Clone, Debug)]
pub struct Established {
    /// The server's device.
    pub device: Device,
    /// The server's QP.
    pub queue_pair: QpParameters,
    /// The server's MRs, one for each of ours.
    pub regions: Vec<RegisteredRegion>,
    /// The negotiated parameters; `None` for UD.
    pub agreement: Option<Agreement>,
    /// The duration of each phase.
    pub times: PhaseTimes,
}

impl Client {
    /// Starts an exchange with a server from the GID of this index: sends the first request. By default, requests are
    /// repeated for 7.9 s.
    ///
    /// # Errors
    ///
    /// When there is no such GID, or no route to the server.
    pub fn begin(
        context: &Context,
        source_index: u8,
        server: Gid,
        retry: RetryPolicy,
    ) -> Result<Self, Error> {
        let adapter = context.adapter();
        let exchange = adapter.management.exchanges.new_exchange();
        let config = ClientConfig {
            id: PeerId(std::process::id()),
            capabilities: CAPABILITIES,
            retry,
            ..ClientConfig::new(exchange, TransactionId(random() as u32))
        };
        let queue = Arc::new(EventQueue::new()?);
        adapter.mads().route_to(source_index, server)?;
        let client = Box::new(setup::Client::new(config, Peer::service(server), now()));
        let events = Some(Arc::clone(&queue));
        let machine = Machine::Client { link: source_index, client, events };
        Ok(Self { handle: Handle::new(context, machine)?, source_index, server, events: queue })
    }

    /// Waits for an event; returns `None` at the deadline.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Option<ClientEvent>, WaitError> {
        self.handle.context.adapter().signals.stop_polling();
        self.events.wait(deadline)
    }

    /// Takes an event without waiting.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self) -> Result<Option<ClientEvent>, WaitError> {
        self.events.take()
    }

    /// Returns the durations of the completed phases.
    pub fn times(&self) -> Option<PhaseTimes> {
        self.with(|client, _| *client.times())
    }

    /// Phase 2: offers a QP, and requests one.
    ///
    /// # Errors
    ///
    /// When the exchange is in another phase.
    pub fn create_queue_pair(&self, parameters: QpParameters) -> Result<(), Error> {
        self.step(|client, now| client.create_queue_pair(now, parameters))
    }

    /// Phase 3: offers an MR, and requests one. May be repeated.
    ///
    /// # Errors
    ///
    /// When the exchange is in another phase.
    pub fn register_region(&self, parameters: RegionParameters) -> Result<(), Error> {
        self.step(|client, now| client.register_region(now, parameters))
    }

    /// Phase 4: requests the connection. Our QP must be in RTR, since the server may send at once.
    ///
    /// # Errors
    ///
    /// When the exchange is in another phase.
    pub fn connect(&self, parameters: ConnectionParameters) -> Result<(), Error> {
        self.step(|client, now| client.connect(now, parameters))
    }

    /// Phase 4: confirms that our QP is in RTS.
    ///
    /// # Errors
    ///
    /// When the server has not accepted.
    pub fn confirm(&self) -> Result<(), Error> {
        self.step(setup::Client::confirm)
    }

    /// Aborts the exchange, and notifies the server if it may have accepted.
    pub fn abort(&self, status: Status) {
        self.with(|client, now| client.abort(now, status));
    }

    /// Runs all phases: brings a QP from RESET to RTS, and exchanges an MR of the server for each of ours. The connection
    /// request contains the keys of the first of them.
    ///
    /// # Errors
    ///
    /// [`Error::Exchange`] when the server refuses or does not respond; others when the QP cannot be used.
    pub fn establish(
        &self,
        queue_pair: &QueuePair,
        regions: &[&MemoryRegion],
        parameters: ConnectionParameters,
    ) -> Result<Established, Error> {
        self.phases(queue_pair, regions, parameters).inspect_err(|error| {
            if !matches!(error, Error::Exchange(_)) {
                self.abort(Status::INTERNAL_ERROR);
            }
        })
    }

    fn phases(
        &self,
        queue_pair: &QueuePair,
        regions: &[&MemoryRegion],
        parameters: ConnectionParameters,
    ) -> Result<Established, Error> {
        let ClientEvent::Discovered(device) = self.response()? else { return Err(UNEXPECTED) };
        let side = Side::new(queue_pair.clone(), self.source_index)?;
        self.create_queue_pair(side.parameters())?;
        let ClientEvent::QueuePairCreated(theirs) = self.response()? else {
            return Err(UNEXPECTED);
        };
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
            let ClientEvent::RegionRegistered(theirs) = self.response()? else {
                return Err(UNEXPECTED);
            };
            established.regions.push(theirs);
        }
        self.connect(ConnectionParameters {
            client_guid: Guid(self.handle.context.device().guid()),
            client_key: regions.first().map_or(RKey(0), |region| region.rkey()),
            server_key: established.regions.first().map_or(RKey(0), |region| region.remote_key),
            ..parameters
        })?;
        let ClientEvent::Accepted(agreement) = self.response()? else { return Err(UNEXPECTED) };
        side.send_to(&theirs, &agreement)?;
        self.confirm()?;
        established.agreement = Some(agreement);
        established.times = self.times().ok_or(Error::Closed)?;
        Ok(established)
    }

    /// Waits for the server's next response. The state machine fails the exchange after its last retransmission.
    fn response(&self) -> Result<ClientEvent, Error> {
        match self.wait(None)? {
            Some(ClientEvent::Failed(error)) => Err(Error::Exchange(error)),
            Some(event) => Ok(event),
            None => Err(Error::Closed),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut setup::Client, time::Instant) -> T) -> Option<T> {
        self.handle.with(|machine| match machine {
            Machine::Client { client, .. } => Some(act(client, now())),
            _ => None,
        })
    }

    fn step(
        &self,
        act: impl FnOnce(&mut setup::Client, time::Instant) -> Result<(), WrongStep>,
    ) -> Result<(), Error> {
        let done = self.with(act).ok_or(Error::Closed)?;
        done.map_err(|WrongStep| Error::WrongStep)
    }
}

/// Unreachable: the state machine responds to a step with its event or a failure.
const UNEXPECTED: Error = Error::WrongStep;

impl AsFd for Client {
    /// Readable while there is an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
