//! Management datagrams: QP 1 (connection manager) and QP 2 (set-up exchange). No process owns these QPNs: a process
//! that receives such a packet finds its owner.

mod connections;
mod exchanges;
mod ledger;
mod neighbours;
mod services;
mod transport;
mod unserved;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_links::packet::ReceivedPacket;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::setup;

use crate::device::Device;

use connections::QUEUE_KEY;
pub(crate) use connections::{CmEventHandler, CmLink, Connections, MANAGEMENT, Manager};
pub(crate) use exchanges::{Exchanges, Machine};
pub(crate) use ledger::{RECORD_LEN as LEDGER_RECORD_LEN, parse as parse_ledger_record};
use neighbours::Neighbours;
use services::Services;
pub(crate) use transport::{MadDevice, MadTransport};

#[derive(Debug)]
pub(crate) struct Management {
    pub(crate) connections: Connections,
    pub(crate) exchanges: Exchanges,
    pub(crate) neighbours: Neighbours,
}

impl Management {
    pub(crate) fn new(slot: u8, device: &Device) -> Self {
        let services = Arc::new(Services::new(slot));
        Self {
            connections: Connections::new(device, Arc::clone(&services)),
            exchanges: Exchanges::new(services),
            neighbours: Neighbours::new(),
        }
    }

    /// Handles a packet for QP 1 or 2 and returns whether it belongs to this process. The caller owns the device, so
    /// nothing here may wait for it; responses are queued with [`MadTransport::send`].
    pub(crate) fn handle(
        &self,
        transport: &dyn MadTransport,
        local: SocketAddr,
        one: &ReceivedPacket<'_>,
    ) -> bool {
        let (bth, deth) = (&one.packet.bth, one.packet.extensions.deth);
        let Some(deth) = deth.filter(|_| bth.opcode == Opcode::UD_SEND_ONLY) else { return true };
        match (bth.destination, deth.queue_key) {
            (MANAGEMENT, QUEUE_KEY) => self.connections.handle(transport, local, one),
            (setup::QUEUE_PAIR, setup::QUEUE_KEY) if deth.source == setup::QUEUE_PAIR => {
                self.exchanges.handle(transport, local, one)
            }
            _ => true,
        }
    }

    /// Runs expired timers. Called by the device thread before it sleeps and after it wakes up.
    pub(crate) fn run(&self, transport: &dyn MadTransport) {
        self.connections.run(transport);
        self.exchanges.run(transport);
    }

    /// When [`Management::run`] is due, in nanoseconds of the monotonic clock. A thread that makes it earlier wakes the
    /// device thread ([`MadDevice::wake_thread`]).
    pub(crate) fn next_timer(&self) -> u64 {
        let timers = [&self.connections.next, &self.exchanges.next, &self.neighbours.next];
        timers.map(|next| next.load(Ordering::SeqCst)).into_iter().min().unwrap_or(u64::MAX)
    }
}
