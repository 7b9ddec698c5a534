//! Sending and forwarding management datagrams: what management needs from the device.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use ferroce_links::route::Route;
use ferroce_links::udp::Addresses;
use ferroce_proto::qp::PathMtu;
use ferroce_sys::{Recipient, RxInfo, clock};
use ferroce_wire::address::Gid;

use super::adapter::Adapter;
use super::counters::count;
use super::management::MadTransport;
use crate::drive::Links;
use crate::error::RouteError;

impl MadTransport for Adapter {
    fn addresses(&self) -> &Addresses {
        &self.port.links
    }

    fn source_index(&self, link: u8) -> u8 {
        Self::source_index(self, link)
    }

    fn route_to(&self, link: u8, destination: Gid) -> Result<Route, RouteError> {
        Self::route_to(self, link, destination)
    }

    fn mtu(&self) -> PathMtu {
        self.device.mtu().unwrap_or_default()
    }

    fn send_packet(&self, route: Route, packet: Box<[u8]>) {
        self.outbox.push(route, packet);
        self.drive();
    }

    fn forward(&self, local: SocketAddr, to: Recipient, info: &RxInfo, packet: &[u8]) -> bool {
        Self::forward(self, local, to, info, packet)
    }

    fn try_forward(&self, link: u8, to: Recipient, info: &RxInfo, packet: &[u8]) {
        let Some(link) = self.port.links.get(usize::from(link)) else { return };
        count(match link.slot.forward(to, info, packet) {
            Ok(()) => self.counters.forwarded_out(),
            Err(_) => self.counters.forward_failed(),
        });
    }

    fn wake_thread(&self) {
        self.signals.wake();
    }
}

impl Adapter {
    /// The part of the device that management may use.
    pub(crate) fn mads(&self) -> &dyn MadTransport {
        self
    }

    /// Waits until all management datagrams have been sent, so that a process can exit right after sending them. One to
    /// another process of this host may have been steered to our own socket, so the sockets are read as well and such
    /// packets are forwarded.
    ///
    /// Takes at most 100 ms: a network that accepts no packets is not waited for. The caller must not hold a lock.
    pub(crate) fn flush(&self) {
        const LONGEST: u64 = 100_000_000;
        let until = clock::now() + LONGEST;
        let wait = |is_reached: &dyn Fn() -> bool| {
            while !is_reached() && clock::now() < until {
                self.run(false, Links::All);
                std::thread::yield_now();
            }
        };
        let queued = self.outbox.queued();
        wait(&|| self.outbox.has_sent(queued));
        // A pass may already have been in progress.
        let passes = self.rx_passes.load(Ordering::Acquire) + 2;
        wait(&|| self.rx_passes.load(Ordering::Acquire) >= passes);
    }
}
