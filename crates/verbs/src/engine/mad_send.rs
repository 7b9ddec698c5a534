//! Management datagrams of threads that need not own the device: sent at once.

use std::sync::atomic::Ordering;

use ferroce_links::route::Route;
use ferroce_sys::clock;

use super::adapter::Adapter;
use super::management::{CmLink, MadDevice, MadTransport};
use crate::drive::Links;

/// What is queued is sent at once, by this thread or the one that owns the device.
impl MadTransport for Adapter {
    fn device(&self) -> &(dyn MadDevice + 'static) {
        &self.data_path
    }

    fn send_packet(&self, route: Route, packet: Box<[u8]>) {
        self.data_path.send_packet(route, packet);
        self.drive();
    }
}

impl Adapter {
    /// The part of the device that management may use.
    pub(crate) fn mads(&self) -> &dyn MadTransport {
        self
    }

    /// The connection manager of a link.
    pub(crate) fn cm_link(&self, index: u8) -> CmLink<'_> {
        CmLink { connections: &self.management.connections, transport: self, index }
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
