//! A packet that has arrived, and what its link knows about it.

use core::net::IpAddr;

use ferroce_proto::time::Instant;
use ferroce_proto::ud::Envelope;
use ferroce_wire::number::{PKey, Qpn};
use ferroce_wire::packet::Packet;

/// A received packet whose integrity was checked, or an aggregate of consecutive packets.
pub trait Arrival {
    /// The packet.
    fn packet(&self) -> &Packet<'_>;

    /// How many packets it is: one, unless it is an aggregate.
    fn packets(&self) -> u32;

    /// When it was received.
    fn time(&self) -> Instant;

    /// The address that it came from.
    fn source(&self) -> IpAddr;

    /// The address that it was sent to.
    fn destination(&self) -> IpAddr;

    /// Whether the network has marked it "congestion experienced" (RFC 3168).
    fn is_marked(&self) -> bool;

    /// Whether it may have come through the peer's transmit queue.
    fn may_be_queued(&self) -> bool;

    /// The IP header before the payload of a datagram.
    fn envelope(&self) -> Envelope;
}

/// Why the device dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is too short, or its opcode is unknown.
    Malformed,
    /// It is of another partition.
    Partition,
    /// There is no such QP.
    UnknownQueuePair,
}

/// The default partition without its full-membership bit (IBA 10.9.1.1).
const DEFAULT_PARTITION: u16 = 0x7fff;

/// Whether a P_Key is that of the default partition, with full membership or limited.
#[inline]
pub(crate) const fn is_default_partition(PKey(key): PKey) -> bool {
    key & 0x7fff == DEFAULT_PARTITION
}

/// The bytes of the destination QPN in a BTH.
const DESTINATION: core::ops::Range<usize> = 5..8;

/// The destination QPN of a packet.
#[inline]
pub fn destination(packet: &[u8]) -> Option<Qpn> {
    let [a, b, c] = *packet.get(DESTINATION)?.first_chunk()?;
    Some(Qpn(u32::from_be_bytes([0, a, b, c])))
}
