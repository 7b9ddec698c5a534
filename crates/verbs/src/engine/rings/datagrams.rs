//! UD datagrams over rings. Each datagram may go to another process, so the ring is looked up per datagram.
//!
//! The thread that posts the first datagram to a process creates the ring, because that takes system calls. Unlike the
//! packets of a connection, datagrams may be lost, so they do not wait for a process that has stopped: if a ring stays
//! full for [`PATIENCE`], datagrams to it are dropped until the receiver reads again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::credit::{PATIENCE, Receiver};
use ferroce_proto::budget::Budget;
use ferroce_proto::time::Instant;
use ferroce_sys::clock;
use ferroce_wire::number::Qpn;

use super::super::adapter::Adapter;
use super::super::driver::Driver;
use super::super::link::Route;
use super::super::queue_pair::{Core, Inner};
use super::super::tx::{Sent, TurnEnd};
use super::tx::{Written, wait_for_ring, write_packet};
use super::{RingRoute, RingTo, Rings};
use crate::sync::lock;
use crate::tuning::rings::ASKED_AGAIN;

impl Adapter {
    /// Creates the ring for a datagram that is about to be posted, if its receiver is on this host and accepts rings.
    pub(crate) fn prepare_datagram(&self, route: &Route, destination: Qpn) {
        let host = route.destination.ip();
        let is_local = destination != Qpn::MULTICAST && destination.0 >= 3;
        if self.rings.hub().is_none() || !is_local || !self.port.is_here(host) {
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

impl Rings {
    /// The ring to a process, if there is one and the process has not exited.
    fn existing(&self, receiver: Receiver) -> Option<Arc<RingTo>> {
        let outgoing = lock(&self.outgoing);
        outgoing.get(&receiver).filter(|ring| !ring.ended.load(Ordering::Relaxed)).cloned()
    }
}

impl Driver {
    /// Transmits the next datagram of a UD QP to a process on this host through its ring. Returns `None` if there is no
    /// ring to that process.
    pub(in crate::engine) fn transmit_datagram(
        &mut self,
        adapter: &Adapter,
        core: &Arc<Core>,
        inner: &mut Inner,
        receiver: Receiver,
        now: Instant,
    ) -> Option<Sent> {
        adapter.rings.hub()?;
        let (_, path) = inner.endpoint.next_unacknowledged()?;
        let path = Route { sender: 0, flow_label: 0, ..path? };
        let last = inner.datagrams.take();
        let last = last.filter(|(to, route)| *to == receiver && route.serves(&path));
        let route = last.map(|(_, route)| route).or_else(|| {
            let to = adapter.rings.existing(receiver)?;
            Some(RingRoute::new(adapter, to, path))
        })?;
        let mut producer = route.to.ring.producer.lock();
        let written = write_packet(adapter, inner, core, &route, &mut producer, now, adapter.tap());
        let sent = match written {
            Written::Packets(_) => {
                self.credit.found_room(route.to.ring.id);
                route.to.publish(&mut producer);
                Sent::Packet
            }
            Written::Nothing => Sent::Nothing,
            Written::Full if self.credit.is_stalled(route.to.ring.id, now) => {
                // Poll the datagram and drop it, as if the network had lost it.
                let mut budget = Budget::UNLIMITED;
                inner.endpoint.poll_transmit(now, &mut budget, &mut &*adapter.memory);
                tracing::debug!(qpn = core.number.0, "datagram dropped: ring full for too long");
                Sent::Packet
            }
            Written::Full => {
                match wait_for_ring(&mut self.credit, adapter, core, &route.to, &mut producer) {
                    TurnEnd::Done => {
                        let until = Some(now + PATIENCE);
                        self.schedule.set_timer(core, &mut inner.membership, until);
                        Sent::Nothing
                    }
                    // Space has become available in the meantime.
                    TurnEnd::Over | TurnEnd::Blocked => Sent::Later,
                }
            }
        };
        drop(producer);
        inner.datagrams = Some((receiver, route));
        Some(sent)
    }
}
