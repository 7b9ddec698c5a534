//! What the device core needs from the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::credit::Receiver;
use ferroce_device::credit::probe::ProbePacket;
use ferroce_device::{Host, Published};
use ferroce_memory::Registry;
use ferroce_proto::time::Instant;
use ferroce_sync::PostedQueue;
use ferroce_wire::number::Qpn;

use super::adapter::Adapter;
use super::link::Route;
use super::queue_pair::{Core, Inner};
use super::rings::{RingRoute, resume_rings};

impl Host for Adapter {
    type Handle = Arc<Core>;
    type State = Inner;
    type Route = Route;
    type Queue = Box<RingRoute>;
    type Memory<'a> = &'a Registry;

    #[inline]
    fn memory(&self, _: Instant) -> &Registry {
        &self.memory
    }

    fn queue_pair(&self, number: Qpn) -> Option<Arc<Core>> {
        self.tables.queue_pair(number)
    }

    #[inline]
    fn posted(&self) -> &PostedQueue<Arc<Core>> {
        &self.posted
    }

    #[inline]
    fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    #[inline]
    fn is_captured(&self) -> bool {
        self.tap().is_some()
    }

    #[inline]
    fn begin_turn(&self, inner: &mut Inner, now: Instant) {
        inner.stats.begin_turn(now);
    }

    #[inline]
    fn publish(&self, core: &Arc<Core>, inner: &mut Inner, now: Instant) -> Published {
        core.publish_completions(inner, self, now)
    }

    #[inline]
    fn local_receiver(&self, inner: &Inner) -> Option<(Receiver, Route)> {
        let (destination, route) = inner.endpoint.next_unacknowledged()?;
        let route = route.or(inner.route)?;
        let host = route.destination.ip();
        let is_local = destination != Qpn::MULTICAST && self.port.is_here(host);
        let route = Route { sender: 0, flow_label: 0, ..route };
        is_local.then(|| (Receiver::new(host, destination), route))
    }

    fn datagram_queue(
        &self,
        inner: &Inner,
        (to, path): (Receiver, Route),
        last: Option<Box<RingRoute>>,
    ) -> Option<Box<RingRoute>> {
        self.rings.hub()?;
        // UC has a ring from the start, or none.
        inner.endpoint.next_unacknowledged()?.1?;
        last.filter(|last| last.serves(&path))
            .or_else(|| self.existing_ring(to, path).map(Box::new))
    }

    #[inline]
    fn next_own(&self, taken: u64) -> Option<(Route, Box<[u8]>)> {
        self.outbox.pop(taken)
    }

    fn push_probe(&self, (route, packet): ProbePacket<Route>) {
        self.outbox.push(route, packet.into());
    }

    fn own_sent(&self, count: u64) {
        self.outbox.set_sent(count);
    }

    #[inline]
    fn resume_queues(&self, resume: impl FnMut(u64, usize) -> bool) {
        resume_rings(self, resume);
    }
}
