//! UD datagrams over rings. Each datagram may go to another process, so the ring is looked up per datagram.
//!
//! The thread that posts the first datagram to a process creates the ring, because that takes system calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::credit::Receiver;
use ferroce_device::tuning::shared_memory::ASKED_AGAIN;
use ferroce_links::route::Route;
use ferroce_sys::clock;
use ferroce_wire::number::Qpn;

use super::super::adapter::Adapter;
use super::{RingRoute, RingTo, Rings};
use crate::sync::lock;

impl Adapter {
    /// Creates the ring for a datagram that is about to be posted, if its receiver is on this host and accepts rings.
    pub(crate) fn prepare_datagram(&self, route: &Route, destination: Qpn) {
        let host = route.destination.ip();
        let is_local = destination != Qpn::MULTICAST && destination.0 >= 3;
        if self.rings.hub().is_none() || !is_local || !self.port.links.is_here(host) {
            return;
        }
        let receiver = Receiver::new(host, destination);
        if self.rings.existing(receiver).is_some() {
            return;
        }
        let now = clock::now();
        let mut without = lock(&self.rings.without);
        if without.get(&receiver).is_some_and(|&until| now < until) {
            return;
        }
        match self.rings.connect(receiver, route.destination) {
            Some(_) => without.remove(&receiver),
            None => without.insert(receiver, now + ASKED_AGAIN),
        };
    }
}

impl Adapter {
    /// The path of datagrams through the ring to a process, if there is one and the process has not exited.
    pub(in crate::engine) fn existing_ring(
        &self,
        receiver: Receiver,
        path: Route,
    ) -> Option<RingRoute> {
        Some(RingRoute::new(self, self.rings.existing(receiver)?, path))
    }
}

impl Rings {
    /// The ring to a process, if there is one and the process has not exited.
    fn existing(&self, receiver: Receiver) -> Option<Arc<RingTo>> {
        let outgoing = lock(&self.outgoing);
        outgoing.get(&receiver).filter(|ring| !ring.ended.load(Ordering::Relaxed)).cloned()
    }
}
