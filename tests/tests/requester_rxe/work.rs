//! What a capture implies about the requester: its queue pair, its work requests, and how each of them ended.

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

/// A work request that the captured requests imply.
pub(crate) struct Work {
    pub(crate) request: SendRequest,
    pub(crate) first: Psn,
    packets: u32,
    /// Where its bytes come from, or go to.
    pub(crate) local: Sge,
    /// How it ended.
    pub(crate) status: Status,
    /// What it brought: a READ's bytes, an atomic's original value.
    pub(crate) brought: Option<Vec<u8>>,
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

/// The queue pair as rdma_rxe's was set up.
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
        // Fits the pauses of 65 ms and more in the captures: 67.1 ms in ticks of 4 ms would be this.
        timeout: Some(Duration::from_millis(64)),
        retry_count: 7,
        rnr_retry: 7,
        rnr_timer: RnrTimer::from_code(14).expect("5 bits"),
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        access: AccessFlags::default(),
        // How much is under way at a time is no part of the comparison.
        congestion: Congestion::Unlimited,
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
    /// Where in it a packet stands that is one of its own.
    pub(crate) fn place(&self, psn: Psn) -> Option<u32> {
        u32::try_from(psn.distance(self.first)).ok().filter(|&place| place < self.packets)
    }
}

/// The work requests of an exchange, in order, with their memory.
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
            brought: None,
        });
        let work = works.last_mut().expect("just added");
        if work.status == Status::Success && operation.wants_response() {
            work.brought = Some(brought(exchange, work));
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

/// How the work request at `first` ended, by the answers alone.
fn status(exchange: &Exchange, operation: &Operation, first: Psn, count: u32) -> Status {
    let last = first.add(count - 1);
    let mut end = Status::RetryExceeded; // Nobody answered.
    for answer in &exchange.answers {
        let packet = answer.packet();
        let at = packet.bth.psn;
        let here = !at.is_before(first) && !last.is_before(at);
        let kind = packet.extensions.aeth.map(|aeth| aeth.syndrome.kind());
        let done = match (operation, answer.info().operation) {
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

/// What the answers to a READ or an atomic brought.
fn brought(exchange: &Exchange, work: &Work) -> Vec<u8> {
    let mut bytes = vec![0; work.local.length as usize];
    for answer in &exchange.answers {
        let packet = answer.packet();
        if let Some(place) = work.place(packet.bth.psn) {
            match packet.extensions.atomic_ack {
                // In this host's order, as the verbs say.
                Some(atomic) => bytes.copy_from_slice(&atomic.original.0.to_ne_bytes()),
                None => {
                    let offset = place as usize * usize::from(exchange.mtu);
                    bytes[offset..][..packet.payload.len()].copy_from_slice(packet.payload);
                }
            }
        }
    }
    bytes
}
