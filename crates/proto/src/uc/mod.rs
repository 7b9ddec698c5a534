//! Unreliable connection (UC, IBA 9.8.2): ordered messages from one peer, each delivered completely or not at all.
//! Nothing is acknowledged or retransmitted; losses show only in [`Drops`].
//!
//! | file | role |
//! |---|---|
//! | `requester` | the checks on posted requests, local operations and segmentation |
//! | `responder` | the checks on inbound messages and their execution |
//! | `drops` | why messages were dropped |

mod drops;
mod queue_pair;
mod requester;
mod responder;

#[cfg(test)]
pub(crate) mod tests;

pub use drops::Drops;
pub use queue_pair::{Config, QueuePair};

pub use crate::qp::Fault;
pub use crate::work::PostError;
