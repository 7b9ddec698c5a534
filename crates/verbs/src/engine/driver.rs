//! What only the owner of a device uses: the device core, and the state of its links.

use std::sync::Arc;

use ferroce_device::{Device, Link as _};
use ferroce_links::faults::Faults;
use ferroce_links::ring::RingReceiver;
use ferroce_links::udp::{Address, DatagramReceiver, TxBatch};
use ferroce_proto::time::Instant;
use ferroce_sys::ReceiveBatch;
use ferroce_sys::clock::FastClock;

use super::data_path::DataPath;
use super::port::Port;
use super::queue_pair::Core;
use crate::drive::{Deferral, LinkReads};

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

impl Rx {
    fn new(links: &[Address], faults: Option<Faults>) -> Self {
        Self {
            batch: ReceiveBatch::for_socket(&links[0].receiver),
            reads: LinkReads::new(links.len()),
            datagrams: DatagramReceiver::new(faults),
            received: false,
            more: false,
            now: None,
            completed: false,
            broken: false,
        }
    }
}

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
}
