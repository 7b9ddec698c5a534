//! What the links need from the engine.

use std::net::SocketAddr;

use ferroce_links::embedder::Embedder;
use ferroce_links::packet::{SentPacket, Traffic};
use ferroce_links::ring::Rings;
use ferroce_links::udp::Addresses;
use ferroce_sys::{Error, Socket};
use ferroce_tap::{Owner, PacketMetadata};

use super::adapter::Adapter;
use super::counters::count_error;
use super::port::open_sender;
use super::qp_stats::Class;
use super::queue_pair::Inner;

impl Embedder for Adapter {
    #[inline]
    fn addresses(&self) -> &Addresses {
        &self.port.links
    }

    #[inline]
    fn rings(&self) -> &Rings {
        &self.rings
    }

    fn open_sender(&self, address: SocketAddr) -> Option<Socket> {
        let socket = open_sender(address, self.device.interface(), &self.options).ok()?;
        self.add_source(socket.local());
        // The thread has to watch the new socket as well.
        self.signals.wake();
        Some(socket)
    }

    fn sent_through_socket(&self, packets: u32, bytes: usize) {
        self.counters.sent(packets, bytes);
    }

    #[inline]
    fn sent_through_ring(&self, packets: u32, bytes: usize) {
        self.counters.sent_locally(packets, bytes);
    }

    #[inline]
    fn sent_messages(&self, inner: &mut Inner, messages: &[Traffic; 2]) {
        inner.stats.sent_messages([Class::Send, Class::Write], messages);
    }

    fn send_failed(&self, error: &Error) {
        count_error(self.counters.send_failed(), self.counters.send_errno(), error);
    }

    /// A file of one shard gets packets after they are sent, without those that the kernel refused.
    fn captures_before_sending(&self) -> bool {
        self.tap().is_some_and(|tap| self.options.shard_count() > 1 || tap.is_live())
    }

    #[inline]
    fn capture(&self, packet: &SentPacket<'_>, bytes: &[u8]) {
        let Some(tap) = self.tap() else { return };
        let SentPacket { owner, route, headers, index } = *packet;
        let (class, hop_limit) = (route.traffic_class, route.hop_limit);
        let owner = Owner { queue_pair: owner.queue_pair, work: owner.work };
        let metadata = PacketMetadata::sent(headers, class, hop_limit, index, owner);
        tap.record(&metadata, bytes);
    }
}
