//! The QP and MR of one side during the phases.

use ferroce_proto::memory::AccessFlags;
use ferroce_proto::qp::{
    AddressVector, PathMtu, QueuePairAttributes, RnrTimer, ServiceType, State,
};
use ferroce_proto::setup::{Agreement, QpParameters, RegionParameters, RegisteredRegion};
use ferroce_proto::work::{ReceiveRequest, SendRequest};
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Psn, QKey};
use ferroce_wire::setup::{QpType, RegionId};

use crate::error::SetupExchangeError as Error;
use crate::queue_pair::QueuePair;
use crate::region::MemoryRegion;
use ferroce_sys::random::number as random;

/// Outstanding READs and atomics, in each direction.
const MAX_RD_ATOMIC: u8 = 16;

/// RNR NAK timer: 0.64 ms (IBA table 45).
const RNR_TIMER: u8 = 12;

/// Local write, and all remote access.
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// One side of an exchange: a QP and its starting PSN.
#[derive(Clone, Debug)]
pub struct Side {
    queue_pair: QueuePair,
    qp_type: QpType,
    source_index: u8,
    psn: Psn,
    queue_key: QKey,
}

impl Side {
    /// Phase 2: brings a QP from RESET to INIT, or to RTS if it is UD.
    ///
    /// # Errors
    ///
    /// When it is not in RESET, or an XRC QP: the two ends of XRC differ.
    pub fn new(queue_pair: QueuePair, source_index: u8) -> Result<Self, Error> {
        let qp_type = match queue_pair.service() {
            ServiceType::ReliableConnection => QpType::RC,
            ServiceType::UnreliableConnection => QpType::UC,
            ServiceType::UnreliableDatagram => QpType::UD,
            ServiceType::XrcInitiator | ServiceType::XrcTarget => return Err(Error::Xrc),
        };
        let numbers = random();
        let side = Self {
            queue_pair,
            qp_type,
            source_index,
            psn: Psn(numbers as u32 & 0x00ff_ffff),
            // IBA 10.2.5: the most significant bit is for privileged queue keys.
            queue_key: QKey((numbers >> 32) as u32 & 0x7fff_ffff),
        };
        side.queue_pair.prepare(&QueuePairAttributes {
            partition: Some(0),
            port: Some(1),
            access: Some(ACCESS),
            queue_key: Some(side.queue_key),
            send_psn: Some(side.psn),
            ..QueuePairAttributes::default()
        })?;
        Ok(side)
    }

    /// Returns the QP.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    /// Returns the parameters to send to the peer.
    pub fn parameters(&self) -> QpParameters {
        let sizes = self.queue_pair.capabilities();
        let reads = if self.qp_type == QpType::RC { MAX_RD_ATOMIC } else { 0 };
        let bytes = |requests: u32, each: usize| requests.saturating_mul(each as u32);
        QpParameters {
            qp_number: self.queue_pair.number(),
            qp_type: self.qp_type,
            path_mtu: self.queue_pair.context().mtu(),
            responder_resources: reads,
            initiator_depth: reads,
            max_send_wqe: sizes.max_send_wr,
            max_recv_wqe: sizes.max_recv_wr,
            max_send_sge: sizes.max_send_sge as u16,
            max_recv_sge: sizes.max_recv_sge as u16,
            send_queue_size: bytes(sizes.max_send_wr, size_of::<SendRequest>()),
            recv_queue_size: bytes(sizes.max_recv_wr, size_of::<ReceiveRequest>()),
            starting_psn: self.psn,
            queue_key: self.queue_key,
            ..QpParameters::default()
        }
    }

    /// Phase 4, first half: brings the QP to RTR with the peer's parameters and the smaller path MTU.
    ///
    /// # Errors
    ///
    /// When there is no route to the peer, or its parameters are invalid.
    pub fn receive_from(&self, peer: Gid, theirs: &QpParameters) -> Result<(), Error> {
        let path = AddressVector {
            port: 1,
            source_index: self.source_index,
            destination: peer,
            ..AddressVector::default()
        };
        let all = QueuePairAttributes {
            path: Some(path),
            path_mtu: Some(smaller(self.queue_pair.context().mtu(), theirs.path_mtu)),
            destination: Some(theirs.qp_number),
            receive_psn: Some(theirs.starting_psn),
            max_dest_rd_atomic: Some(theirs.initiator_depth.min(MAX_RD_ATOMIC)),
            min_rnr_timer: RnrTimer::from_code(RNR_TIMER),
            ..QueuePairAttributes::default()
        };
        Ok(self.queue_pair.enter(State::ReadyToReceive, &all)?)
    }

    /// Phase 4, second half: brings the QP to RTS.
    ///
    /// # Errors
    ///
    /// When it is not in RTR.
    pub fn send_to(&self, theirs: &QpParameters, agreement: &Agreement) -> Result<(), Error> {
        let all = QueuePairAttributes {
            send_psn: Some(self.psn),
            timeout: Some(agreement.timeout),
            retry_count: Some(agreement.retry_count),
            rnr_retry: Some(agreement.rnr_retry_count),
            max_rd_atomic: Some(theirs.responder_resources.min(MAX_RD_ATOMIC)),
            ..QueuePairAttributes::default()
        };
        Ok(self.queue_pair.enter(State::ReadyToSend, &all)?)
    }
}

fn smaller(first: PathMtu, second: PathMtu) -> PathMtu {
    if second.bytes().is_some() && second.bytes() < first.bytes() { second } else { first }
}

/// Describes an MR.
pub(super) fn describe(region: &MemoryRegion, number: u32) -> RegionParameters {
    RegionParameters {
        id: RegionId(number),
        access: region.info().map_or(AccessFlags::empty(), |info| info.access),
        address: region.address(),
        length: region.len(),
        ..RegionParameters::default()
    }
}

/// Describes an MR with its keys.
pub(super) fn registered(region: &MemoryRegion, number: u32) -> RegisteredRegion {
    RegisteredRegion {
        region: describe(region, number),
        remote_key: region.rkey(),
        local_key: region.lkey(),
    }
}
