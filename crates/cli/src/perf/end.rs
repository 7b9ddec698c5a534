//! One end of a measured connection: a QP with its memory, or an XRC initiator and target with an SRQ.

use ferroce::{
    AccessFlags, AckTimeout, AddressHandle, AddressVector, Capabilities, CompletionQueue, Context,
    Data, Gid, Immediate, MemoryRegion, Operation as Verb, PathMtu, ProtectionDomain, Psn, QKey,
    Qpn, QueuePair, QueuePairAttributes, QueuePairOptions, RKey, ReceiveRequest, RemoteAddress,
    RnrRetry, RnrTimer, SendRequest, ServiceType, SharedReceiveQueue, VirtualAddress, WorkId,
    XrcDomain, clock,
};
use serde::{Deserialize, Serialize};

use super::args::{Atomic, Operation, Transport};
use super::test::Test;
use crate::session::failure::Failure;

/// The GRH before the payload of a datagram (IBA 11.4.1.2).
pub(super) const GRH: u64 = 40;

/// The queue key of UD QPs, as in perftest.
const QUEUE_KEY: QKey = QKey(0x1111_1111);

/// The longest inline message of a latency test, as in perftest.
const INLINE: u32 = 220;

/// All access.
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// What the peer needs to know of an end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct EndAddress {
    /// The QP that sends: the XRC initiator.
    sender: u32,
    /// The QP that receives: the XRC target, or the same QP.
    receiver: u32,
    /// The SRQ of XRC messages.
    srq: Option<u32>,
    /// The first PSN of each direction's sender.
    psn: u32,
    /// The memory that the peer accesses.
    address: u64,
    rkey: u32,
}

/// One end of a measured connection.
#[derive(Debug)]
pub(super) struct End {
    qp: QueuePair,
    target: Option<QueuePair>,
    srq: Option<SharedReceiveQueue>,
    psn: Psn,
    /// The source of messages, and the destination of READs and atomics.
    pub(super) tx: MemoryRegion,
    /// The memory that the peer accesses, and of receives.
    pub(super) rx: MemoryRegion,
    remote: RemoteAddress,
    peer_srq: Option<Qpn>,
    peer_qp: Qpn,
    ah: Option<AddressHandle>,
    /// The index in its worker, part of the IDs of work requests.
    index: u64,
}

/// What the ends of a worker have in common.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) context: Context,
    pub(super) pd: ProtectionDomain,
    pub(super) xrc: Option<XrcDomain>,
}

/// The work ID of message `number` of an end.
fn work_id(end: u64, number: u64) -> WorkId {
    WorkId(end << 48 | number & NUMBER)
}

const NUMBER: u64 = (1 << 48) - 1;

/// The end and the message number, or the slot of a receive.
pub(super) fn parts(id: WorkId) -> (usize, u64) {
    ((id.0 >> 48) as usize, id.0 & NUMBER)
}

impl End {
    pub(super) fn new(
        resources: &Resources,
        cq: &CompletionQueue,
        test: &Test,
        index: u64,
    ) -> Result<Self, Failure> {
        let pd = &resources.pd;
        let bytes = test.stride() * test.slots();
        let too_much = |_| Failure::Other("too much memory".into());
        let tx = pd.allocate(usize::try_from(bytes).map_err(too_much)?, ACCESS)?;
        let length = bytes + GRH * test.slots();
        let rx = pd.allocate(usize::try_from(length).map_err(too_much)?, ACCESS)?;
        let capabilities = Capabilities {
            max_send_wr: test.tx_depth + test.post_list,
            max_recv_wr: test.receives().max(1),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: INLINE,
        };
        let options =
            |service| QueuePairOptions { capabilities, ..QueuePairOptions::new(service, cq) };
        let (mut target, mut srq) = (None, None);
        let service = match test.transport {
            Transport::Rc => ServiceType::ReliableConnection,
            Transport::Uc => ServiceType::UnreliableConnection,
            Transport::Ud => ServiceType::UnreliableDatagram,
            Transport::Xrc => ServiceType::XrcInitiator,
        };
        if let Some(xrc) = &resources.xrc {
            srq = Some(pd.xrc_receive_queue(test.receives().max(1) as usize, xrc, cq)?);
            target = Some(xrc.target(&options(ServiceType::XrcTarget))?);
        }
        Ok(Self {
            qp: pd.queue_pair(&options(service))?,
            target,
            srq,
            psn: Psn(clock::now() as u32 & 0xff_ffff),
            tx,
            rx,
            remote: RemoteAddress::default(),
            peer_srq: None,
            peer_qp: Qpn(0),
            ah: None,
            index,
        })
    }

    pub(super) fn address(&self) -> EndAddress {
        let RemoteAddress { address, key } = self.rx.remote(0);
        EndAddress {
            sender: self.qp.number().0,
            receiver: self.target.as_ref().unwrap_or(&self.qp).number().0,
            srq: self.srq.as_ref().map(|srq| srq.number().0),
            psn: self.psn.0,
            address: address.0,
            rkey: key.0,
        }
    }

