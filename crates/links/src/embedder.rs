//! What the links need from the device that they belong to.

use std::net::SocketAddr;

use ferroce_device::Host;
use ferroce_sys::{Error, Socket};

use crate::packet::{SentPacket, Traffic};
use crate::ring::rings::Rings;
use crate::ring::route::RingRoute;
use crate::route::Route;
use crate::udp::addresses::Addresses;

/// The device that the links belong to.
pub trait Embedder: Host<Route = Route, Queue = Box<RingRoute>> {
    /// Its addresses.
    fn addresses(&self) -> &Addresses;

    /// Its rings.
    fn rings(&self) -> &Rings;

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

    /// Captures a packet, from its BTH to its ICRC, if packets are captured.
    fn capture(&self, packet: &SentPacket<'_>, bytes: &[u8]);
}
