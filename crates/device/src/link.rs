//! The ways out of a device. Its QPs send through a [`Link`], which may lose packets and whose receivers need credit, or
//! through a [`TransmitQueue`] to one process, which loses nothing and whose room bounds what may be in flight.

use ferroce_proto::time::Instant;
use ferroce_wire::number::Qpn;
use ferroce_wire::transport::{Aeth, Bth};

use ferroce_proto::work::WorkId;

use crate::host::Host;

/// Takes packets, one after the other.
pub trait Tx<H: Host> {
    /// Whether it takes another packet. Asked before the transport is, because what the transport gives out must not be lost.
    fn room(&mut self) -> Room;

    /// Where a packet with a payload of this length is written, from its BTH on. Longer than every packet.
    fn space(&mut self, payload: usize) -> &mut [u8];

    /// Sends the packet that was written there.
    fn commit(
        &mut self,
        host: &H,
        state: &mut H::State,
        packet: &Outgoing<'_, H::Route>,
    ) -> Committed;
}

/// Whether there is room for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is.
    Some,
    /// Not now.
    Full,
    /// Nobody receives any more.
    Ended,
}

/// A packet of a QP that was written.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a, R> {
    /// The QP.
    pub number: Qpn,
    /// Its BTH.
    pub bth: &'a Bth,
    /// Its AETH.
    pub aeth: Option<Aeth>,
    /// The length of its payload.
    pub payload: usize,
    /// The length from the BTH to the padding.
    pub length: usize,
    /// Where it goes, if not to the peer of the QP.
    pub route: Option<R>,
    /// It goes to a process of the same host, without acknowledgement.
    pub is_local: bool,
    /// The work request, if packets are captured.
    pub work: Option<WorkId>,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Committed {
    /// How many packets it was: more than one if it was a run, and 0 if it was dropped.
    pub packets: u32,
    /// Whether there may be room for another. If not, this packet is kept, and nothing may be added.
    pub has_room: bool,
}

/// A way out that may lose packets.
pub trait Link<H: Host>: Tx<H> {
    /// What is held while packets are added, because adding one may make a system call.
    type Guard;

    /// Begins to add packets.
    fn guard(&self) -> Self::Guard;

    /// Sends what was blocked. Returns false if it still is.
    fn unblock(&mut self, host: &H) -> bool;

    /// Sends everything that was committed. Returns false if there is no room.
    fn flush(&mut self, host: &H) -> bool;

    /// Adds a packet that belongs to no QP. Returns false if there is no more room; this packet is kept.
    fn push(&mut self, host: &H, route: H::Route, packet: &[u8]) -> bool;

    /// How many packets that belong to no QP were ever added from [`Host::next_own`].
    fn own_taken(&mut self) -> &mut u64;
}

/// A way to one process that loses nothing and has a limited size.
pub trait TransmitQueue<H: Host<Queue = Self>>: Sized {
    /// Takes the packets of one turn.
    type Turn<'a>: QueueTurn<H>
    where
        Self: 'a;

    /// Begins a turn.
    fn begin<'a>(&'a mut self, host: &H, state: &mut H::State) -> Self::Turn<'a>;

    /// Writes the ACK that a QP owes, without a turn. Returns false, with nothing changed, if that is impossible now.
    fn write_ack(&mut self, host: &H, state: &mut H::State) -> bool;

    /// Its number, which is not 0.
    fn number(&self) -> u64;

    /// Whether the peer has not yet read all packets of this QP: it is busy or stopped.
    fn is_unread(&self) -> bool;
}

/// Takes the packets of a turn. When it is dropped, the peer sees all of them.
pub trait QueueTurn<H: Host>: Tx<H> {
    /// Sends the next message at once, if there is a faster way than packet by packet. Returns `None`, with nothing
    /// changed, if there is not.
    fn message(&mut self, host: &H, state: &mut H::State, now: Instant) -> Option<usize>;

    /// Asks for a wakeup when there is room, and shows the peer what is written. Returns false if there is room by now.
    fn wait(&mut self, host: &H) -> bool;

    /// Ends the turn, after `packets` packets.
    fn end(self, host: &H, state: &mut H::State, packets: usize);
}
