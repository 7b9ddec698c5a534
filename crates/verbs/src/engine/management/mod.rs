//! Management datagrams: QP 1 (connection manager) and QP 2 (set-up exchange). No process owns these QPNs: a process
//! that receives such a packet finds its owner.

mod connections;
mod exchanges;
mod ledger;
mod neighbours;
mod services;

use std::net::SocketAddr;

use ferroce_proto::transmit::pad;
use ferroce_wire::number::{PKey, Psn, QKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::transport::{Bth, Deth};

use super::{Adapter, ReceivedPacket, Route};
use crate::device::Device;

pub(crate) use connections::{CmEventHandler, Connections, MANAGEMENT, Manager, QUEUE_KEY};
pub(crate) use exchanges::Exchanges;
use ferroce_sys::random::number as random;
pub(crate) use ledger::{RECORD_LEN as LEDGER_RECORD_LEN, parse as parse_ledger_record};
use neighbours::Neighbours;

#[derive(Debug)]
pub(crate) struct Management {
    pub(crate) connections: Connections,
    pub(crate) exchanges: Exchanges,
    pub(crate) neighbours: Neighbours,
}

impl Management {
    pub(crate) fn new(slot: u8, device: &Device) -> Self {
        Self {
            connections: Connections::new(slot, device),
            exchanges: Exchanges::new(slot, device),
            neighbours: Neighbours::new(),
        }
    }

    /// Handles a packet for QP 1 or 2 and returns whether it belongs to this process. The caller owns the device, so
    /// nothing here may wait for it; responses are queued with [`Adapter::send_packet`].
    pub(crate) fn handle(
        &self,
        adapter: &Adapter,
        local: SocketAddr,
        one: &ReceivedPacket<'_>,
    ) -> bool {
        match one.packet.bth.destination {
            Qpn(1) => self.connections.handle(adapter, local, one),
            Qpn(2) => self.exchanges.handle(adapter, local, one),
            _ => true,
        }
    }

    /// Runs expired timers. Called by the device thread before it sleeps and after it wakes up.
    pub(crate) fn run(&self, adapter: &Adapter) {
        self.connections.run(adapter);
        self.exchanges.run(adapter);
    }

    /// When [`Management::run`] is due, in nanoseconds of the monotonic clock. A thread that makes it earlier wakes the
    /// device thread (`adapter.signals.wake()`).
    pub(crate) fn next_timer(&self) -> u64 {
        let timers = self.connections.next_timer().min(self.exchanges.next_timer());
        timers.min(self.neighbours.next_timer())
    }
}

impl Adapter {
    /// Sends a management datagram from the QP `number` to the peer's QP of the same number.
    pub(crate) fn send_management(
        &self,
        route: Route,
        number: Qpn,
        queue_key: QKey,
        psn: Psn,
        payload: &[u8],
    ) {
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
        self.send_packet(route, packet.into());
    }
}
