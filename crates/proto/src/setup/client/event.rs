//! Configuration and events of a client.

use core::time::Duration;

use ferroce_wire::setup::{Capabilities, ExchangeId, PeerId, TransactionId};

#[cfg(doc)]
use super::Client;
#[cfg(doc)]
use crate::setup::ServerConfig;
use crate::setup::{Agreement, Device, QpParameters, RegisteredRegion, RetryPolicy, SetupError};

/// Identity and timeouts of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// The exchange ID. Must not be reused with the same server within its [`linger`](ServerConfig::linger), and
    /// should not be guessable.
    pub exchange: ExchangeId,
    /// The transaction ID of the first request; later ones count up.
    pub first_transaction: TransactionId,
    /// The client's ID.
    pub id: PeerId,
    /// The client's capabilities.
    pub capabilities: Capabilities,
    /// Retransmission of requests.
    pub retry: RetryPolicy,
    /// How long the client responds to retransmitted CONNECTION_ACCEPTs after the exchange.
    pub linger: Duration,
}

impl ClientConfig {
    /// A client with default timeouts.
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

/// Responses of the server. All but the last two require a call for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server's device. Next: [`Client::create_queue_pair`].
    Discovered(Device),
    /// The server's QP; UD ends here. Next: move the local QP to RTR, then [`Client::register_region`] or
    /// [`Client::connect`].
    QueuePairCreated(QpParameters),
    /// The server's MR. Next: [`Client::register_region`] again, or [`Client::connect`].
    RegionRegistered(RegisteredRegion),
    /// The server accepted, with the agreed parameters. Next: move the QP to RTS, then [`Client::confirm`].
    Accepted(Agreement),
    /// The exchange failed; release what was created for it. May follow [`Client::confirm`], when the server gave up
    /// without a confirmation.
    Failed(SetupError),
}
