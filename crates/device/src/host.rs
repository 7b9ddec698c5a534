//! What the device core needs from its embedder.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::{Deref, DerefMut};

use ferroce_proto::counters::Counters;
use ferroce_proto::endpoint::Event;
use ferroce_proto::memory::Memory;
use ferroce_proto::reason::Reason;
use ferroce_proto::time::Instant;
use ferroce_proto::work::Completion;
use ferroce_wire::address::Gid;
use ferroce_wire::opcode::Operation;
use ferroce_wire::transport::{Aeth, Bth};

use crate::arrival::{Arrival, Refusal};
use crate::credit::Receiver;
use crate::credit::probe::ProbePacket;
use crate::handle::Handle;
use crate::queue_pair::{Object, QueuePair, ReceiveSource};
use crate::tables::Tables;

/// The embedder of the device core: the engine of the library, or a host of the simulator. It may leave out what serves
/// statistics, captures and reports alone.
pub trait Host: Sized {
    /// The handle of a QP.
    type Handle: Handle<Target: Object<State = Self::State, ReceiveQueue = Self::ReceiveQueue>>;
    /// What the lock of a QP protects: that of the device core, and more of the embedder.
    type State: DerefMut<Target = QueuePair<Self::Route, Self::Queue>>;
    /// The handle of a receive queue.
    type ReceiveQueue: Clone + Deref<Target: ReceiveSource>;
    /// The route of a packet.
    type Route: Copy;
    /// A transmit queue: a [`TransmitQueue`](crate::TransmitQueue).
    type Queue;
    /// The registered memory.
    type Memory<'a>: Memory
    where
        Self: 'a;
    /// A received packet.
    type Arrival<'a>: Arrival;
    /// A CQ that a completion did not fit into.
    type Overrun;

    /// The registered memory, as transports access it now.
    fn memory(&self, now: Instant) -> Self::Memory<'_>;

    /// The QPs and SRQs of this process.
    fn tables(&self) -> &Tables<Self::Handle, Self::ReceiveQueue>;

    /// Whether another thread waits for the device, so that no further turn begins.
    fn is_awaited(&self) -> bool;

    /// Whether packets are captured: then the work request of each is looked up.
    #[inline]
    fn is_captured(&self) -> bool {
        false
    }

    /// A turn of the QP begins.
    #[inline]
    fn begin_turn(&self, _state: &mut Self::State, _now: Instant) {}

    // Packets that arrive.

    /// Whether a connected QP accepts packets from this address: only its peer's, even if QPN and PSN match.
    fn is_peer(&self, state: &Self::State, source: IpAddr) -> bool;

    /// Captures a packet that has arrived. Returns whether there is a capture.
    #[inline]
    fn record(&self, _arrival: &Self::Arrival<'_>, _state: Option<&Self::State>) -> bool {
        false
    }

    /// The captured packet that is being handled, whose comment says why it was refused, if it is.
    fn set_captured(&self, _state: &mut Self::State, _packet: Option<&Bth>) {}

