//! What the links need from the device that they belong to.

use std::net::SocketAddr;

use ferroce_device::Host;
use ferroce_memory::Registry;
use ferroce_sys::{Error, Recipient, RxInfo, Socket};
use ferroce_tap::Tap;
use ferroce_wire::udp_headers::Headers;

use crate::packet::ReceivedPacket;
use crate::ring::rings::Rings;
use crate::ring::route::{INFO, RingRoute};
use crate::route::Route;
use crate::udp::addresses::Addresses;

/// The device that the links belong to.
pub trait Embedder:
    'static
    + for<'a> Host<
        Route = Route,
        Queue = Box<RingRoute>,
        Arrival<'a> = ReceivedPacket<'a>,
        Memory<'a> = &'a Registry,
    >
{
    /// Its addresses.
    fn addresses(&self) -> &Addresses;

    /// Its rings.
    fn rings(&self) -> &Rings;

    /// The metadata of packets that come from the peer of a QP through a ring, once one was accepted.
    fn peer_info(state: &mut Self::State) -> &mut Option<[u8; INFO]>;

    /// Opens a send socket at this address, on its port or the next free one.
    fn open_sender(&self, address: SocketAddr) -> Option<Socket>;

    /// Packets were sent through a socket, with this many bytes.
    fn sent_through_socket(&self, packets: u32, bytes: usize);

    /// Packets were written to a ring, with this many bytes.
    fn sent_through_ring(&self, packets: u32, bytes: usize);

    /// Messages of a QP were sent as whole records, of which [`Host::sent`] was not told: SENDs and WRITEs.
    fn sent_messages(&self, state: &mut Self::State, messages: &[Traffic; 2]);

    /// The kernel refused packets.
    fn send_failed(&self, error: &Error);

    /// Whether packets are captured before they are sent, as kernels do: otherwise the response, which another process or
    /// another part of the device receives, could come first.
    fn captures_before_sending(&self) -> bool;

    /// The capture of its packets, while there is one.
    fn tap(&self) -> Option<&Tap>;

    /// A packet was received from a socket, with this many bytes.
    fn received_from_socket(&self, bytes: usize);

    /// Packets were received from a ring, with this many bytes.
    fn received_from_ring(&self, packets: u32, bytes: usize);

    /// Counts and captures a packet with a wrong ICRC or an implausible IPv4 identification. `index`: its index in its datagram.
    fn received_corrupted(&self, bytes: &[u8], headers: &Headers, info: &RxInfo, index: u16);

    /// Faults were injected into what was received.
    fn faults_injected(&self, count: u64);

    /// Forwards packets that arrived at the address `local` to their owner, now or later.
    fn forward(&self, local: SocketAddr, to: Recipient, info: &RxInfo, data: &[u8]);
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
    pub fn add(&mut self, packets: u64, payload: u64, messages: u64) {
        self.packets += packets;
        self.bytes += payload;
        self.messages += messages;
    }
}
