//! Address handles (AH).

use ferroce_links::route::Route;
use ferroce_proto::qp::AddressVector;

use crate::error::CreateError;
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
