//! Packets that leave, as captures and counters describe them.

use ferroce_proto::work::WorkId;
use ferroce_wire::number::Qpn;
use ferroce_wire::udp_headers::Headers;

use crate::route::Route;

/// The largest packet: 4096 bytes of payload and all headers, rounded up.
pub const MAX_PACKET: usize = 4096 + 128;

/// The owner of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The QP.
    pub queue_pair: Qpn,
    /// The work request, if known.
    pub work: Option<WorkId>,
}

/// A packet that leaves the device.
#[derive(Clone, Copy, Debug)]
pub struct SentPacket<'a> {
    /// The owner.
    pub owner: Owner,
    /// The route.
    pub route: &'a Route,
    /// The addresses and ports.
    pub headers: Headers,
    /// Its index in a batch that the kernel segments, from which the IPv4 identification follows; 0 otherwise.
    pub index: u16,
}

/// Packets, bytes of payload and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
}

impl Traffic {
    /// Adds packets with this payload in all, and the messages that end with them.
    #[inline]
    pub fn add(&mut self, packets: u32, payload: usize, messages: u64) {
        self.packets += u64::from(packets);
        self.bytes += payload as u64;
        self.messages += messages;
    }
}
