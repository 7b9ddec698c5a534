//! The QP of a cm_id, and its multicast groups. RoCEv2 has no subnet administrator: a group is an IP multicast group, and
//! joining is local.

use std::net::IpAddr;
use std::sync::Arc;

use ferroce_proto::qp::{self, AddressVector, QueuePairAttributes, ServiceType};
use ferroce_wire::address::Gid;
use ferroce_wire::number::Qpn;
use ferroce_wire::rdmacm::PortSpace;

use super::attributes;
use super::id::{CmId, EventKind};
use super::parameters::{DatagramPeer, Group};
use crate::error::{CmError as Error, MulticastError};
use crate::pd::ProtectionDomain;
use crate::queue_pair::{QueuePair, QueuePairOptions};

impl CmId {
    /// Creates a QP for the connection, in INIT: receives can be posted. The cm_id brings it to RTS when the connection is
    /// established; a UD QP is in RTS at once.
    ///
    /// # Errors
    ///
    /// When the cm_id has a QP, or no device, or the PD belongs to another device; and as [`ProtectionDomain::queue_pair`].
    #[doc(alias = "rdma_create_qp")]
    pub fn create_queue_pair(
        &self,
        pd: &ProtectionDomain,
        options: &QueuePairOptions<'_>,
    ) -> Result<QueuePair, Error> {
        let mut state = self.state();
        let local_link = state.local_link()?;
        if state.queue_pair.is_some() {
            return Err(Error::HasQueuePair);
        }
        if !Arc::ptr_eq(local_link.context.adapter(), pd.context().adapter()) {
            return Err(Error::ForeignPd);
        }
        let datagram = options.service == ServiceType::UnreliableDatagram;
        match self.port_space() {
            space @ PortSpace::Udp if !datagram => return Err(Error::Service { space }),
            space @ PortSpace::Tcp if datagram => return Err(Error::Service { space }),
            _ => {}
        }
        let queue_pair = pd.queue_pair(options)?;
        queue_pair.prepare(&attributes::complete(&state.negotiated))?;
        state.queue_pair = Some(queue_pair.clone());
        Ok(queue_pair)
    }

    /// Drops the QP of [`CmId::create_queue_pair`].
    #[doc(alias = "rdma_destroy_qp")]
    pub fn destroy_queue_pair(&self) {
        let queue_pair = self.state().queue_pair.take();
        drop(queue_pair);
    }

    /// Returns the attributes that bring a QP which the program created into a state.
    ///
    /// # Errors
    ///
    /// For a state that the connection has no attributes for.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn attributes(&self, to: qp::State) -> Result<QueuePairAttributes, Error> {
        let state = self.state();
        attributes::change(&state.negotiated, state.service(), to)
    }

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
            return Err(MulticastError::NotMulticast.into());
        }
        let gid = Gid::from_ip(group);
        if let Some(Err(error)) = state.queue_pair.as_ref().map(|queue_pair| queue_pair.attach(gid))
        {
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
