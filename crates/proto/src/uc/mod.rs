//! Unreliable connection (IBA 9.8.2): messages of one peer, in order, each whole or not at all. Nothing is
//! acknowledged and nothing is sent again: what is lost is lost in silence, and only [`Drops`] tells.
//!
//! | file | role |
//! |---|---|
//! | `requester` | the send queue and segmentation |
//! | `responder` | the pipeline of checks on messages, and their execution |
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
