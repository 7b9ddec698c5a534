//! Multicast groups. RoCEv2 has no subnet administration to ask: a group is IP's, and joining is local.

use std::net::IpAddr;

use ferroce_proto::qp::AddressVector;
use ferroce_wire::address::Gid;
use ferroce_wire::number::Qpn;

use super::event::{DatagramPeer, EventKind, Group};
use super::id::CmId;
use crate::error::CmError as Error;

impl CmId {
    /// Joins a multicast group: the id's queue pair receives what is sent to it. [`EventKind::MulticastJoined`] or
    /// [`EventKind::MulticastError`] follows. Without a queue pair of the id's, the program attaches its own.
    ///
    /// # Errors
    ///
    /// When the device is not known yet, or the address is not that of a group.
    #[doc(alias = "rdma_join_multicast")]
    pub fn join_multicast(&self, group: IpAddr) -> Result<(), Error> {
        let mut state = self.state();
        let place = state.place()?;
        if !group.is_multicast() {
            return Err(Error::NotMulticast);
        }
        let gid = Gid::from_ip(group);
        let attached = state.queue_pair.as_ref().map_or(Ok(()), |one| one.attach(gid));
        if let Err(error) = attached {
            self.shared().raise(EventKind::MulticastError(error.into()));
            return Ok(());
        }
        if !state.groups.contains(&gid) {
            state.groups.push(gid);
        }
        let address = AddressVector {
            port: 1,
            source_index: place.source_index(),
            destination: gid,
            traffic_class: state.traffic_class,
            // As the kernel does for RoCE v2: 1 would end at the first router.
            hop_limit: 64,
            ..AddressVector::default()
        };
        let queue_key = super::DATAGRAM_QUEUE_KEY;
        let peer = DatagramPeer { queue_pair: Qpn::MULTICAST, queue_key, address };
        self.shared().raise(EventKind::MulticastJoined(Group { gid, peer }));
        Ok(())
    }

    /// Leaves a multicast group, and says whether the id was in it.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: IpAddr) -> bool {
        let mut state = self.state();
        let gid = Gid::from_ip(group);
        let was = state.groups.contains(&gid);
        state.groups.retain(|one| *one != gid);
        if let (true, Some(queue_pair)) = (was, &state.queue_pair) {
            queue_pair.detach(gid);
        }
        was
    }
}
