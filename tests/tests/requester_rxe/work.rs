//! The state of the requester, as implied by a capture: its QP, its work requests, and how each of them completed.

use std::collections::BTreeMap;
use std::time::Duration;

use ferroce_proto::congestion::Congestion;
use ferroce_proto::memory::{AccessFlags, PdId, Sge};
use ferroce_proto::rc::{Config, Role};
use ferroce_proto::work::{Data, Operation, RemoteAddress, SendRequest, SgList, Status, WorkId};
use ferroce_tests::exchange::{Exchange, Sent};
use ferroce_wire::number::{PKey, Psn};
use ferroce_wire::opcode;
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::{NakCode, RnrTimer, SyndromeKind};

use crate::memory::LocalMemory;

/// A work request implied by the captured requests.
pub(crate) struct Work {
    pub(crate) request: SendRequest,
    pub(crate) first: Psn,
    packets: u32,
    /// Its local buffer.
    pub(crate) local: Sge,
    /// How it completed.
    pub(crate) status: Status,
    /// Its result: a READ's bytes, an atomic's original value.
    pub(crate) returned: Option<Vec<u8>>,
}

/// The requester before it sends anything.
pub(crate) struct Situation {
    pub(crate) config: Config,
    pub(crate) memory: LocalMemory,
    pub(crate) works: Vec<Work>,
}

impl Situation {
    pub(crate) fn of(exchange: &Exchange) -> Self {
        let mut memory = LocalMemory::default();
        let works = works(exchange, &mut memory);
        Self { config: config(exchange), memory, works }
    }
}

/// Returns the configuration of rdma_rxe's queue pair.
fn config(exchange: &Exchange) -> Config {
    let config = Config {
        role: Role::Both,
        number: exchange.requester,
        destination: exchange.responder,
        partition: PKey(0xffff),
        pd: PdId(0),
        mtu: exchange.mtu,
        send_psn: exchange.first_psn(),
        receive_psn: Psn(0),
        // Matches the pauses of 65 ms and more in the captures, which are 67.1 ms in ticks of 4 ms.
        timeout: Some(Duration::from_millis(64)),
        retry_count: 7,
        rnr_retry: 7,
        rnr_timer: RnrTimer::from_code(14).expect("5 bits"),
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        access: AccessFlags::default(),
        // The number of packets in flight is not compared.
        congestion: Congestion::Unlimited,
        keepalive: None,
        send_capacity: 64,
    };
    match exchange.capture.as_str() {
        "rnr_exceeded" => Config { rnr_retry: 2, ..config },
        "timeout" => {
            Config { timeout: Some(Duration::from_micros(8389)), retry_count: 3, ..config }
        }
        _ => config,
    }
}

impl Work {
    /// Returns the index of a packet in it, if it belongs to it.
    pub(crate) fn packet_index(&self, psn: Psn) -> Option<u32> {
        u32::try_from(psn.distance(self.first)).ok().filter(|&index| index < self.packets)
    }
}

/// Returns the work requests of an exchange, in order, with their memory.
fn works(exchange: &Exchange, memory: &mut LocalMemory) -> Vec<Work> {
    let mut packets: BTreeMap<u32, &Sent> = BTreeMap::new();
    for sent in &exchange.requests {
        packets.entry(sent.packet().bth.psn.0).or_insert(sent);
    }
    let mut works: Vec<Work> = Vec::new();
    let mut first = exchange.first_psn();
    while let Some(sent) = packets.get(&first.0) {
        let (packet, info) = (sent.packet(), sent.info());
        assert!(info.position.opens(), "packet {} is in the middle", sent.number);
        // The packets of a SEND or WRITE; the only one of the others.
        let mut message = vec![packet];
        while !last(&message).1.position.ends() {
            let next = packets.get(&first.add(message.len() as u32).0);
            message.push(next.expect("each packet of a message was captured once").packet());
        }
        let operation = operation(&message);
        let length = match packet.extensions.reth {
            Some(reth) if matches!(operation, Operation::Read { .. }) => reth.length as usize,
            _ if matches!(operation, Operation::Send { .. } | Operation::Write { .. }) => {
                message.iter().map(|one| one.payload.len()).sum()
            }
            _ => 8,
        };
        let count = match operation {
            Operation::Read { .. } => length.div_ceil(usize::from(exchange.mtu)).max(1),
            _ => message.len(),
        } as u32;
        let mut bytes: Vec<u8> = message.iter().flat_map(|one| one.payload).copied().collect();
        bytes.resize(length, 0);
        let local = memory.add(&bytes);
        works.push(Work {
            request: SendRequest {
                id: WorkId(works.len() as u64),
                operation,
                data: Data::SgList(SgList::from(local)),
                signaled: true,
                solicited: last(&message).0.bth.solicited,
                fence: false,
                receive_queue: None,
            },
            first,
            packets: count,
            local,
            status: status(exchange, &operation, first, count),
            returned: None,
        });
        let work = works.last_mut().expect("just added");
        if work.status == Status::Success && operation.wants_response() {
            work.returned = Some(returned(exchange, work));
        }
        first = first.add(count);
    }
    let missing = packets.keys().any(|&psn| !Psn(psn).is_before(first));
    assert!(!missing, "{}: the request {:#x} is missing", exchange.title, first.0);
    works
}

