//! Receiving: which sockets and rings a pass reads.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use ferroce_sys::Uncancellable;

use super::counters::count_error;
use super::data_path::DataPath;
use super::driver::{Driver, Rx};
use crate::drive::Links;
use crate::time::now;

impl Driver {
    /// Receives and returns whether anything arrived.
    pub(super) fn receive_all(&mut self, data_path: &DataPath, links: Links) -> bool {
        let mut some = false;
        self.rx.more = false;
        if links == Links::Lively && self.rx.reads.rings_are_active() {
            self.rings.spin_for_packets();
        }
        let reading = self.rx.reads.begin(links, self.now);
        for (index, link) in data_path.port.links.iter().enumerate() {
            let Some(most) = self.rx.reads.most(reading, index) else { continue };
            let received = link.receiver.receive_up_to(&mut self.rx.batch, most);
            let count = received.unwrap_or_else(|error| {
                tracing::debug!(address = %link.address, %error, "cannot receive packets");
                let counters = &data_path.counters;
                count_error(counters.receive_failed(), counters.receive_errno(), &error);
                self.rx.broken |= error.is_fatal();
                0
            });
            self.rx.more |= self.rx.reads.received(index, count, most);
            if count == 0 {
                continue;
            }
            some = true;
            self.dispatch(data_path, link.address);
        }
        if self.receive_from_rings(data_path) {
            self.rx.reads.received_from_rings();
            some = true;
        }
        if data_path.port.groups.is_empty() || matches!(links, Links::One(_)) {
            return some;
        }
        for (socket, address) in data_path.port.groups.sockets() {
            if socket.receive(&mut self.rx.batch).is_ok_and(|count| count > 0) {
                some = true;
                self.dispatch(data_path, address);
            }
        }
        some
    }

    /// Receives packets that other processes forwarded to this one.
    pub(super) fn receive_forwarded(&mut self, data_path: &DataPath) {
        data_path.management.connections.set_forwarded(true);
        for link in data_path.port.links.iter() {
            while link.slot.receive(&mut self.rx.batch).is_ok_and(|count| count > 0) {
                let messages = self.rx.batch.len() as u64;
                data_path.counters.forwarded_in().fetch_add(messages, Ordering::Relaxed);
                self.dispatch(data_path, link.address);
            }
        }
        data_path.management.connections.set_forwarded(false);
    }

    /// Receives from all rings. Returns whether there were packets.
    fn receive_from_rings(&mut self, data_path: &DataPath) -> bool {
        let Self { rx, rings, device, clock, .. } = self;
        let received = rings.receive(device, data_path, &mut rx.datagrams, clock);
        rx.more |= received.more;
        rx.completed |= received.completed;
        if received.some {
            rx.now = received.time;
        }
        received.some
    }

    /// Handles the datagrams of the batch.
    fn dispatch(&mut self, data_path: &DataPath, local: SocketAddr) {
        let _guard = Uncancellable::new();
        let now = now();
        let Self { rx, device, .. } = self;
        let Rx { batch, datagrams, completed, .. } = rx;
        for datagram in batch.messages() {
            *completed |= datagrams.receive(device, data_path, &datagram, local, now);
        }
        rx.now = (rx.batch.len() == 1).then_some(now);
    }
}
