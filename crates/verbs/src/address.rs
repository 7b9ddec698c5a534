//! Where datagrams go.

use std::net::SocketAddr;

use ferroce_proto::qp::AddressVector;
use ferroce_wire::address::Gid;

use crate::domain::{Membership, ProtectionDomain};
use crate::engine::{Adapter, Route};
use crate::error::Error;

/// A way to a host or a group, for datagrams.
#[derive(Debug)]
pub struct AddressHandle {
    membership: Membership,
    pub(crate) route: Route,
    vector: AddressVector,
}

impl ProtectionDomain {
    /// A way to a host or a group.
    ///
    /// # Errors
    ///
    /// When the source is not in the device's GID table, or of another address family.
    #[doc(alias = "ibv_create_ah")]
    pub fn address_handle(&self, vector: &AddressVector) -> Result<AddressHandle, Error> {
        let route = self.context().adapter().route(vector)?;
        Ok(AddressHandle { membership: self.join(), route, vector: *vector })
    }
}

impl AddressHandle {
    /// Where it leads.
    pub fn vector(&self) -> &AddressVector {
        &self.vector
    }

    /// Whether it was made in this domain.
    pub fn is_in(&self, domain: &ProtectionDomain) -> bool {
        std::sync::Arc::ptr_eq(&self.membership.0, &domain.shared)
    }
}

impl Adapter {
    /// The way that an address vector says. Not ECN-capable: whoever slows down when packets are marked sets that.
    pub(crate) fn route(&self, vector: &AddressVector) -> Result<Route, Error> {
        let index = usize::from(vector.source_index);
        let link = self.links.get(index).ok_or(Error::Invalid("there is no such source GID"))?;
        let mut destination = SocketAddr::new(vector.destination.to_ip(), self.options.port);
        if destination.is_ipv4() != link.address.is_ipv4() {
            return Err(Error::Invalid("source and destination are of different address families"));
        }
        if let SocketAddr::V6(address) = &mut destination {
            let link_local = address.ip().segments()[0] & 0xffc0 == 0xfe80;
            if link_local || address.ip().is_multicast() {
                address.set_scope_id(self.device.interface().index);
            }
        }
        Ok(Route {
            link: vector.source_index,
            sender: 0,
            flow_label: vector.flow_label,
            destination,
            traffic_class: vector.traffic_class & !3,
            hop_limit: Some(vector.hop_limit).filter(|&hops| hops > 0),
        })
    }

    /// The way to a GID from one of ours, as management takes it.
    pub(crate) fn route_to(&self, link: u8, destination: Gid) -> Result<Route, Error> {
        let vector = AddressVector { source_index: link, destination, ..AddressVector::default() };
        self.route(&vector)
    }
}
