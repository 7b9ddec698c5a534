//! What the device core needs from the engine; and what becomes of packets that it drops: a count, a reason in the log, and a
//! comment in the capture.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::credit::Receiver;
use ferroce_device::credit::probe::ProbePacket;
use ferroce_device::{Host, Refusal};
use ferroce_links::packet::ReceivedPacket;
use ferroce_links::ring::RingRoute;
use ferroce_links::route::Route;
use ferroce_memory::Registry;
use ferroce_proto::counters::Counters;
use ferroce_proto::endpoint::Event;
use ferroce_proto::qp::State;
use ferroce_proto::reason::Reason;
use ferroce_proto::time::Instant;
use ferroce_proto::work::Completion;
use ferroce_stat::layout::SharedReceiveQueue;
use ferroce_tap::{Owner, PacketMetadata};
use ferroce_wire::address::Gid;
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Operation;
use ferroce_wire::transport::{Aeth, Bth};

use super::counters::count;
use super::data_path::{DataPath, Tables};
use super::queue_pair::{Core, Inner, RecvQueue};
use crate::cq;
use crate::event::{AsyncEvent, Source};
use crate::report;

impl Host for DataPath {
    type Handle = Arc<Core>;
    type State = Inner;
    type Route = Route;
    type Queue = Box<RingRoute>;
    type ReceiveQueue = Arc<RecvQueue>;
    type Memory<'a> = &'a Registry;
    type Arrival<'a> = ReceivedPacket<'a>;
    type Overrun = cq::Overrun;

    #[inline]
    fn memory(&self, _: Instant) -> &Registry {
        &self.memory
    }

