//! Unreliable datagram (IBA 9.8.3): single packets, to and from anyone who has the queue key.
//!
//! | file | role |
//! |---|---|
//! | `request` | a datagram to send, and whom it goes to |
//! | `requester` | the send queue |
//! | `responder` | the checks on datagrams, and their delivery |
//! | `groups` | multicast groups |

mod groups;
mod queue_pair;
mod request;
mod requester;
mod responder;

#[cfg(test)]
mod tests;

pub use groups::{AttachError, Groups};
pub use queue_pair::{Config, QueuePair};
pub use request::{AddressHandle, SendRequest, UdTransmit};
pub use responder::{Drops, Envelope, GRH_LEN};

pub use crate::qp::Fault;
pub use crate::work::PostError;
