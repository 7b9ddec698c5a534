//! What a client is told at first, and what it tells later.

use core::time::Duration;

use ferroce_wire::setup::{Capabilities, ExchangeId, PeerId, TransactionId};

#[cfg(doc)]
use super::Client;
#[cfg(doc)]
use crate::setup::ServerConfig;
use crate::setup::{Agreement, Device, QpParameters, RegisteredRegion, RetryPolicy, SetupError};

/// How a client introduces itself, and how patient it is.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// The number of the exchange. Not to be used again with the same server within its
    /// [`linger`](ServerConfig::linger), and best not guessable.
    pub exchange: ExchangeId,
    /// The number of the first request; those after it count up.
    pub first_transaction: TransactionId,
    /// The client's name for itself.
    pub id: PeerId,
    /// What the client can do.
    pub capabilities: Capabilities,
    /// How each request is repeated.
    pub retry: RetryPolicy,
    /// How long the client answers repetitions of CONNECTION_ACCEPT after the exchange is over.
    pub linger: Duration,
}

impl ClientConfig {
    /// A client with the default patience.
    pub fn new(exchange: ExchangeId, first_transaction: TransactionId) -> Self {
        Self {
            exchange,
            first_transaction,
            id: PeerId(0),
            capabilities: Capabilities(0),
            retry: RetryPolicy::default(),
            linger: Duration::from_secs(10),
        }
    }
}

/// What the server answered. Each but the last two asks the owner for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server's device. Next: [`Client::create_queue_pair`].
    Discovered(Device),
    /// The server's queue pair; UD ends here. Next: move the own one to RTR, then [`Client::register_region`] or
    /// [`Client::connect`].
    QueuePairCreated(QpParameters),
    /// The server's memory region. Next: [`Client::register_region`] again, or [`Client::connect`].
    RegionRegistered(RegisteredRegion),
    /// The server accepts, with the parameters that hold. Next: move the queue pair to RTS, then [`Client::confirm`].
    Accepted(Agreement),
    /// The exchange failed; what was made for it is to be released. May come after [`Client::confirm`], when the
    /// server gave up because no confirmation reached it.
    Failed(SetupError),
}
