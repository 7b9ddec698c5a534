//! What the phases mean for a queue pair, and for a region.

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

/// READs and atomics that a queue pair may have under way, either way.
const READS: u8 = 16;

/// How long a peer waits before it tries again while we have no receive posted: 0.64 ms (IBA table 45).
const RNR_TIMER: u8 = 12;

/// Local write, and all that peers may do.
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// One side of an exchange: a queue pair, and the number of its first packet.
#[derive(Clone, Debug)]
pub struct Side {
    queue_pair: QueuePair,
    source_index: u8,
    psn: Psn,
    queue_key: QKey,
}

impl Side {
    /// Phase 2: brings a queue pair from RESET to INIT; one for datagrams is ready at once.
    ///
    /// # Errors
    ///
    /// When it is not in RESET, or of XRC, whose two ends are different things: bring those up step by step.
    pub fn new(queue_pair: QueuePair, source_index: u8) -> Result<Self, Error> {
        let numbers = random();
        let side = Self {
            queue_pair,
            source_index,
            psn: Psn(numbers as u32 & 0x00ff_ffff),
            // IBA 10.2.5: the top bit is for the privileged.
            queue_key: QKey((numbers >> 32) as u32 & 0x7fff_ffff),
        };
        let datagram = side.qp_type()? == QpType::UD;
        let change =
            |state| QueuePairAttributes { state: Some(state), ..QueuePairAttributes::default() };
        side.queue_pair.modify(&QueuePairAttributes {
            partition: Some(0),
            port: Some(1),
            access: (!datagram).then_some(ACCESS),
            queue_key: datagram.then_some(side.queue_key),
            ..change(State::Init)
        })?;
        if datagram {
            side.queue_pair.modify(&change(State::ReadyToReceive))?;
            let ready =
                QueuePairAttributes { send_psn: Some(side.psn), ..change(State::ReadyToSend) };
            side.queue_pair.modify(&ready)?;
        }
        Ok(side)
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    fn qp_type(&self) -> Result<QpType, Error> {
        match self.queue_pair.service() {
            ServiceType::ReliableConnection => Ok(QpType::RC),
            ServiceType::UnreliableConnection => Ok(QpType::UC),
            ServiceType::UnreliableDatagram => Ok(QpType::UD),
            ServiceType::XrcInitiator | ServiceType::XrcTarget => Err(Error::Xrc),
        }
    }

    /// What the peer is told of it.
    pub fn parameters(&self) -> QpParameters {
        let sizes = self.queue_pair.capabilities();
        let reads = if self.is_reliable() { READS } else { 0 };
        let bytes = |requests: u32, each: usize| requests.saturating_mul(each as u32);
        QpParameters {
            qp_number: self.queue_pair.number(),
            qp_type: self.qp_type().unwrap_or_default(),
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

    fn is_reliable(&self) -> bool {
        self.queue_pair.service() == ServiceType::ReliableConnection
    }

    /// Phase 4, first half: brings it to RTR, for what the peer said of its own, with the path MTU that both can use.
    ///
    /// # Errors
    ///
    /// When there is no way to the peer, or what it said does not fit.
    pub fn receive_from(&self, peer: Gid, theirs: &QpParameters) -> Result<(), Error> {
        let reliable = self.is_reliable();
        let ours = self.queue_pair.context().mtu();
        let path = AddressVector {
            port: 1,
            source_index: self.source_index,
            destination: peer,
            ..AddressVector::default()
        };
        self.queue_pair.modify(&QueuePairAttributes {
            state: Some(State::ReadyToReceive),
            path: Some(path),
            path_mtu: Some(smaller(ours, theirs.path_mtu)),
            destination: Some(theirs.qp_number),
            receive_psn: Some(theirs.starting_psn),
            max_dest_rd_atomic: reliable.then_some(theirs.initiator_depth.min(READS)),
            min_rnr_timer: RnrTimer::from_code(RNR_TIMER).filter(|_| reliable),
            ..QueuePairAttributes::default()
        })?;
        Ok(())
    }

    /// Phase 4, second half: brings it to RTS.
    ///
    /// # Errors
    ///
    /// When it is not in RTR.
    pub fn send_to(&self, theirs: &QpParameters, agreement: &Agreement) -> Result<(), Error> {
        let reliable = self.is_reliable();
        self.queue_pair.modify(&QueuePairAttributes {
            state: Some(State::ReadyToSend),
            send_psn: Some(self.psn),
            timeout: reliable.then_some(agreement.timeout),
            retry_count: reliable.then_some(agreement.retry_count),
            rnr_retry: reliable.then_some(agreement.rnr_retry_count),
            max_rd_atomic: reliable.then_some(theirs.responder_resources.min(READS)),
            ..QueuePairAttributes::default()
        })?;
        Ok(())
    }
}

fn smaller(one: PathMtu, other: PathMtu) -> PathMtu {
    if other.bytes().is_some() && other.bytes() < one.bytes() { other } else { one }
}

/// A region as its owner describes it.
pub(super) fn describe(region: &MemoryRegion, number: u32) -> RegionParameters {
    RegionParameters {
        id: RegionId(number),
        access: region.info().map_or(AccessFlags::empty(), |info| info.access),
        address: region.address(),
        length: region.len(),
        ..RegionParameters::default()
    }
}

/// The same with its keys.
pub(super) fn registered(region: &MemoryRegion, number: u32) -> RegisteredRegion {
    RegisteredRegion {
        region: describe(region, number),
        remote_key: region.rkey(),
        local_key: region.lkey(),
    }
}
