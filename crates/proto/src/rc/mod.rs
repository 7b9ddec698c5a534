//! Reliable connection (RC, IBA 9.7) and XRC (IBA A14): a requester that sends and retransmits, a completer that
//! processes responses, and a responder that checks, executes and responds.
//!
//! | file | role |
//! |---|---|
//! | `requester` | the send queue, the next packet, go-back-N |
//! | `segment` | headers and payload of one packet |
//! | `whole` | messages that are sent as a whole |
//! | `completer` | ACKs, NAKs, READ and atomic responses, timeouts |
//! | `placement` | completions that wait for the end of a write to memory |
//! | `probe` | packets sent again to find out what the responder has |
//! | `rtt` | the round-trip time |
//! | `responder` | the checks on requests and their execution |
//! | `keepalive` | asks a silent peer whether it is there |
//! | `responses` | queued ACKs, READ and atomic responses; responses to duplicates |
//! | `payload` | the payload of requests, which memory reads ahead |

mod completer;
mod keepalive;
mod payload;
mod placement;
mod probe;
mod queue_pair;
mod requester;
mod responder;
mod responses;
mod rtt;
mod segment;
mod whole;

#[cfg(test)]
mod tests;

pub use queue_pair::{Config, QueuePair, Role};
pub use responder::Message;
pub use whole::Whole;

pub use crate::budget::{Budget, InFlight, Pending};
pub use crate::qp::Fault;
pub use crate::work::PostError;
