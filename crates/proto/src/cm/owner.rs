//! Which process a message belongs to, where several share an address: each has a manager of its own, and its communication
//! IDs begin with its slot.

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CmMessage, CommId, ServiceId};
use ferroce_wire::mad::Mad;

use super::ConnectionManager;

/// The process that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This process, or none.
    Us,
    /// The process with this slot, if there is one.
    Slot(u8),
    /// The process that listens for this service, if there is one.
    Service(ServiceId),
    /// Any other process: a peer that gives up before it knows our communication ID sends only its own.
    Unnamed,
}

impl ConnectionManager {
    /// Finds the process that the payload of a datagram to QP 1 belongs to. `is_forwarded`: another process has handed it over,
    /// which is done once. `is_served`: whether this process has the service.
    pub fn owner(
        &self,
        from: Gid,
        payload: &[u8],
        is_forwarded: bool,
        is_served: impl FnOnce(ServiceId) -> bool,
    ) -> Owner {
        let Ok(mad) = Mad::parse(payload) else { return Owner::Us };
        let Ok(message) = CmMessage::from_mad(&mad) else { return Owner::Us };
        if self.concerns(from, mad.header.transaction, &message) {
            return Owner::Us;
        }
        match (&message, message.service_id(), message.remote_comm_id()) {
            (CmMessage::Req(_) | CmMessage::SidrReq(_), Some(service), _) => {
                if is_served(service) {
                    Owner::Us
                } else {
                    Owner::Service(service)
                }
            }
            (CmMessage::Rej(_), _, Some(CommId(0))) if !is_forwarded => Owner::Unnamed,
            (_, _, Some(CommId(id))) if id != 0 => {
                let slot = (id >> 24) as u8;
                if Some(slot) == self.config.slot { Owner::Us } else { Owner::Slot(slot) }
            }
            _ => Owner::Us,
        }
    }
}
