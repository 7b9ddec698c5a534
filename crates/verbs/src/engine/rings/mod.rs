//! Receiving packets from rings: see [`ferroce_links::ring`].

mod fast_path;
mod rx;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ferroce_device::tuning::shared_memory::SPINS_PER_PASS;
use ferroce_links::ring::record::{INFO, MAX_RECORD};
use ferroce_sys::{Incoming, RxInfo};
use ferroce_wire::udp_headers::Headers;

use super::adapter::{Adapter, now};
use super::counters::Counters;
use super::driver::Driver;

/// State that only the owner of the device uses.
#[derive(Debug)]
pub(super) struct RingState {
    incoming: Vec<Arc<Incoming>>,
    version: u32,
    /// The buffer into which records are copied out of their rings.
    record: Box<[u8]>,
    /// The metadata of the last record: that of the next is often the same.
    last: Option<Metadata>,
    /// What was received in this burst and is not yet counted.
    received: Uncounted,
}

/// Packets and bytes to add to the counters of the device.
#[derive(Clone, Copy, Debug, Default)]
struct Uncounted {
    packets: u32,
    bytes: usize,
}

impl Uncounted {
    #[inline]
    fn add(&mut self, packets: u32, bytes: usize) {
        self.packets += packets;
        self.bytes += bytes;
    }

    /// Adds the counts to the counters of the device, and resets them.
    #[inline]
    fn move_to(&mut self, counters: &Counters) {
        let Self { packets, bytes } = std::mem::take(self);
        if packets > 0 {
            counters.received_locally(packets, bytes);
        }
    }
}

/// The parsed metadata of a record.
#[derive(Debug)]
struct Metadata {
    /// As encoded in the ring.
    bytes: [u8; INFO],
    info: RxInfo,
    headers: Headers,
}

impl RingState {
    pub(super) fn new() -> Self {
        Self {
            incoming: Vec::new(),
            version: 0,
            record: vec![0; MAX_RECORD].into(),
            last: None,
            received: Uncounted::default(),
        }
    }
}

impl RingState {
    /// Polls the rings several times, for a polling program: an empty pass takes as long as twenty polls of the rings.
    #[inline]
    pub(super) fn spin_for_packets(&self) {
        if let [only] = &self.incoming[..] {
            let _ = (0..SPINS_PER_PASS).any(|_| only.consumer.has_records());
            return;
        }
        let looks = SPINS_PER_PASS / self.incoming.len().max(1);
        let _ = (0..looks).any(|_| self.incoming.iter().any(|ring| ring.consumer.has_records()));
    }
}

impl Driver {
    /// Fails the requests in flight to processes that have exited. Called after everything that they sent was received,
    /// because the last ACK may be among it.
    fn end_rings(&mut self, adapter: &Adapter) {
        let ending = adapter.rings.end();
        if ending.is_empty() {
            return;
        }
        for core in adapter.tables.queue_pairs() {
            let mut inner = core.inner.lock();
            let to = inner.queue.as_ref().map(|route| &route.to);
            let concerned = to.is_some_and(|to| ending.iter().any(|ring| Arc::ptr_eq(ring, to)));
            if !concerned || inner.destroyed {
                continue;
            }
            let now = now();
            inner.endpoint.handle_link_down(now);
            self.rx.completed |= self.device.received(adapter, &core, &mut inner, now);
            self.device.schedule.push(Arc::clone(&core));
        }
    }
}
