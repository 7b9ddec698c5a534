//! Unreliable datagram (UD, IBA 9.8.3): single packets to and from any QP that has the Q_Key.
//!
//! | file | role |
//! |---|---|
//! | `request` | send requests and address handles |
//! | `requester` | the checks on posted requests, and their packets |
//! | `responder` | the checks on datagrams and their delivery |
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
