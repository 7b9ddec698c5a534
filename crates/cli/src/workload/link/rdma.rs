//! RDMA: an RC queue pair to each peer, and one memory region that all of them may access.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use ferroce::{
    AccessFlags, Buffer, Capabilities, CompletionChannel, CompletionKind, CompletionQueue, Context,
    Data, Device, Gid, Immediate, MemoryRegion, Operation, Options, ProtectionDomain, Qpn,
    QueuePair, QueuePairOptions, RKey, ReceiveRequest, RemoteAddress, SendRequest, ServiceType,
    Status, VirtualAddress, WorkCompletion, WorkId,
};

use super::super::fault::Fault;
use super::{DEPTH, Endpoint, Event, Link, Request};
use crate::session::failure::Failure;

/// Receives that are posted to each QP at any time. If all are consumed, the peer is told so (RNR NAK) and retries.
pub(in super::super) const RECEIVES: usize = 64;

/// The bit of a work request ID that marks receives.
const RECEIVE: u64 = 1 << 63;

/// What peers may do with the memory.
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// The queue pairs of a rank.
#[derive(Debug)]
pub(in super::super) struct RdmaLink {
    rank: usize,
    ip: IpAddr,
    gid_index: u8,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
    /// The buffers of SENDs, if the workload has any.
    messages: Option<MemoryRegion>,
    /// The length of each.
    message: usize,
    /// By rank; `None` for this one.
    qps: Vec<Option<QueuePair>>,
    peers: Vec<RemoteAddress>,
}

impl RdmaLink {
    /// Opens the device with this address, and creates the QPs.
    pub(in super::super) fn new(
        rank: usize,
        ranks: usize,
        ip: IpAddr,
        buffer: &Arc<Buffer>,
        message: usize,
        options: &Options,
    ) -> Result<Self, Fault> {
        let (device, gid_index) = Device::with_address(SocketAddr::new(ip, 0))?;
        let context = Context::open(&device, options)?;
        let pd = context.protection_domain();
        let memory = pd.register_buffer(buffer, ACCESS)?;
        let messages = match message {
            0 => None,
            _ => Some(pd.allocate(ranks * RECEIVES * message, AccessFlags::LOCAL_WRITE)?),
        };
        let channel = CompletionChannel::new()?;
        let cq = context.completion_queue(ranks * (DEPTH + RECEIVES), Some(&channel))?;
        let options = QueuePairOptions::new(ServiceType::ReliableConnection, &cq);
        let capabilities = Capabilities {
            max_send_wr: DEPTH as u32,
            max_recv_wr: RECEIVES as u32,
            ..options.capabilities
        };
        let options = QueuePairOptions { capabilities, ..options };
        let qps = (0..ranks).map(|peer| match peer == rank {
            true => Ok(None),
            false => pd.queue_pair(&options).map(Some),
        });
        let qps = qps.collect::<Result<_, _>>()?;
        let peers = Vec::new();
        Ok(Self { rank, ip, gid_index, pd, cq, memory, messages, message, qps, peers })
    }

    fn post_receive(&self, peer: usize, slot: usize) -> Result<(), Fault> {
        let Some(qp) = &self.qps[peer] else { return Ok(()) };
        let sg_list = match &self.messages {
            Some(region) => {
                let offset = (peer * RECEIVES + slot) * self.message;
                region.sge(offset as u64, self.message as u32).into()
            }
            // An immediate consumes a receive request, but needs no memory.
            None => ferroce::SgList::NONE,
        };
        let id = WorkId(RECEIVE | (peer << 32 | slot) as u64);
        Ok(qp.post_receive(ReceiveRequest { id, sg_list })?)
    }

    fn remote(&self, peer: usize, offset: usize) -> RemoteAddress {
        let RemoteAddress { address, key } = self.peers[peer];
        RemoteAddress { address: VirtualAddress(address.0 + offset as u64), key }
    }

    fn data(&self, offset: usize, length: usize) -> Data {
        match length {
            0 => Data::NONE,
            _ => Data::SgList(self.memory.sge(offset as u64, length as u32).into()),
        }
    }

