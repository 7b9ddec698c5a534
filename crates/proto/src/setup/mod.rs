//! The set-up exchange: nine messages in five phases between two peers that know only each other's address.
//! `docs/set-up-exchange.md` describes the messages, the rules and the timing.
//!
//! Three machines, each with the shape that the crate root describes:
//!
//! - [`Client`] takes one exchange through its phases, a step at a time: an event tells what the server answered, and
//!   the owner's next call begins the next phase. It is so because a step needs what the one before it gave: a queue
//!   pair is created for a device that is known, and is moved to RTR with the number that the server answered.
//! - [`Server`] answers many clients at once. It asks its owner for queue pairs, memory regions and consent by events,
//!   and never twice for the same request, however often that is repeated.
//! - [`Discovery`] asks many servers at once who they are, and lists the answers until a deadline.
//!
//! The machines know neither queue pairs nor memory: only the numbers that are exchanged about them. Exchange and
//! transaction numbers come from the caller, for they should not be guessable and there is no randomness here.

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
use ferroce_wire::setup::{Message, QUEUE_PAIR};

pub use client::{Client, ClientConfig, ClientEvent};
pub use discovery::{Discovery, DiscoveryConfig, DiscoveryEvent, Responder};
pub use error::{Failure, Refused, SetupError, UnknownRequest, Violation, WrongStep};
pub use parameters::{
    Agreement, ConnectionParameters, Device, QpParameters, RegionParameters, RegisteredRegion,
};
pub use retry::{Growth, MAX_ATTEMPTS, RetryPolicy};
pub use server::{ExchangeHandle, RequestHandle, Server, ServerConfig, ServerEvent};
pub use times::{PhaseTime, PhaseTimes};

/// Where a message comes from or goes to. With the exchange number it names an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The address: over RoCEv2 the IP address as a GID.
    pub address: Gid,
    /// The queue pair that sent the datagram, as its DETH says.
    pub queue_pair: Qpn,
}

impl Peer {
    /// The set-up service at an address: its well-known queue pair.
    pub const fn service(address: Gid) -> Self {
        Self { address, queue_pair: QUEUE_PAIR }
    }
}

// An order only for looking peers up: queue pair numbers have none of their own.
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

/// A message to send as the payload of one UD SEND only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupTransmit {
    /// To whom.
    pub to: Peer,
    /// What; [`Message::emit`] makes bytes of it.
    pub message: Message,
}
