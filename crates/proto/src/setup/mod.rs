//! The set-up exchange: nine messages in five phases between two peers that know only each other's address.
//! `docs/set-up-exchange.md` describes the messages, the rules and the timing.
//!
//! Three state machines, each with the interface that the crate root describes:
//!
//! - [`Client`] runs one exchange, step by step: an event reports the server's response, and the owner's next call
//!   starts the next phase. Each step needs the result of the previous one: a QP is created for a known device, and
//!   moved to RTR with the QPN from the server.
//! - [`Server`] serves many clients. Its events request QPs, memory regions and consent from the owner, once per
//!   request even if it is retransmitted.
//! - [`Discovery`] sends a request to many servers, and lists the responses until a deadline.
//!
//! The state machines handle only the numbers that are exchanged, not QPs or memory. The caller provides exchange and
//! transaction IDs, which should not be guessable, since the crate has no randomness.

mod client;
mod discovery;
mod error;
mod parameters;
mod retry;
mod server;
mod times;

#[cfg(test)]
mod tests;

use core::cmp::Ordering;

use ferroce_wire::address::Gid;
use ferroce_wire::number::Qpn;
use ferroce_wire::setup::{QUEUE_PAIR, SetupMessage};

pub use client::{Client, ClientConfig, ClientEvent};
pub use discovery::{Discovery, DiscoveryConfig, DiscoveryEvent, Responder};
pub use error::{Failure, Refused, SetupError, UnknownRequest, Violation, WrongStep};
pub use parameters::{
    Agreement, ConnectionParameters, Device, QpParameters, RegionParameters, RegisteredRegion,
};
pub use retry::{Growth, MAX_ATTEMPTS, RetryPolicy};
pub use server::{ExchangeHandle, RequestHandle, Server, ServerConfig, ServerEvent};
pub use times::{PhaseTime, PhaseTimes};

/// Source or destination of a message. Together with the exchange ID it identifies an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The address: with RoCEv2, the IP address as a GID.
    pub address: Gid,
    /// The source QPN from the DETH.
    pub queue_pair: Qpn,
}

impl Peer {
    /// The set-up service at an address, at its well-known QPN.
    pub const fn service(address: Gid) -> Self {
        Self { address, queue_pair: QUEUE_PAIR }
    }
}

// An order for map keys only; QPNs have none.
impl Ord for Peer {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.address, self.queue_pair.0).cmp(&(other.address, other.queue_pair.0))
    }
}

impl PartialOrd for Peer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A message to send, as the payload of one UD SEND ONLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupTransmit {
    /// The destination.
    pub to: Peer,
    /// The message; [`SetupMessage::emit`] encodes it.
    pub message: SetupMessage,
}
