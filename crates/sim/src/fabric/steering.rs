//! Addresses that several hosts share, as the processes of a machine do: which of them receives a frame.

use std::net::IpAddr;

use super::{AddressInUse, Fabric};
use crate::event_log::EventLog;
use crate::header;
use crate::host::{Host, HostId};
use crate::probability::Probability;

/// The hosts of an address that several share, each with its slot: the upper 8 bits of its QPNs.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<(u8, HostId)>);

impl<H: Host, T: EventLog> Fabric<H, T> {
    /// Adds a host that shares its address with others: a process of a machine. The switch sends a frame to the host whose
    /// slot is the upper 8 bits of the destination QPN, except for a share of frames
    /// ([`Settings::missteering`](crate::Settings::missteering)) and those that no host of the address is meant by: these go
    /// to any of the hosts that are up.
    pub fn add_process(
        &mut self,
        host: H,
        address: IpAddr,
        slot: u8,
    ) -> Result<HostId, AddressInUse> {
        let address = address.to_canonical();
        if let Some(&host) = self.routes.get(&address) {
            if !self.machines.contains_key(&address) {
                return Err(AddressInUse { address, host });
            }
        }
        let id = self.insert_host(host, &[address]);
        self.routes.insert(address, id);
        self.machines.entry(address).or_default().0.push((slot, id));
        Ok(id)
    }

    /// Returns the host that receives a frame to this address, which several may share.
    pub(super) fn steer(&mut self, address: IpAddr, frame: &[u8]) -> Option<HostId> {
        let Some(Members(members)) = self.machines.get(&address) else {
            return self.routes.get(&address).copied();
        };
        let is_up = |id: &HostId| self.hosts[id.index()].host.is_some();
        let is_missteered =
            self.missteering != Probability::NEVER && self.steering.chance(self.missteering);
        let slot = header::queue_pair(frame).map(|number| (number >> 16) as u8);
        let owner = members.iter().find(|(one, _)| Some(*one) == slot).map(|(_, id)| *id);
        if let Some(owner) = owner.filter(|id| !is_missteered && is_up(id)) {
            return Some(owner);
        }
        let up: Vec<HostId> = members.iter().map(|(_, id)| *id).filter(is_up).collect();
        // If all are down, the frame is dropped where it arrives.
        self.steering.choose(&up).copied().or_else(|| members.first().map(|(_, id)| *id))
    }
}