    /// Connects it to the peer's end.
    pub(super) fn connect(
        &mut self,
        resources: &Resources,
        (index, gid): (u8, Gid),
        peer: &EndAddress,
    ) -> Result<(), Failure> {
        self.remote = RemoteAddress { address: VirtualAddress(peer.address), key: RKey(peer.rkey) };
        self.peer_qp = Qpn(peer.receiver);
        self.peer_srq = peer.srq.map(Qpn);
        let path = AddressVector {
            port: 1,
            source_index: index,
            destination: gid,
            ..AddressVector::default()
        };
        if self.qp.service() == ServiceType::UnreliableDatagram {
            self.ah = Some(resources.pd.address_handle(&path)?);
        }
        let psn = Psn(peer.psn & 0xff_ffff);
        bring_up(&self.qp, path, Qpn(peer.receiver), self.psn, psn)?;
        if let Some(target) = &self.target {
            bring_up(target, path, Qpn(peer.sender), self.psn, psn)?;
        }
        Ok(())
    }

    /// Whether its packets go through shared memory.
    pub(super) fn shares_memory(&self) -> bool {
        self.qp.shares_memory()
    }

    /// Posts a receive at a slot of the memory, long enough for every size of the test.
    pub(super) fn post_receive(&self, test: &Test, slot: u64) -> Result<(), Failure> {
        let length = (test.longest() + GRH) as u32;
        let sge = self.rx.sge(slot * (test.stride() + GRH), length);
        let request = ReceiveRequest { id: work_id(self.index, slot), sg_list: sge.into() };
        match &self.srq {
            Some(srq) => srq.post(request)?,
            None => self.qp.post_receive(request)?,
        }
        Ok(())
    }

    /// Posts messages from `first` on, of `size` bytes each. `signaled` says for each number whether it completes.
    pub(super) fn post(
        &self,
        test: &Test,
        size: u64,
        numbers: std::ops::Range<u64>,
        signaled: impl Fn(u64) -> bool,
    ) -> Result<(), Failure> {
        let numbered = test.is_numbered();
        let request = |number: u64| {
            let slot = number % test.slots() * test.stride();
            let remote = RemoteAddress {
                address: VirtualAddress(self.remote.address.0.wrapping_add(slot)),
                ..self.remote
            };
            let immediate = numbered.then_some(Immediate(number as u32));
            let operation = match (test.operation, test.atomic) {
                (Operation::Send, _) => Verb::Send { immediate, invalidate: None },
                (Operation::Write, _) => Verb::Write { remote, immediate: None },
                (Operation::Read, _) => Verb::Read { remote },
                // All operations of a QP are on the same 8 bytes.
                (Operation::Atomic, Atomic::FetchAdd) => {
                    Verb::FetchAdd { remote: self.remote, add: 1 }
                }
                (Operation::Atomic, Atomic::CompareSwap) => {
                    let (compare, swap) = (number, number + 1);
                    Verb::CompareSwap { remote: self.remote, compare, swap }
                }
            };
            SendRequest {
                signaled: signaled(number),
                receive_queue: self.peer_srq,
                ..SendRequest::new(
                    work_id(self.index, number),
                    operation,
                    self.data(test, slot, size),
                )
            }
        };
        let posted = match &self.ah {
            None => self.qp.post_sends(numbers.map(request)),
            Some(ah) => self.qp.post_datagrams(numbers.map(|number| {
                let SendRequest { id, data, signaled, .. } = request(number);
                let mut datagram = ah.request(id, self.peer_qp, QUEUE_KEY, data);
                datagram.immediate = numbered.then_some(Immediate(number as u32));
                datagram.signaled = signaled;
                datagram
            })),
        };
        Ok(posted.result?)
    }

    /// Short messages of latency tests are inline, as in perftest.
    fn data(&self, test: &Test, offset: u64, size: u64) -> Data {
        let inline = test.measure == super::args::Measure::Lat
            && !matches!(test.operation, Operation::Read | Operation::Atomic)
            && size <= u64::from(INLINE);
        if inline {
            let mut bytes = [0; INLINE as usize];
            let bytes = &mut bytes[..size as usize];
            if self.tx.read(offset as usize, bytes).is_ok() {
                return Data::Inline((&*bytes).into());
            }
        }
        Data::SgList(self.tx.sge(offset, size as u32).into())
    }
}

/// Brings a QP from RESET to RTS, with the defaults of perftest.
fn bring_up(
    qp: &QueuePair,
    path: AddressVector,
    peer: Qpn,
    send_psn: Psn,
    receive_psn: Psn,
) -> Result<(), Failure> {
    let outstanding = qp.context().limits().max_rd_atomic;
    let all = QueuePairAttributes {
        access: Some(ACCESS),
        partition: Some(0),
        port: Some(1),
        queue_key: Some(QUEUE_KEY),
        path: Some(path),
        // The QP lowers it to what the path has: only to this host, that is more than the active MTU.
        path_mtu: Some(PathMtu::MTU_4096),
        destination: Some(peer),
        receive_psn: Some(receive_psn),
        send_psn: Some(send_psn),
        max_rd_atomic: Some(outstanding),
        max_dest_rd_atomic: Some(outstanding),
        // 0.64 ms (IBA table 45).
        min_rnr_timer: RnrTimer::from_code(12),
        // 67 ms (IBA 9.7.6.1.3).
        timeout: Some(AckTimeout(14)),
        retry_count: Some(7),
        rnr_retry: Some(RnrRetry::FOR_EVER),
        ..QueuePairAttributes::default()
    };
    Ok(qp.bring_up(&all)?)
}