    /// The transport of the QP gets this packet.
    fn accepted(&self, state: &mut Self::State, arrival: &Self::Arrival<'_>);

    /// The transport of an RC QP has taken a message of one packet, or a positive ACK, of which [`Host::accepted`] was not told.
    #[inline]
    fn received_message(
        &self,
        _state: &mut Self::State,
        _operation: Operation,
        _payload: usize,
        _now: Instant,
    ) {
    }

    /// A packet was dropped.
    fn refuse(&self, _refusal: Refusal, _packet: Option<&Bth>) {}

    /// A packet for a connected QP was dropped, because it is not from its peer or the QP does not know its peer yet.
    fn refuse_stranger(&self, _handle: &Self::Handle, _state: &Self::State, _packet: &Bth) {}

    /// Handles a management datagram. Returns whether it belongs to this process. The caller owns the device, so nothing
    /// here may wait for it.
    fn handle_management(&self, arrival: &Self::Arrival<'_>) -> bool;

    /// The QPs that are attached to a multicast group.
    fn members(&self, group: Gid) -> Vec<Self::Handle>;

    /// The route to the process of this host that sent a probe or its acknowledgement; `None` if another host did.
    fn route_back(&self, arrival: &Self::Arrival<'_>) -> Option<Self::Route>;

    // What a QP reports.

    /// Adds a completion of a send request to its CQ.
    fn complete_send(
        &self,
        handle: &Self::Handle,
        state: &mut Self::State,
        completion: Completion,
        now: Instant,
    ) -> Result<(), Self::Overrun>;

    /// Adds a completion of a receive request to its CQ. `named`: the SRQ of the request, if XRC named it.
    fn complete_receive(
        &self,
        handle: &Self::Handle,
        state: &mut Self::State,
        named: Option<&Self::ReceiveQueue>,
        completion: Completion,
        now: Instant,
    ) -> Result<(), Self::Overrun>;

    /// Counts a lost completion, which ends the QP for the reason that is returned.
    fn overrun(&self, state: &mut Self::State, overrun: Self::Overrun) -> Reason;

    /// The QP has failed for this reason, unless another was given before.
    fn set_ended_by(&self, _state: &mut Self::State, _reason: &Reason) {}

    /// Adds up the counts of a QP.
    fn count(&self, _state: &mut Self::State, _counted: &Counters) {}

    /// Reports why packets or requests were refused, dropped or ended.
    fn report(&self, _handle: &Self::Handle, _state: &Self::State, _reasons: &[Reason]) {}

    /// Raises an async event of a QP.
    fn raise(&self, handle: &Self::Handle, event: Event);

    /// Raises the limit event of an SRQ.
    fn limit_reached(&self, receives: &Self::ReceiveQueue);

    /// The completions of a QP were published.
    fn published(&self, handle: &Self::Handle, state: &mut Self::State, now: Instant);

    // Packets to send.

    /// A packet of the QP was committed, or a run of packets as one, with this many bytes of payload. For statistics.
    #[inline]
    fn sent(
        &self,
        _state: &mut Self::State,
        _bth: &Bth,
        _aeth: Option<Aeth>,
        _payload: usize,
        _packets: u32,
    ) {
    }

    /// The process of this host that the next packet of the QP goes to, and the way there, if that packet is not acknowledged.
    /// All such packets to a process take the same way, because probes must stay behind the packets they cover.
    fn local_receiver(&self, state: &Self::State) -> Option<(Receiver, Self::Route)>;

    /// A transmit queue to this process for the next datagram of a QP, if there is one; `last` is that of the one before, if it
    /// went to the same process.
    fn datagram_queue(
        &self,
        state: &Self::State,
        to: (Receiver, Self::Route),
        last: Option<Self::Queue>,
    ) -> Option<Self::Queue>;

    /// The next packet that belongs to no QP: a management datagram or a probe, without its ICRC. `taken`
    /// were taken before.
    fn next_own(&self, taken: u64) -> Option<(Self::Route, Box<[u8]>)>;

    /// Adds a probe to the packets that belong to no QP.
    fn push_probe(&self, probe: ProbePacket<Self::Route>);

    /// The first `count` packets that belong to no QP were sent.
    fn own_sent(&self, _count: u64) {}

    /// Calls `resume` for every transmit queue that has room again, with its number and for how many QPs there is room. It
    /// returns whether others still wait.
    fn resume_queues(&self, resume: impl FnMut(u64, usize) -> bool);
}

/// What a QP published.
#[derive(Clone, Copy, Debug, Default)]
pub struct Published {
    /// At least one completion.
    pub some: bool,
    /// It lost packets since the last time.
    pub lost: Loss,
}

/// Packets that a QP has found to be lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    /// Requests of its own.
    pub requests: bool,
    /// Responses to its requests.
    pub responses: bool,
}
