//! What the device core needs from its embedder.

use alloc::boxed::Box;

use ferroce_proto::memory::Memory;
use ferroce_proto::time::Instant;
use ferroce_sync::PostedQueue;
use ferroce_wire::number::Qpn;

use crate::credit::Receiver;
use crate::credit::probe::ProbePacket;
use crate::handle::Handle;
use crate::queue_pair::{Object, State};

/// The embedder of the device core: the engine of the library, or a host of the simulator.
pub trait Host: Sized {
    /// The handle of a QP.
    type Handle: Handle<Target: Object<State = Self::State>>;
    /// The state of a QP.
    type State: State<Route = Self::Route, Queue = Self::Queue>;
    /// The route of a packet.
    type Route: Copy;
    /// A transmit queue: a [`TransmitQueue`](crate::TransmitQueue).
    type Queue;
    /// The registered memory.
    type Memory<'a>: Memory
    where
        Self: 'a;

    /// The registered memory, as transports access it now.
    fn memory(&self, now: Instant) -> Self::Memory<'_>;

    /// The QP with this number.
    fn queue_pair(&self, number: Qpn) -> Option<Self::Handle>;

    /// The QPs that other threads have queued.
    fn posted(&self) -> &PostedQueue<Self::Handle>;

    /// Whether another thread waits for the device, so that no further turn begins.
    fn is_awaited(&self) -> bool;

    /// Whether packets are captured: then the work request of each is looked up.
    fn is_captured(&self) -> bool;

    /// A turn of the QP begins.
    fn begin_turn(&self, state: &mut Self::State, now: Instant);

    /// Moves what the transport has to report to the program.
    fn publish(&self, handle: &Self::Handle, state: &mut Self::State, now: Instant) -> Published;

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
    fn own_sent(&self, count: u64);

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

impl Published {
    /// Adds what was published later.
    pub fn add(&mut self, later: Self) {
        self.some |= later.some;
        self.lost.requests |= later.lost.requests;
        self.lost.responses |= later.lost.responses;
    }
}

/// Packets that a QP has found to be lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    /// Requests of its own.
    pub requests: bool,
    /// Responses to its requests.
    pub responses: bool,
}
