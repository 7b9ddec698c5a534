//! What management needs from the device.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_links::route::Route;
use ferroce_links::udp::Addresses;
use ferroce_proto::transmit::pad;
use ferroce_sys::{Recipient, RxInfo};
use ferroce_wire::address::Gid;
use ferroce_wire::number::{PKey, Psn, QKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::transport::{Bth, Deth};

use crate::error::RouteError;

/// What management reads of the device, and how it forwards packets.
pub(crate) trait MadDevice {
    /// The links of the device.
    fn addresses(&self) -> &Addresses;

    /// The route from a link to a GID.
    fn route_to(&self, link: u8, destination: Gid) -> Result<Route, RouteError>;

    /// Forwards a packet to its owner, now or when its mailbox has space. Returns whether an owner exists.
    fn forward(&self, local: SocketAddr, to: Recipient, info: &RxInfo, packet: &[u8]) -> bool;

    /// Forwards a packet to its owner, unless its mailbox is full.
    fn try_forward(&self, link: u8, to: Recipient, info: &RxInfo, packet: &[u8]);

    /// Wakes the device thread, which runs the timers of management.
    fn wake_thread(&self);
}

/// The device, and how management sends. Management has no other access to it, so the data path can change without it.
pub(crate) trait MadTransport {
    /// The device.
    fn device(&self) -> &(dyn MadDevice + 'static);

    /// Sends a packet. Does not wait: if a thread owns the device, that thread sends it.
    fn send_packet(&self, route: Route, packet: Box<[u8]>);
}

impl Deref for dyn MadTransport + '_ {
    type Target = dyn MadDevice;

    fn deref(&self) -> &Self::Target {
        self.device()
    }
}

impl dyn MadTransport + '_ {
    /// All links, with their addresses.
    pub(super) fn links(&self) -> impl Iterator<Item = (u8, SocketAddr)> {
        (0..=u8::MAX).zip(self.addresses().iter().map(|link| link.address))
    }

    /// The address of a link.
    pub(super) fn address(&self, link: u8) -> SocketAddr {
        self.addresses()[usize::from(link)].address
    }

    /// The link with this address and port.
    pub(super) fn link_at(&self, address: SocketAddr) -> Option<u8> {
        self.links().find(|&(_, own)| own == address).map(|(link, _)| link)
    }

    /// Sends a management datagram from the QP `number` to the peer's QP of the same number.
    pub(super) fn send(
        &self,
        route: Route,
        number: Qpn,
        queue_key: QKey,
        next_psn: &AtomicU32,
        payload: &[u8],
    ) {
        let bth = Bth {
            opcode: Opcode::UD_SEND_ONLY,
            pad: pad(payload.len()),
            partition: PKey(0xffff),
            destination: number,
            psn: Psn(next_psn.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff),
            ..Bth::default()
        };
        let deth = Deth { queue_key, source: number, ..Deth::default() };
        let padding = &[0; 3][..usize::from(bth.pad)];
        let packet = [&bth.to_bytes()[..], &deth.to_bytes(), payload, padding].concat();
        self.send_packet(route, packet.into());
    }

    /// Forwards a packet to all other processes at the address. One whose mailbox is full receives the peer's retry.
    pub(super) fn forward_to_all(&self, link: u8, info: &RxInfo, packet: &[u8]) {
        let Some(link) = self.addresses().get(usize::from(link)) else { return };
        for other in link.slot.others().unwrap_or_default() {
            let _ = link.slot.forward(Recipient::Slot(other), info, packet);
        }
    }
}
