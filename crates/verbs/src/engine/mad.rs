//! The device as management sees it: its addresses, and sending and forwarding management datagrams.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_links::route::Route;
use ferroce_links::udp::Address;
use ferroce_proto::qp::PathMtu;
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::pad;
use ferroce_sys::{Recipient, RxInfo, clock};
use ferroce_wire::address::Gid;
use ferroce_wire::number::{PKey, Psn, QKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::transport::{Bth, Deth};

use super::adapter::Adapter;
use super::counters::count;
use super::shards::Handle;
use crate::drive::Links;
use crate::error::RouteError;

/// Sends and forwards management datagrams. Management has no other access to the device, so the data path can change
/// without it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadTransport<'a> {
    adapter: &'a Adapter,
}

impl Adapter {
    /// The part of the device that management may use.
    pub(crate) fn mads(&self) -> MadTransport<'_> {
        MadTransport { adapter: self }
    }
}

/// The addresses of the device, and the routes from them.
impl<'a> MadTransport<'a> {
    /// All links, with their addresses.
    pub(super) fn links(self) -> impl Iterator<Item = (u8, SocketAddr)> {
        (0..=u8::MAX).zip(self.adapter.port.links.iter().map(|link| link.address))
    }

    /// The address of a link.
    pub(crate) fn address(self, link: u8) -> Option<SocketAddr> {
        self.link(link).map(|link| link.address)
    }

    /// The link with this address and port.
    pub(super) fn link_at(self, address: SocketAddr) -> Option<u8> {
        self.links().find(|&(_, own)| own == address).map(|(link, _)| link)
    }

    /// The GID index that represents a link.
    pub(crate) fn source_index(self, link: u8) -> u8 {
        self.adapter.source_index(link)
    }

    pub(super) fn has_address(self, host: IpAddr) -> bool {
        self.adapter.port.links.has_address(host)
    }

    /// The route from a link to a GID.
    pub(crate) fn route_to(self, link: u8, destination: Gid) -> Result<Route, RouteError> {
        self.adapter.route_to(link, destination)
    }

    fn link(self, link: u8) -> Option<&'a Address> {
        self.adapter.port.links.get(usize::from(link))
    }
}

/// Sending and forwarding.
impl MadTransport<'_> {
    /// Sends a management datagram from the QP `number` to the peer's QP of the same number. Does not wait: if another
    /// thread owns the device, that thread sends it.
    pub(crate) fn send(self, route: Route, number: Qpn, queue_key: QKey, psn: Psn, payload: &[u8]) {
        let bth = Bth {
            opcode: Opcode::UD_SEND_ONLY,
            pad: pad(payload.len()),
            partition: PKey(0xffff),
            destination: number,
            psn,
            ..Bth::default()
        };
        let deth = Deth { queue_key, source: number, ..Deth::default() };
        let padding = &[0; 3][..usize::from(bth.pad)];
        let packet = [&bth.to_bytes()[..], &deth.to_bytes(), payload, padding].concat();
        self.adapter.outbox.push(route, packet.into());
        self.adapter.drive();
    }

    /// Waits until all datagrams have been sent, so that a process can exit right after sending them. One to another
    /// process of this host may have been steered to our own socket, so the sockets are read as well and such packets are
    /// forwarded.
    ///
    /// Takes at most 100 ms: a network that accepts no packets is not waited for. The caller must not hold a lock.
    pub(crate) fn flush(self) {
        const LONGEST: u64 = 100_000_000;
        let adapter = self.adapter;
        let until = clock::now() + LONGEST;
        let wait = |is_reached: &dyn Fn() -> bool| {
            while !is_reached() && clock::now() < until {
                adapter.run(false, Links::All);
                std::thread::yield_now();
            }
        };
        let queued = adapter.outbox.queued();
        wait(&|| adapter.outbox.has_sent(queued));
        // A pass may already have been in progress.
        let passes = adapter.rx_passes.load(Ordering::Acquire) + 2;
        wait(&|| adapter.rx_passes.load(Ordering::Acquire) >= passes);
    }

    /// Forwards a packet to its owner, now or when its mailbox has space. Returns whether an owner exists.
    pub(super) fn forward(
        self,
        local: SocketAddr,
        to: Recipient,
        info: &RxInfo,
        packet: &[u8],
    ) -> bool {
        self.adapter.forward(local, to, info, packet)
    }

    /// Forwards a packet to its owner, unless its mailbox is full.
    pub(super) fn try_forward(self, link: u8, to: Recipient, info: &RxInfo, packet: &[u8]) {
        let Some(link) = self.link(link) else { return };
        count(match link.slot.forward(to, info, packet) {
            Ok(()) => self.adapter.counters.forwarded_out(),
            Err(_) => self.adapter.counters.forward_failed(),
        });
    }

    /// Forwards a packet to all other processes at the address. One whose mailbox is full receives the peer's retry.
    pub(super) fn forward_to_all(self, link: u8, info: &RxInfo, packet: &[u8]) {
        let Some(Address { slot, .. }) = self.link(link) else { return };
        for other in slot.others().unwrap_or_default() {
            let _ = slot.forward(Recipient::Slot(other), info, packet);
        }
    }

    /// Wakes the device thread, which runs the timers of management.
    pub(super) fn wake_thread(self) {
        self.adapter.signals.wake();
    }
}

/// What a cm_id asks the device when an event concerns it.
impl MadTransport<'_> {
    /// The open device, unless it is being closed.
    pub(crate) fn handle(self) -> Option<Arc<Handle>> {
        self.adapter.handle()
    }

    /// The largest path MTU of the device.
    pub(crate) fn mtu(self) -> PathMtu {
        self.adapter.device.mtu().unwrap_or_default()
    }

    /// When a QP last received something from its peer.
    pub(crate) fn last_heard(self, number: Qpn) -> Option<Instant> {
        let core = self.handle()?.queue_pair(number)?;
        core.inner.lock().heard
    }
}
