//! Configuration and events of a server.

use core::time::Duration;

use ferroce_wire::setup::{Capabilities, TransactionId};

#[cfg(doc)]
use super::Server;
use crate::setup::{
    Agreement, Device, Failure, Peer, PhaseTimes, QpParameters, RegionParameters, RetryPolicy,
};

/// Device and limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// The device that it offers.
    pub device: Device,
    /// Capabilities that a client must have.
    pub required: Capabilities,
    /// Maximum number of exchanges, including finished ones that are still kept.
    pub max_exchanges: usize,
    /// Maximum number of MRs of an exchange.
    pub max_regions: usize,
    /// Timeout of a silent client. Longer than clients retransmit, so that no client finds its exchange gone.
    pub idle: Duration,
    /// How long a finished exchange is kept, so that late retransmissions do not start it anew.
    pub linger: Duration,
    /// Retransmission of CONNECTION_ACCEPT until it is confirmed.
    pub retry: RetryPolicy,
}

impl ServerConfig {
    /// A server with default limits: 4096 exchanges of up to 16 MRs, a silence timeout of 15 s, finished exchanges
    /// kept for 10 s.
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

/// Identifies an exchange of a server; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeHandle(pub(super) u64);

/// Identifies a request that the owner has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestHandle {
    pub(super) exchange: ExchangeHandle,
    pub(super) transaction: TransactionId,
}

impl RequestHandle {
    /// The exchange of the request.
    pub const fn exchange(&self) -> ExchangeHandle {
        self.exchange
    }
}

/// Requests and notifications for the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A client requests a QP: create a matching one in INIT, and call [`Server::respond_queue_pair`].
    CreateQueuePair {
        /// The request to respond to.
        request: RequestHandle,
        /// The client.
        peer: Peer,
        /// The client's QP.
        parameters: QpParameters,
    },
    /// A client offers an MR and requests one: call [`Server::respond_region`].
    RegisterRegion {
        /// The request to respond to.
        request: RequestHandle,
        /// The client.
        peer: Peer,
        /// The client's MR.
        parameters: RegionParameters,
    },
    /// A client requests the connection: bring the QP to RTR, and call [`Server::respond_connection`].
    Connect {
        /// The request to respond to.
        request: RequestHandle,
        /// The client.
        peer: Peer,
        /// The requested parameters.
        parameters: Agreement,
    },
    /// The client is ready: bring the QP to RTS.
    Connected {
        /// The exchange.
        exchange: ExchangeHandle,
        /// The agreed parameters.
        agreement: Agreement,
        /// The durations of the phases.
        times: PhaseTimes,
    },
    /// The exchange failed: release what was created for it. Raised once for each exchange that requested a QP and
    /// was not established, also when the owner refused; and after [`ServerEvent::Connected`] when the client aborts
    /// only then.
    Failed {
        /// The exchange.
        exchange: ExchangeHandle,
        /// The reason.
        failure: Failure,
    },
}

impl ServerEvent {
    /// The exchange that it concerns.
    pub const fn exchange(&self) -> ExchangeHandle {
        match self {
            Self::CreateQueuePair { request, .. }
            | Self::RegisterRegion { request, .. }
            | Self::Connect { request, .. } => request.exchange,
            Self::Connected { exchange, .. } | Self::Failed { exchange, .. } => *exchange,
        }
    }
}
