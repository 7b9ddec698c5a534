//! What the links need from the engine.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use ferroce_device::destination;
use ferroce_links::embedder::{Embedder, Traffic};
use ferroce_links::ring::Rings;
use ferroce_links::route::Route;
use ferroce_links::udp::Addresses;
use ferroce_sys::{Error, Recipient, RxInfo, Socket, record_header};
use ferroce_tap::{Owner, PacketMetadata, Tap};
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;
use ferroce_wire::udp_headers::Headers;

use super::counters::{count, count_error};
use super::data_path::DataPath;
use super::management::MadDevice;
use super::port::open_sender;
use super::queue_pair::Inner;

impl Embedder for DataPath {
    #[inline]
    fn addresses(&self) -> &Addresses {
        &self.port.links
    }

    #[inline]
    fn rings(&self) -> &Rings {
        &self.rings
    }

    #[inline]
    fn peer_info(inner: &mut Inner) -> &mut Option<[u8; record_header::LENGTH]> {
        &mut inner.peer_info
    }

    fn open_sender(&self, address: SocketAddr) -> Option<Socket> {
        let socket = open_sender(address, self.device.interface(), &self.options).ok()?;
        self.tap.add_source(socket.local());
        // The thread has to watch the new socket as well.
        self.signals.wake();
        Some(socket)
    }

    fn sent_through_socket(&self, packets: u32, bytes: usize) {
        self.counters.sent(packets, bytes, false);
    }

    #[inline]
    fn sent_through_ring(&self, packets: u32, bytes: usize) {
        self.counters.sent(packets, bytes, true);
    }

    #[inline]
    fn sent_messages(&self, inner: &mut Inner, messages: &[Traffic; 2]) {
        inner.stats.sent_messages(messages);
    }

    fn send_failed(&self, error: &Error) {
        count_error(self.counters.send_failed(), self.counters.send_errno(), error);
    }

    /// A file of one shard gets packets after they are sent, without those that the kernel refused.
    fn captures_before_sending(&self) -> bool {
        self.tap().is_some_and(|tap| self.options.shard_count() > 1 || tap.is_live())
    }

    #[inline]
    fn tap(&self) -> Option<&Tap> {
        Self::tap(self)
    }

    fn received_from_socket(&self, bytes: usize) {
        self.counters.received(1, bytes, false);
    }

    #[inline]
    fn received_from_ring(&self, packets: u32, bytes: usize) {
        self.counters.received(packets, bytes, true);
    }

    /// The sender's capture shows what the packet was before.
    fn received_corrupted(&self, bytes: &[u8], headers: &Headers, info: &RxInfo, index: u16) {
        count(self.counters.bad_icrc());
        if let Some(tap) = self.tap() {
            let expected = Identification::of_segment(index);
            let owner = Owner { queue_pair: destination(bytes).unwrap_or_default(), work: None };
            let metadata =
                PacketMetadata::received(*headers, info.tos, info.hop_limit, expected, owner);
            tap.record(&metadata.corrupted(), bytes);
        }
    }

    fn faults_injected(&self, count: u64) {
        self.counters.faults_injected().fetch_add(count, Ordering::Relaxed);
    }

    fn forward(&self, local: SocketAddr, to: Recipient, info: &RxInfo, data: &[u8]) {
        MadDevice::forward(self, local, to, info, data);
    }
}

impl DataPath {
    /// Returns the route with the source port of packets between these two QPs.
    pub(crate) fn with_sender(&self, route: Route, local: Qpn, remote: Qpn) -> Route {
        self.port.links.with_sender(route, (local, remote), |address| self.open_sender(address))
    }
}
