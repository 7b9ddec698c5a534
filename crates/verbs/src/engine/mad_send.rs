//! Management datagrams of threads that need not own the device: sent at once.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use ferroce_links::route::Route;
use ferroce_links::udp::Addresses;
use ferroce_proto::qp::PathMtu;
use ferroce_sys::{Recipient, RxInfo, clock};
use ferroce_wire::address::Gid;

use super::adapter::Adapter;
use super::management::MadTransport;
use crate::drive::Links;
use crate::error::RouteError;

/// As that of the data path, but what is queued is sent at once, by this thread or the one that owns the device.
impl MadTransport for Adapter {
    fn addresses(&self) -> &Addresses {
        self.data_path.addresses()
    }

    fn source_index(&self, link: u8) -> u8 {
        self.data_path.source_index(link)
    }

    fn route_to(&self, link: u8, destination: Gid) -> Result<Route, RouteError> {
        self.data_path.route_to(link, destination)
    }

    fn mtu(&self) -> PathMtu {
        self.data_path.mtu()
    }

    fn send_packet(&self, route: Route, packet: Box<[u8]>) {
        self.data_path.send_packet(route, packet);
        self.drive();
    }

    fn forward(&self, local: SocketAddr, to: Recipient, info: &RxInfo, packet: &[u8]) -> bool {
        self.data_path.forward(local, to, info, packet)
    }

    fn try_forward(&self, link: u8, to: Recipient, info: &RxInfo, packet: &[u8]) {
        self.data_path.try_forward(link, to, info, packet);
    }

    fn wake_thread(&self) {
        self.data_path.wake_thread();
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
