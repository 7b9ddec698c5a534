//! What a server is told at first, and what it tells and asks later.

use core::time::Duration;

use ferroce_wire::setup::{Capabilities, TransactionId};

#[cfg(doc)]
use super::Server;
use crate::setup::{
    Agreement, Device, Failure, Peer, PhaseTimes, QpParameters, RegionParameters, RetryPolicy,
};

/// What a server offers, and its limits.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// The device that it presents.
    pub device: Device,
    /// What a client must be able to do.
    pub required: Capabilities,
    /// How many exchanges it knows at once, those included that are over and still remembered.
    pub max_exchanges: usize,
    /// How many memory regions one exchange may ask for.
    pub max_regions: usize,
    /// How long a client may be silent. Longer than clients go on trying, so that none finds its exchange gone.
    pub idle: Duration,
    /// How long an exchange that is over is remembered, so that late repetitions find it and do not begin it anew.
    pub linger: Duration,
    /// How CONNECTION_ACCEPT is repeated until it is confirmed.
    pub retry: RetryPolicy,
}

impl ServerConfig {
    /// A server with the default limits: 4096 exchanges of up to 16 regions, silent for 15 s, remembered for 10 s.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            required: Capabilities(0),
            max_exchanges: 4096,
            max_regions: 16,
            idle: Duration::from_secs(15),
            linger: Duration::from_secs(10),
            retry: RetryPolicy::default(),
        }
    }
}

/// Names an exchange of a server, and never another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeHandle(pub(super) u64);

/// Names a request that the owner has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestHandle {
    pub(super) exchange: ExchangeHandle,
    pub(super) transaction: TransactionId,
}

impl RequestHandle {
    /// The exchange that the request belongs to.
    pub const fn exchange(&self) -> ExchangeHandle {
        self.exchange
    }
}

/// What a server wants from its owner, or has to tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A client wants a queue pair: create one to match and bring it to INIT. To be answered by
    /// [`Server::respond_queue_pair`].
    CreateQueuePair {
        /// To answer with.
        request: RequestHandle,
        /// Who asks.
        peer: Peer,
        /// The client's queue pair.
        parameters: QpParameters,
    },
    /// A client offers a memory region and wants one. To be answered by [`Server::respond_region`].
    RegisterRegion {
        /// To answer with.
        request: RequestHandle,
        /// Who asks.
        peer: Peer,
        /// The client's region.
        parameters: RegionParameters,
    },
    /// A client wants to connect: bring the queue pair to RTR. To be answered by [`Server::respond_connection`].
    Connect {
        /// To answer with.
        request: RequestHandle,
        /// Who asks.
        peer: Peer,
        /// What it asks for.
        parameters: Agreement,
    },
    /// The client is ready: bring the queue pair to RTS.
    Connected {
        /// Which exchange.
        exchange: ExchangeHandle,
        /// The parameters that hold.
        agreement: Agreement,
        /// How long each phase took.
        times: PhaseTimes,
    },
    /// The exchange failed: release what was made for it. Comes once for each exchange that asked for a queue pair
    /// and did not get connected, also when it was the owner who refused; and once more after
    /// [`ServerEvent::Connected`] when the client finds only then that it cannot go on.
    Failed {
        /// Which exchange.
        exchange: ExchangeHandle,
        /// Why.
        failure: Failure,
    },
}

impl ServerEvent {
    /// The exchange that it is about.
    pub const fn exchange(&self) -> ExchangeHandle {
        match self {
            Self::CreateQueuePair { request, .. }
            | Self::RegisterRegion { request, .. }
            | Self::Connect { request, .. } => request.exchange,
            Self::Connected { exchange, .. } | Self::Failed { exchange, .. } => *exchange,
        }
    }
}
