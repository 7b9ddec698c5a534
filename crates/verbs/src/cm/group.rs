//! Multicast groups. RoCEv2 has no subnet administrator: a group is an IP multicast group, and joining is local.

use std::net::IpAddr;

use ferroce_proto::qp::AddressVector;
use ferroce_wire::address::Gid;
use ferroce_wire::number::Qpn;

use super::event::{DatagramPeer, EventKind, Group};
use super::id::CmId;
use crate::error::CmError as Error;

impl CmId {
    /// Joins a multicast group: attaches the QP of the cm_id. [`EventKind::MulticastJoined`] or
    /// [`EventKind::MulticastError`] follows. If the cm_id has no QP, the program attaches its own.
    ///
    /// # Errors
    ///
    /// When the cm_id has no device yet, or the address is not a multicast address.
    #[doc(alias = "rdma_join_multicast")]
    pub fn join_multicast(&self, group: IpAddr) -> Result<(), Error> {
        let mut state = self.state();
        let local_link = state.local_link()?;
        if !group.is_multicast() {
            return Err(Error::NotMulticast);
        }
        let gid = Gid::from_ip(group);
        let attached =
            state.queue_pair.as_ref().map_or(Ok(()), |queue_pair| queue_pair.attach(gid));
        if let Err(error) = attached {
            self.shared().raise(EventKind::MulticastError(error.into()));
            return Ok(());
        }
        if !state.groups.contains(&gid) {
            state.groups.push(gid);
        }
        let address = AddressVector {
            port: 1,
            source_index: local_link.source_index(),
            destination: gid,
            traffic_class: state.traffic_class,
            // As the kernel for RoCEv2: a hop limit of 1 would end at the first router.
            hop_limit: 64,
            ..AddressVector::default()
        };
        let queue_key = super::DATAGRAM_QUEUE_KEY;
        let peer = DatagramPeer { queue_pair: Qpn::MULTICAST, queue_key, address };
        self.shared().raise(EventKind::MulticastJoined(Group { gid, peer }));
        Ok(())
    }

    /// Leaves a multicast group. Returns whether the cm_id was a member.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: IpAddr) -> bool {
        let mut state = self.state();
        let gid = Gid::from_ip(group);
        let member = state.groups.contains(&gid);
        state.groups.retain(|group| *group != gid);
        if let (true, Some(queue_pair)) = (member, &state.queue_pair) {
            queue_pair.detach(gid);
        }
        member
    }
}
