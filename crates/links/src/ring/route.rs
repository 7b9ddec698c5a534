//! A QP's path through a ring, and the size of a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_device::tuning::shared_memory::{MAX_PAYLOAD, SHORT};
use ferroce_sys::ring::Producer;
use ferroce_sys::{Outgoing, RxInfo, record_header};

use crate::packet::MAX_PACKET;
use crate::route::Route;
use crate::udp::addresses::Addresses;

/// Bytes of metadata before the packet in a record.
pub(crate) const INFO: usize = record_header::LENGTH;

/// The maximum length of a record.
pub const MAX_RECORD: usize = INFO + MAX_PACKET + MAX_PAYLOAD;

/// The maximum length of a record with a payload of [`SHORT`] bytes: the rest is the longest headers, padding and ICRC.
pub(super) const SHORT_RECORD: usize = INFO + MAX_PACKET - 4096 + SHORT;

/// A ring to another process.
#[derive(Debug)]
pub struct RingTo {
    /// The ring.
    pub ring: Outgoing,
    /// The other process has exited, or has written an invalid position.
    ended: AtomicBool,
}

impl RingTo {
    pub(super) fn new(ring: Outgoing) -> Self {
        Self { ring, ended: AtomicBool::new(false) }
    }

    /// Whether nobody receives from the ring any more.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Publishes the packets written so far, and wakes the receiver if it sleeps.
    #[inline]
    pub fn publish(&self, producer: &mut Producer) {
        if producer.publish() {
            self.ring.wake();
        }
    }
}

/// A QP's path through a ring to its peer, or to the receiver of a datagram.
#[derive(Debug)]
pub struct RingRoute {
    /// The ring.
    pub to: Arc<RingTo>,
    /// The route that its packets would take through a socket.
    pub(super) path: Route,
    /// The metadata of its packets.
    pub info: [u8; INFO],
    /// The position in the ring after its last packet.
    pub(super) sent: u64,
    /// Where short packets are written first.
    pub(super) short: [u8; SHORT_RECORD],
}

impl RingRoute {
    pub(super) fn new(addresses: &Addresses, to: Arc<RingTo>, path: Route) -> Self {
        let info = record_header::encode(&RxInfo {
            source: addresses.sender(&path).local(),
            destination: path.destination.ip(),
            interface: None,
            tos: path.traffic_class,
            hop_limit: Some(path.hops()),
            length: 0,
            segment: 0,
            truncated: false,
        });
        Self { to, path, info, sent: 0, short: [0; SHORT_RECORD] }
    }

    /// Whether packets with this route can still be sent through the ring.
    pub fn serves(&self, path: &Route) -> bool {
        self.path == *path && !self.to.has_ended()
    }
}