    /// The peer of a queue pair.
    fn peer(&self, number: Qpn) -> usize {
        let is = |qp: &Option<QueuePair>| qp.as_ref().is_some_and(|qp| qp.number() == number);
        self.qps.iter().position(is).unwrap_or(self.rank)
    }

    fn event(&self, done: &WorkCompletion) -> Result<Event, Fault> {
        let peer = self.peer(done.queue_pair);
        if done.status != Status::Success {
            return Err(Fault::work(peer, done.status));
        }
        if done.id.0 & RECEIVE == 0 {
            return Ok(Event::Done { ticket: done.id.0 });
        }
        let slot = (done.id.0 & 0xffff_ffff) as usize;
        let event = match (done.kind, done.immediate, &self.messages) {
            (CompletionKind::ReceiveWriteImmediate, Some(Immediate(value)), _) => {
                Event::Immediate { peer, value }
            }
            (_, _, Some(region)) => {
                let mut bytes = vec![0; (done.length as usize).min(self.message)];
                region.read((peer * RECEIVES + slot) * self.message, &mut bytes)?;
                Event::Message { peer, bytes }
            }
            _ => Event::Message { peer, bytes: Vec::new() },
        };
        self.post_receive(peer, slot)?;
        Ok(event)
    }
}

impl Link for RdmaLink {
    fn endpoint(&self) -> Result<Endpoint, Fault> {
        let qpns = self.qps.iter().map(|qp| qp.as_ref().map_or(0, |qp| qp.number().0)).collect();
        let RemoteAddress { address, key } = self.memory.remote(0);
        Ok(Endpoint::Rdma { ip: self.ip, qpns, address: address.0, rkey: key.0 })
    }

    fn connect(&mut self, peers: &[Endpoint]) -> Result<(), Fault> {
        for (peer, endpoint) in peers.iter().enumerate() {
            let Endpoint::Rdma { ip, qpns, address, rkey } = endpoint else {
                return Err(Failure::IncompatiblePeer.into());
            };
            let number = qpns.get(self.rank).ok_or(Failure::IncompatiblePeer)?;
            if let Some(qp) = &self.qps[peer] {
                qp.connect_to(self.gid_index, Gid::from_ip(*ip), Qpn(*number))?;
            }
            let address = VirtualAddress(*address);
            self.peers.push(RemoteAddress { address, key: RKey(*rkey) });
            (0..RECEIVES).try_for_each(|slot| self.post_receive(peer, slot))?;
        }
        Ok(())
    }

    fn shares_memory(&self) -> bool {
        self.qps.iter().flatten().all(QueuePair::shares_memory)
    }

    fn post(&mut self, peer: usize, ticket: u64, request: Request) -> Result<(), Fault> {
        let (operation, data) = match request {
            Request::Write { local, remote, length, immediate, lkey } => {
                let remote = self.remote(peer, remote);
                let operation = Operation::Write { remote, immediate: immediate.map(Immediate) };
                let data = match lkey {
                    Some(key) => {
                        let sge = self.memory.sge(local as u64, length as u32);
                        Data::SgList(ferroce::Sge { key, ..sge }.into())
                    }
                    None => self.data(local, length),
                };
                (operation, data)
            }
            Request::Read { local, remote, length } => {
                (Operation::Read { remote: self.remote(peer, remote) }, self.data(local, length))
            }
            Request::Send { local, length } => (Operation::SEND, self.data(local, length)),
            Request::CompareSwap { local, remote, compare, swap } => {
                let remote = self.remote(peer, remote);
                (Operation::CompareSwap { remote, compare, swap }, self.data(local, 8))
            }
            Request::FetchAdd { local, remote, add } => {
                let remote = self.remote(peer, remote);
                (Operation::FetchAdd { remote, add }, self.data(local, 8))
            }
        };
        let own = || Failure::Other("a rank has no connection to itself".into());
        let qp = self.qps[peer].as_ref().ok_or_else(own)?;
        Ok(qp.post_send(SendRequest::new(WorkId(ticket), operation, data))?)
    }

    fn wait(&mut self, deadline: Instant) -> Result<Option<Event>, Fault> {
        let done = self.cq.wait_until(deadline)?;
        done.map(|done| self.event(&done)).transpose()
    }

    fn pd(&self) -> Option<&ProtectionDomain> {
        Some(&self.pd)
    }
}
