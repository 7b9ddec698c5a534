//! Drives a device: receiving, timers and transmission. Which thread does is decided in [`super::pass`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::Device;
use ferroce_device::tuning::passes::{MAX_RX_BEFORE_TIMERS, PACKETS_PER_PASS};
use ferroce_links::faults::Faults;
use ferroce_links::ring::RingReceiver;
use ferroce_links::udp::TxBatch;
use ferroce_proto::time::Instant;
use ferroce_sys::Uncancellable;
use ferroce_sys::clock::FastClock;

use super::data_path::DataPath;
use super::port::Port;
use super::queue_pair::Core;
use super::rx::Rx;
use crate::drive::{Deferral, Links};

/// State that only the owner of the device uses.
#[derive(Debug)]
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
    pub(super) fn new(port: &Port, faults: Option<Faults>) -> Self {
        Self {
            rx: Rx::new(&port.links, faults),
            tx: TxBatch::default(),
            device: Device::new(port.links.receive_share(), port.links.slot()),
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
            || data_path.posted.has_some()
            || self.tx.is_in_use()
            || data_path.outbox.queued() != self.tx.taken()
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

    /// Sends the remaining packets of a QP. Returns false if a send buffer is full.
    pub(super) fn send_remaining(
        &mut self,
        data_path: &DataPath,
        core: &Arc<Core>,
        now: Instant,
    ) -> bool {
        if !self.tx.flush(data_path) {
            return false;
        }
        self.device.turn(&mut self.tx, data_path, core, &mut core.inner.lock(), now);
        self.tx.flush(data_path)
    }

    /// Receives, runs timers and transmits. Returns whether anything was received or sent, so that there may be more.
    ///
    /// With `defer`, ACKs of packets that completed something are deferred: the program is waiting for the completion,
    /// and its next post or poll sends them.
    pub(super) fn pass(&mut self, data_path: &DataPath, links: Links, defer: bool) -> bool {
        self.device.schedule.release_owed();
        self.rx.completed = false;
        self.rx.now = None;
        let mut received = self.receive_all(data_path, links);
        self.rx.received = received;
        data_path.retry_forwarding();
        if links == Links::All {
            data_path.rx_passes.fetch_add(1, Ordering::Release);
        }
        let mut now = match self.rx.now {
            Some(now) => now,
            None => self.read_clock(),
        };
        if self.device.next_timer().is_some_and(|time| time <= now) {
            let _guard = Uncancellable::new();
            // This thread may be late: the response may already be in the socket buffer.
            self.receive_forwarded(data_path);
            for _ in 0..MAX_RX_BEFORE_TIMERS {
                if !self.receive_all(data_path, Links::All) {
                    break;
                }
                received = true;
            }
            now = self.read_clock();
            // Polling threads run timers as well: the device thread might never acquire the device between two polls.
            self.rx.completed |= self.device.run_timers(data_path, now);
        }
        let defer = defer && self.deferral.allows();
        if !(defer && self.rx.completed) {
            self.device.schedule.release_owed();
            if self.rx.completed {
                self.deferral.sent_at_once();
            }
        }
        self.now = now;
        let sent =
            self.may_transmit(data_path) && self.transmit_all(data_path, now, PACKETS_PER_PASS);
        received || sent
    }
}
