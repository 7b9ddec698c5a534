//! Reliable connection (IBA 9.7), and XRC's two halves of it (IBA A14): a requester that sends, times and repeats, a completer that reads the answers, and a
//! responder that checks, executes and answers.
//!
//! | file | role |
//! |---|---|
//! | `requester` | the send queue, segmentation, what to send next, going back |
//! | `completer` | acknowledgements, refusals, READ and atomic responses, timeouts |
//! | `responder` | the pipeline of checks on requests, and their execution |
//! | `responses` | answers in order: acknowledgements, READ responses, atomics; replay of duplicates |
//! | `sequence` | PSNs counted on in 64 bits |

mod completer;
mod queue_pair;
mod requester;
mod responder;
mod responses;
mod sequence;

#[cfg(test)]
mod tests;

pub use queue_pair::{Config, QueuePair, Role};

pub use crate::qp::Fault;
pub use crate::work::PostError;
