//! Request packets that arrive while the payload of the message before them is being placed. The responder executes
//! messages in order (IBA C9-28), so they wait.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::transport::Bth;

/// A packet that is held. [`Endpoint::take_held`](crate::endpoint::Endpoint::take_held) returns it when it can be
/// handled.
#[derive(Debug)]
pub struct HeldPacket {
    bth: Bth,
    extensions: ExtensionHeaders,
    payload: Box<[u8]>,
    payload_len: usize,
    /// How many packets it is, see [`InboundPacket::packets`](crate::endpoint::InboundPacket::packets).
    pub packets: u32,
}

impl HeldPacket {
    /// The packet, without pad and ICRC.
    pub fn packet(&self) -> Packet<'_> {
        let Self { bth, extensions, payload_len, .. } = *self;
        Packet { bth, extensions, payload: &self.payload, payload_len, ..Packet::default() }
    }
}

/// Bytes that a QP holds. What is behind is dropped, and RC asks for it again. More than the usual window of a peer, and than
/// the receive buffer of a socket holds for one, since UC has no window.
const MAX_HELD: usize = 1024 * 1024;

/// Headers of a held packet, for packets without payload.
const OVERHEAD: usize = 256;

/// The held packets of a QP, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct HeldPackets {
    packets: VecDeque<HeldPacket>,
    /// Their cost.
    bytes: usize,
    /// A packet was dropped, as too many are held.
    pub(crate) dropped: bool,
}

impl HeldPackets {
    /// Holds a packet, or drops it.
    #[cold]
    pub(crate) fn push(&mut self, packet: &Packet<'_>, packets: u32) {
        let bytes = packet.payload.len() + OVERHEAD;
        // Behind a dropped packet all are out of sequence.
        self.dropped |= self.bytes + bytes > MAX_HELD && !self.packets.is_empty();
        if self.dropped {
            return;
        }
        self.bytes += bytes;
        let Packet { bth, extensions, payload, payload_len, .. } = *packet;
        let payload = payload.into();
        self.packets.push_back(HeldPacket { bth, extensions, payload, payload_len, packets });
    }

    /// Takes the oldest packet.
    pub(crate) fn pop(&mut self) -> Option<HeldPacket> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.payload.len() + OVERHEAD;
        Some(packet)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
