//! Queue pairs that a first pass over a file found to be connected.
//!
//! A packet of a connection carries only the destination QPN, and its sender is known only once a later packet matches
//! the two directions. A filter by queue pair needs the sender of earlier packets as well. The tracking of conversations
//! depends only on the packets, so both passes number conversations alike.

use super::flow::{Flows, StreamKey};

/// The sender of each conversation's first packet, by the order in which conversations start.
#[derive(Debug, Default)]
pub struct ConnectedPairs(Vec<(StreamKey, Option<u32>)>);

impl ConnectedPairs {
    /// Takes them from the conversations of a whole file.
    pub(super) fn of(flows: &Flows) -> Self {
        let senders = flows.flows.iter().map(|flow| {
            let sender = match flow.merged_into {
                // It turned out to be the opposite direction of another one.
                Some(kept) => flows.flows[kept].b.qpn,
                None => flow.a.qpn,
            };
            (flow.stream(), sender)
        });
        Self(senders.collect())
    }

    /// The QPN that sends this stream, which starts conversation `index`.
    pub(super) fn sender(&self, index: usize, stream: &StreamKey) -> Option<u32> {
        self.0.get(index).filter(|(key, _)| key == stream).and_then(|(_, sender)| *sender)
    }
}
