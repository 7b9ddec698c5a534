//! What only the owner of a device uses: the device core, and the state of its links. Which sockets and rings a pass reads.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::Device;
use ferroce_links::ring::RingReceiver;
use ferroce_links::udp::{DatagramReceiver, TxBatch};
use ferroce_proto::time::Instant;
use ferroce_sys::clock::FastClock;
use ferroce_sys::{ReceiveBatch, Uncancellable};

use super::counters::count_error;
use super::data_path::DataPath;
use super::queue_pair::Core;
use crate::drive::{Deferral, LinkReads, Links};
use crate::time;

/// The state of receiving.
#[derive(Debug)]
pub(super) struct Rx {
    pub(super) batch: ReceiveBatch,
    pub(super) reads: LinkReads,
    pub(super) datagrams: DatagramReceiver,
    /// The last pass found packets in a socket.
    pub(super) received: bool,
    /// A socket may have more packets than were received.
    pub(super) more: bool,
    /// The time of the last packets, if there were few: not much later than now.
    pub(super) now: Option<Instant>,
    /// Completions were published since this was last reset.
    pub(super) completed: bool,
    /// A socket is gone.
    pub(super) broken: bool,
}

/// State that only the owner of the device uses.
pub(crate) struct Driver {
    pub(super) rx: Rx,
    pub(super) tx: TxBatch,
    pub(super) device: Device<DataPath>,
    pub(super) rings: RingReceiver,
    pub(super) deferral: Deferral,
    pub(super) clock: FastClock,
    /// The time after the last pass received.
    pub(super) now: Instant,
    /// When a polling thread last found something to do.
    pub(super) busy_at: Instant,
}

impl Driver {
    pub(super) fn new(data_path: &DataPath) -> Self {
        let links = &data_path.port.links;
        let rx = Rx {
            batch: ReceiveBatch::for_socket(&links[0].receiver),
            reads: LinkReads::new(links.len()),
            datagrams: DatagramReceiver::new(data_path.options.faults),
            received: false,
            more: false,
            now: None,
            completed: false,
            broken: false,
        };
        Self {
            rx,
            tx: TxBatch::default(),
            device: Device::new(links.receive_share(), links.slot()),
            rings: RingReceiver::default(),
            deferral: Deferral::default(),
            clock: FastClock::new(),
            now: Instant::ZERO,
            busy_at: Instant::ZERO,
        }
    }

    /// Whether unblocked packets are left to send.
    pub(super) fn has_backlog(&self) -> bool {
        self.device.schedule.has_ready() && self.tx.blocked_route().is_none()
    }

    /// The current time on the clock of the transports.
    #[inline]
    pub(super) fn read_clock(&mut self) -> Instant {
        Instant::from_nanos(self.clock.now())
    }

    /// Whether there may be anything for [`Driver::transmit_all`] to do. Most passes find packets or nothing, and have nothing to
    /// send.
    #[inline]
    pub(super) fn may_transmit(&self, data_path: &DataPath) -> bool {
        self.device.schedule.has_ready()
            || data_path.tables.posted.has_some()
            || self.tx.is_in_use()
            || data_path.outbox.queued() != self.tx.own_taken
    }

    /// Called when the program makes a call.
    pub(super) fn called(&mut self) {
        if self.device.schedule.owes_acks() {
            self.deferral.in_time();
        }
    }

    /// Removes a destroyed QP.
    pub(super) fn forget(&mut self, data_path: &DataPath, core: &Arc<Core>) {
        let mut inner = core.inner.lock();
        inner.peer_info = None;
        self.tx.discard(&data_path.port.links, core.number);
        self.device.forget(core, &mut inner);
    }

    /// Transmits queued packets, about `most` of them, and returns whether there were any. The rest stays queued.
    pub(super) fn transmit_all(&mut self, data_path: &DataPath, now: Instant, most: usize) -> bool {
        self.device.transmit_all(&mut self.tx, data_path, now, most)
    }

    /// Receives and returns whether anything arrived.
    pub(super) fn receive_all(&mut self, data_path: &DataPath, links: Links) -> bool {
        let mut some = false;
        self.rx.more = false;
        if links == Links::Lively && self.rx.reads.rings_are_active() {
            self.rings.spin_for_packets();
        }
        self.rx.reads.begin(links, self.now);
        for (index, link) in data_path.port.links.iter().enumerate() {
            let Some(most) = self.rx.reads.most(links, index) else { continue };
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
        let now = time::now();
        let Self { rx, device, .. } = self;
        let Rx { batch, datagrams, completed, .. } = rx;
        for datagram in batch.messages() {
            *completed |= datagrams.receive(device, data_path, &datagram, local, now);
        }
        rx.now = (rx.batch.len() == 1).then_some(now);
    }
}
