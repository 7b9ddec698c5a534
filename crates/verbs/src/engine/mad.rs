//! Queueing and forwarding management datagrams: what management needs from the device.

use std::net::SocketAddr;

use ferroce_links::route::Route;
use ferroce_links::udp::Addresses;
use ferroce_proto::qp::PathMtu;
use ferroce_sys::{Recipient, RxInfo};
use ferroce_wire::address::Gid;

use super::counters::count;
use super::data_path::DataPath;
use super::management::MadTransport;
use crate::error::RouteError;

/// Within a pass: what is queued is sent at its end.
impl MadTransport for DataPath {
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
