//! Address handles (AH), and the routes of packets.

use std::net::SocketAddr;

use ferroce_links::route::Route;
use ferroce_proto::qp::AddressVector;
use ferroce_wire::address::Gid;

use crate::device::{is_own, own_name};
use crate::engine::Adapter;
use crate::error::{CreateError, RouteError};
use crate::pd::{Membership, ProtectionDomain};

/// An address handle (AH): the route of UD packets to a host or multicast group.
///
/// ```
/// use ferroce::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (device, source_index) = Device::with_address("127.0.0.1:0".parse()?)?;
/// # let context = Context::open(&device, &Options::default())?;
/// # let pd = context.protection_domain();
/// let destination = device.gids()[usize::from(source_index)].gid;
/// let vector = AddressVector { port: 1, source_index, destination, ..Default::default() };
/// let handle = pd.address_handle(&vector)?;
/// // A datagram names the handle, and the QPN and Q_Key of the receiving queue pair: see `UdSendRequest`.
/// assert_eq!(handle.vector().destination, destination);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_ah")]
pub struct AddressHandle {
    membership: Membership,
    pub(crate) route: Route,
    vector: AddressVector,
}

impl ProtectionDomain {
    /// Creates an address handle.
    ///
    /// # Errors
    ///
    /// When the source is not in the GID table, or of another address family than the destination.
    #[doc(alias = "ibv_create_ah")]
    pub fn address_handle(&self, vector: &AddressVector) -> Result<AddressHandle, CreateError> {
        let route = self.context().adapter().route(vector)?;
        Ok(AddressHandle { membership: self.join(), route, vector: *vector })
    }
}

impl AddressHandle {
    /// Returns the address vector it was created from.
    pub fn vector(&self) -> &AddressVector {
        &self.vector
    }

    /// Whether it belongs to this PD.
    pub fn is_in(&self, pd: &ProtectionDomain) -> bool {
        std::sync::Arc::ptr_eq(&self.membership.0, &pd.shared)
    }
}

impl Adapter {
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