fn last<'p>(message: &[Packet<'p>]) -> (Packet<'p>, &'static opcode::OpcodeInfo) {
    let packet = *message.last().expect("a message has a packet");
    (packet, packet.bth.opcode.info().expect("only known opcodes were captured"))
}

fn operation(message: &[Packet<'_>]) -> Operation {
    let ((first, (last, info)), headers) = ((message[0], last(message)), message[0].extensions);
    let immediate = last.extensions.immediate.map(|immediate| immediate.value);
    let invalidate = last.extensions.ieth.map(|ieth| ieth.key);
    let remote = (headers.reth.map(|reth| (reth.address, reth.key)))
        .or(headers.atomic.map(|atomic| (atomic.address, atomic.key)))
        .map(|(address, key)| RemoteAddress { address, key });
    let remote = |what: &str| remote.unwrap_or_else(|| panic!("{what} without an address"));
    let atomic = || headers.atomic.expect("an atomic has its header");
    match info.operation {
        opcode::Operation::Send => Operation::Send { immediate, invalidate },
        opcode::Operation::Write => Operation::Write { remote: remote("WRITE"), immediate },
        opcode::Operation::ReadRequest => Operation::Read { remote: remote("READ") },
        opcode::Operation::CompareSwap => Operation::CompareSwap {
            remote: remote("atomic"),
            compare: atomic().compare.0,
            swap: atomic().swap_or_add.0,
        },
        opcode::Operation::FetchAdd => {
            Operation::FetchAdd { remote: remote("atomic"), add: atomic().swap_or_add.0 }
        }
        _ => panic!("{} is not in the captures", first.bth.opcode.name()),
    }
}

/// Returns how the work request at `first` completed, judging by the responses alone.
fn status(exchange: &Exchange, operation: &Operation, first: Psn, count: u32) -> Status {
    let last = first.add(count - 1);
    let mut end = Status::RetryExceeded; // No response.
    for response in &exchange.responses {
        let packet = response.packet();
        let at = packet.bth.psn;
        let here = !at.is_before(first) && !last.is_before(at);
        let kind = packet.extensions.aeth.map(|aeth| aeth.syndrome.kind());
        let done = match (operation, response.info().operation) {
            (Operation::Read { .. }, opcode::Operation::ReadResponse)
            | (
                Operation::CompareSwap { .. } | Operation::FetchAdd { .. },
                opcode::Operation::AtomicAcknowledge,
            ) => at == last,
            (Operation::Send { .. } | Operation::Write { .. }, _) => match kind {
                None | Some(SyndromeKind::Ack(_)) => !at.is_before(last),
                _ => last.is_before(at),
            },
            _ => false,
        };
        match kind {
            _ if done => return Status::Success,
            Some(SyndromeKind::Nak(NakCode::PsnSequenceError)) => {}
            Some(SyndromeKind::RnrNak(_)) if here => end = Status::RnrRetryExceeded,
            Some(SyndromeKind::Nak(code)) if here => {
                return match code {
                    NakCode::RemoteAccessError => Status::RemoteAccess,
                    NakCode::RemoteOperationalError => Status::RemoteOperation,
                    _ => Status::RemoteInvalidRequest,
                };
            }
            _ => {}
        }
    }
    end
}

/// Returns the result in the responses to a READ or an atomic.
fn returned(exchange: &Exchange, work: &Work) -> Vec<u8> {
    let mut bytes = vec![0; work.local.length as usize];
    for response in &exchange.responses {
        let packet = response.packet();
        if let Some(index) = work.packet_index(packet.bth.psn) {
            match packet.extensions.atomic_ack {
                // In host byte order, as the verbs specify.
                Some(atomic) => bytes.copy_from_slice(&atomic.original.0.to_ne_bytes()),
                None => {
                    let offset = index as usize * usize::from(exchange.mtu);
                    bytes[offset..][..packet.payload.len()].copy_from_slice(packet.payload);
                }
            }
        }
    }
    bytes
}
