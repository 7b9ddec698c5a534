//! Where packets go: routes by address vector and of management datagrams, and forwarding to the process that owns a packet (see
//! [`ferroce_links::udp::Forwarding`]).

use std::net::SocketAddr;

use ferroce_device::forwarding::Forwarded;
use ferroce_links::route::Route;
use ferroce_links::udp::Addresses;
use ferroce_proto::qp::AddressVector;
use ferroce_sys::{Error, Recipient, RxInfo};
use ferroce_wire::address::Gid;

use super::counters::count;
use super::data_path::DataPath;
use super::management::{MadDevice, MadTransport};
use crate::device::{is_own, own_name};
use crate::error::RouteError;

impl DataPath {
    /// Returns the route of an address vector, without an ECN codepoint: QPs with congestion control set it.
    ///
    /// A loopback destination is this host, whatever the source GID. Packets are sent from the device's loopback address
    /// or, where another device carries the loopback addresses, from the source address to itself.
    pub(crate) fn route(&self, vector: &AddressVector) -> Result<Route, RouteError> {
        let (index, entries) = (vector.source_index, self.device.gids().len());
        if usize::from(index) >= entries {
            return Err(RouteError::NoSuchGid { index, entries });
        }
        let destination = own_name(vector.destination.to_ip());
        let own = self.port.links[usize::from(index)].address.ip();
        let loopback = || self.port.links.loopback(destination.is_ipv4());
        let (link, destination) = match destination.is_loopback() && !own.is_loopback() {
            true => loopback().map_or((index, own), |link| (link, destination)),
            false => (index, destination),
        };
        self.route_from(link, &AddressVector { destination: Gid::from_ip(destination), ..*vector })
    }

    /// Returns the route from a link.
    fn route_from(&self, index: u8, vector: &AddressVector) -> Result<Route, RouteError> {
        let link = self.port.links.get(usize::from(index));
        let entries = self.port.links.len();
        let link = link.ok_or(RouteError::NoSuchGid { index, entries })?;
        let mut destination = SocketAddr::new(vector.destination.to_ip(), self.options.port);
        if destination.is_ipv4() != link.address.is_ipv4() {
            return Err(RouteError::AddressFamily);
        }
        let ip = destination.ip();
        // Multicast stays on the loopback interface.
        let stays = || ip.is_loopback() || ip.is_multicast() || is_own(destination);
        if link.address.ip().is_loopback() && !stays() {
            return Err(RouteError::LoopbackSource);
        }
        if let SocketAddr::V6(address) = &mut destination {
            if address.ip().is_unicast_link_local() || address.ip().is_multicast() {
                address.set_scope_id(self.device.interface().index);
            }
        }
        Ok(Route {
            link: index,
            sender: 0,
            flow_label: vector.flow_label,
            destination,
            traffic_class: vector.traffic_class & !3,
            hop_limit: Some(vector.hop_limit).filter(|&hops| hops > 0),
        })
    }

    /// The GID index that represents a link.
    ///
    /// A loopback link outside the GID table uses the index of an address of its family, or 0: [`DataPath::route`] then
    /// chooses by destination.
    pub(crate) fn source_index(&self, link: u8) -> u8 {
        let gids = self.device.gids();
        if usize::from(link) < gids.len() {
            return link;
        }
        let links = &self.port.links;
        let ipv4 = links.get(usize::from(link)).is_some_and(|link| link.address.is_ipv4());
        let family = gids.iter().position(|entry| entry.address.is_ipv4() == ipv4);
        family.and_then(|index| u8::try_from(index).ok()).unwrap_or(0)
    }

    /// Retries the queued packets.
    pub(crate) fn retry_forwarding(&self) {
        self.forwarding.retry(&self.port.links, |answer| self.count_forwarded(answer.is_ok()));
    }

    fn count_forwarded(&self, sent: bool) {
        count(if sent { self.counters.forwarded_out() } else { self.counters.forward_failed() });
    }
}

impl MadDevice for DataPath {
    fn addresses(&self) -> &Addresses {
        &self.port.links
    }

    fn route_to(&self, link: u8, destination: Gid) -> Result<Route, RouteError> {
        let link = self.port.links.toward(link, destination.to_ip());
        self.route_from(link, &AddressVector { destination, ..AddressVector::default() })
    }

    fn forward(&self, local: SocketAddr, to: Recipient, info: &RxInfo, packet: &[u8]) -> bool {
        let forwarded = self.forwarding.forward(&self.port.links, local, to, info, packet);
        if !matches!(forwarded, Forwarded::Queued) {
            self.count_forwarded(matches!(forwarded, Forwarded::Sent(Ok(()))));
        }
        !matches!(forwarded, Forwarded::Sent(Err(Error::NoOwner)))
    }

    fn try_forward(&self, link: u8, to: Recipient, info: &RxInfo, packet: &[u8]) {
        let Some(link) = self.port.links.get(usize::from(link)) else { return };
        self.count_forwarded(link.slot.forward(to, info, packet).is_ok());
    }

    fn wake_thread(&self) {
        self.signals.wake();
    }
}

/// Within a pass: what is queued is sent at its end.
impl MadTransport for DataPath {
    fn device(&self) -> &(dyn MadDevice + 'static) {
        self
    }

    fn send_packet(&self, route: Route, packet: Box<[u8]>) {
        self.outbox.push(route, packet);
    }
}
