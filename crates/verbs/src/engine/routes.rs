//! The routes of packets: by address vector, and of management datagrams.

use std::net::SocketAddr;

use ferroce_links::route::Route;
use ferroce_proto::qp::AddressVector;
use ferroce_wire::address::Gid;

use super::data_path::DataPath;
use crate::device::{is_own, own_name};
use crate::error::RouteError;

impl DataPath {
    /// Returns the route of an address vector, without an ECN codepoint: QPs with congestion control set it.
    ///
    /// A loopback destination is this host, whatever the source GID. Packets are sent from the device's loopback address
    /// or, where another device carries the loopback addresses, from the source address to itself.
    pub(crate) fn route(&self, vector: &AddressVector) -> Result<Route, RouteError> {
        let source = usize::from(vector.source_index);
        if source >= self.device.gids().len() {
            let (index, entries) = (vector.source_index, self.device.gids().len());
            return Err(RouteError::NoSuchGid { index, entries });
        }
        let destination = own_name(vector.destination.to_ip());
        let own = self.port.links[source].address.ip();
        let toward = |ip| AddressVector { destination: Gid::from_ip(ip), ..*vector };
        if !destination.is_loopback() || own.is_loopback() {
            return self.route_from(vector.source_index, &toward(destination));
        }
        match self.port.links.loopback(destination.is_ipv4()) {
            Some(link) => self.route_from(link, &toward(destination)),
            None => self.route_from(vector.source_index, &toward(own)),
        }
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
        if link.address.ip().is_loopback() && leaves_host(destination) {
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

    /// Returns the route of management packets from a link to a GID.
    pub(crate) fn route_to(&self, link: u8, destination: Gid) -> Result<Route, RouteError> {
        let link = self.port.links.toward(link, destination.to_ip());
        self.route_from(link, &AddressVector { destination, ..AddressVector::default() })
    }
}

/// Whether packets to this address leave the host. Multicast stays on the loopback interface.
fn leaves_host(destination: SocketAddr) -> bool {
    let ip = destination.ip();
    !ip.is_loopback() && !ip.is_multicast() && !is_own(destination)
}