    #[inline]
    fn tables(&self) -> &Tables {
        &self.tables
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
    fn sent(&self, inner: &mut Inner, bth: &Bth, aeth: Option<Aeth>, payload: usize, packets: u32) {
        inner.stats.sent(bth, aeth, payload, packets);
    }

    /// A peer on this host may use another of our addresses: the kernel accepts packets from these addresses from no other host.
    #[inline]
    fn is_peer(&self, inner: &Inner, source: IpAddr) -> bool {
        let peer = inner.route.as_ref().map(|route| route.destination.ip());
        let is_ours = |ip: IpAddr| self.port.links.has_address(ip);
        peer == Some(source) || peer.is_some_and(is_ours) && is_ours(source)
    }

    #[inline]
    fn record(&self, received: &ReceivedPacket<'_>, inner: Option<&Inner>) -> bool {
        let tap = self.tap();
        if let Some(tap) = tap {
            let answer = received.packet.bth.opcode.info().is_some_and(|info| !info.request);
            let asked = inner.filter(|_| answer);
            let owner = Owner {
                queue_pair: received.packet.bth.destination,
                work: asked.and_then(|inner| inner.endpoint.work_of(&received.packet.bth)),
            };
            let ReceivedPacket { headers, info, identification, .. } = *received;
            let metadata =
                PacketMetadata::received(*headers, info.tos, info.hop_limit, identification, owner);
            tap.record(&metadata, received.bytes);
        }
        tap.is_some()
    }

    fn set_captured(&self, inner: &mut Inner, packet: Option<&Bth>) {
        inner.captured = packet.copied();
    }

    #[inline]
    fn accepted(&self, inner: &mut Inner, received: &ReceivedPacket<'_>) {
        inner.heard = Some(received.now);
        inner.stats.received(received.packet, received.packets);
    }

    #[inline]
    fn received_message(
        &self,
        inner: &mut Inner,
        operation: Operation,
        payload: usize,
        now: Instant,
    ) {
        inner.heard = Some(now);
        inner.stats.received_whole(operation, payload);
    }

    /// Only requests for QPs that do not exist are reported: a response may be late.
    #[cold]
    fn refuse(&self, refusal: Refusal, packet: Option<&Bth>) {
        let is_request = |packet: &&Bth| packet.opcode.info().is_some_and(|info| info.request);
        let wrong_partition = |packet: &Bth| Reason::WrongPartition(packet.partition);
        let unknown = |packet: &Bth| Reason::UnknownQueuePair(packet.destination);
        let (counter, reason) = match refusal {
            Refusal::Malformed => (self.counters.malformed(), None),
            Refusal::Partition => (self.counters.bad_partition(), packet.map(wrong_partition)),
            Refusal::UnknownQueuePair => {
                (self.counters.no_queue_pair(), packet.filter(is_request).map(unknown))
            }
        };
        count(counter);
        if let Some(text) = reason.and_then(|reason| self.report_device(&reason)) {
            self.annotate(packet, &text);
        }
    }

    #[cold]
    fn refuse_stranger(&self, core: &Arc<Core>, inner: &Inner, packet: &Bth) {
        let reason = match inner.endpoint.state() {
            state @ (State::Reset | State::Init) => Reason::NotReceiving(state),
            _ => Reason::NotPeer,
        };
        self.report_of(core, inner, &reason, Some(packet), false);
        count(self.counters.no_queue_pair());
    }

    fn handle_management(&self, received: &ReceivedPacket<'_>) -> bool {
        self.management.handle(self, *received.local, received)
    }

    fn members(&self, group: Gid) -> Vec<Arc<Core>> {
        self.port.groups.members(group)
    }

    fn route_back(&self, received: &ReceivedPacket<'_>) -> Option<Route> {
        let (source, local) = (received.info.source.ip(), *received.local);
        let index = self.port.links.iter().position(|link| link.address == local);
        let destination = SocketAddr::new(source, local.port());
        let route = || Route::new(index.unwrap_or(0) as u8, destination);
        self.port.links.is_here(source).then(route)
    }

    #[inline]
    fn complete_send(
        &self,
        core: &Arc<Core>,
        inner: &mut Inner,
        mut completion: Completion,
        now: Instant,
    ) -> Result<(), cq::Overrun> {
        inner.stats.completed(&mut completion, &mut inner.ended_by);
        core.complete(&core.sends, completion, now)
    }

    #[inline]
    fn complete_receive(
        &self,
        core: &Arc<Core>,
        inner: &mut Inner,
        named: Option<&Arc<RecvQueue>>,
        mut completion: Completion,
        now: Instant,
    ) -> Result<(), cq::Overrun> {
        inner.stats.completed(&mut completion, &mut inner.ended_by);
        let consumed = named.unwrap_or(&core.receives);
        if let Some(slot) = &consumed.published {
            slot.word(SharedReceiveQueue::Completed as usize).fetch_add(1, Ordering::Relaxed);
        }
        let queue = named.and_then(|named| named.completions.as_ref());
        core.complete(queue.unwrap_or(&core.receive_completions), completion, now)
    }

    fn overrun(&self, inner: &mut Inner, overrun: cq::Overrun) -> Reason {
        let cq::Overrun { queue, capacity } = overrun;
        count(self.counters.overruns());
        let reason = Reason::CqOverrun { queue, capacity };
        inner.ended_by = reason.number();
        reason
    }

    fn set_ended_by(&self, inner: &mut Inner, reason: &Reason) {
        if inner.ended_by == 0 {
            inner.ended_by = reason.number();
        }
    }

    fn count(&self, inner: &mut Inner, counted: &Counters) {
        self.counters.add(counted);
        inner.stats.count(counted);
    }

    /// A reason that ended the QP is always remembered.
    #[cold]
    fn report(&self, core: &Arc<Core>, inner: &Inner, reasons: &[Reason]) {
        let ended = matches!(inner.endpoint.state(), State::Error | State::SendQueueError);
        for (index, reason) in reasons.iter().enumerate() {
            let ends = ended && index + 1 == reasons.len();
            self.report_of(core, inner, reason, inner.captured.as_ref(), ends);
        }
    }

    fn raise(&self, core: &Arc<Core>, event: Event) {
        tracing::debug!(qpn = core.number.0, ?event, "QP event");
        let source = Source::QueuePair(core.number);
        core.events.raise(AsyncEvent { source, kind: event.into() });
    }

    fn limit_reached(&self, receives: &Arc<RecvQueue>) {
        if let Some(number) = receives.number {
            receives.events.raise(AsyncEvent::limit_reached(number));
        }
    }

    #[inline]
    fn published(&self, _: &Arc<Core>, inner: &mut Inner, now: Instant) {
        inner.stats.publish(&inner.queue_pair.endpoint, now);
    }

    #[inline]
    fn local_receiver(&self, inner: &Inner) -> Option<(Receiver, Route)> {
        let (destination, route) = inner.endpoint.next_unacknowledged()?;
        let route = route.or(inner.route)?;
        let host = route.destination.ip();
        let is_local = destination != Qpn::MULTICAST && self.port.links.is_here(host);
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
            .or_else(|| self.rings.datagram_route(&self.port.links, to, path).map(Box::new))
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
        self.rings.resume(resume);
    }
}

impl DataPath {
    /// Publishes what a QP has to report to the program.
    pub(crate) fn publish(&self, core: &Arc<Core>, inner: &mut Inner, now: Instant) {
        ferroce_device::publish(self, core, inner, now);
    }

    fn report_of(
        &self,
        core: &Core,
        inner: &Inner,
        reason: &Reason,
        packet: Option<&Bth>,
        ends: bool,
    ) {
        let text = report::report(self.device.name(), Some(core.number), reason, ends);
        let Some(text) = text else { return };
        inner.stats.set_reason(reason.number(), &reason.to_string());
        self.annotate(packet, &text);
        if ends {
            report::end(core.number, reason, &text);
        }
    }

    /// Reports why the device refused or dropped something that belongs to no QP.
    #[cold]
    pub(super) fn report_device(&self, reason: &Reason) -> Option<String> {
        let text = report::report(self.device.name(), None, reason, false)?;
        self.counters.set_reason(reason.number(), &text);
        Some(text)
    }

    /// Adds why a packet was refused to its comment in a capture.
    fn annotate(&self, packet: Option<&Bth>, text: &str) {
        if let Some((tap, packet)) = self.tap().zip(packet) {
            tap.annotate(packet, text);
        }
    }
}
