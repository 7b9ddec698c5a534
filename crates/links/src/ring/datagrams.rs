//! UD datagrams over rings. Each datagram may go to another process, so the ring is looked up per datagram.
//!
//! The thread that posts the first datagram to a process creates the ring, because that takes system calls.

use ferroce_device::credit::Receiver;
use ferroce_device::tuning::shared_memory::ASKED_AGAIN;
use ferroce_sys::clock;
use ferroce_wire::number::Qpn;

use super::rings::Rings;
use super::route::RingRoute;
use crate::route::Route;
use crate::udp::addresses::Addresses;

impl Rings {
    /// Creates the ring for a datagram that is about to be posted, if its receiver is on this host and accepts rings.
    pub fn prepare_datagram(&self, addresses: &Addresses, route: &Route, destination: Qpn) {
        let host = route.destination.ip();
        let is_local = destination != Qpn::MULTICAST && destination.0 >= 3;
        if self.hub().is_none() || !is_local || !addresses.is_here(host) {
            return;
        }
        let receiver = Receiver::new(host, destination);
        if self.existing(receiver).is_some() {
            return;
        }
        let now = clock::now();
        let mut without = self.without.lock();
        if without.get(&receiver).is_some_and(|&until| now < until) {
            return;
        }
        match self.connect(receiver, route.destination) {
            Some(_) => without.remove(&receiver),
            None => without.insert(receiver, now + ASKED_AGAIN),
        };
    }

    /// The path of datagrams through the ring to a process, if there is one and the process has not exited.
    pub fn datagram_route(
        &self,
        addresses: &Addresses,
        receiver: Receiver,
        path: Route,
    ) -> Option<RingRoute> {
        Some(RingRoute::new(addresses, self.existing(receiver)?, path))
    }
}
