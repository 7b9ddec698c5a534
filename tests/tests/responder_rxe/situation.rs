//! What a capture implies about the responder before the first request: its queue pair, its memory, its receives.

use std::collections::{BTreeMap, BTreeSet};

use ferroce_proto::congestion::Congestion;
use ferroce_proto::memory::{AccessFlags, PdId, Sge};
use ferroce_proto::rc::{Config, Role};
use ferroce_proto::work::{ReceiveRequest, SgList, WorkId};
use ferroce_tests::exchange::{Exchange, Sent};
use ferroce_wire::number::{LKey, PKey, Psn, VirtualAddress};
use ferroce_wire::opcode::Operation;
use ferroce_wire::syndrome::RnrTimer;

use crate::answer::{self, Answer};
use crate::memory::{LOCAL_KEY, SparseMemory};

/// Captures in which the responder's own program writes new text into its buffer before each READ.
const OWNER_WRITES: &[&str] = &["rping", "rping_v6"];

/// The responder as it was when the first request came.
pub(crate) struct Situation {
    pub(crate) config: Config,
    pub(crate) memory: SparseMemory,
    /// How often a receive request was missing, by the PSN of the message that needed it.
    pub(crate) not_ready: BTreeMap<u32, usize>,
    receive: Sge,
    /// Bytes that the owner of the memory put there just before the READ of this PSN.
    pub(crate) refreshed: BTreeMap<u32, Vec<(u64, Vec<u8>)>>,
}

impl Situation {
    pub(crate) fn of(exchange: &Exchange) -> Self {
        let all = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
        let mut situation = Self {
            config: config(exchange, all),
            memory: SparseMemory { bytes: initial(exchange), keys: keys(exchange), end: None },
            not_ready: BTreeMap::new(),
            receive: Sge { key: LOCAL_KEY, address: VirtualAddress(0), length: 1 << 20 },
            refreshed: BTreeMap::new(),
        };
        for answer in answer::expected(exchange).iter().filter(|answer| answer.is_rnr_nak()) {
            *situation.not_ready.entry(answer.bth.psn.0).or_default() += 1;
        }
        if OWNER_WRITES.contains(&exchange.capture.as_str()) {
            situation.refreshed = refreshed(exchange);
        }
        // What the requester did wrong shows in the answer alone; what was wrong is what the capture is of.
        match exchange.capture.as_str() {
            "no_access" => situation.config.access = AccessFlags::default(),
            "bad_rkey_read" | "bad_rkey_write" => situation.memory.keys.clear(),
            "out_of_bounds" => situation.memory.end = Some(end_of_region(exchange)),
            "too_long" => situation.receive.length = 100,
            "op_error" => situation.receive.key = LKey(!LOCAL_KEY.0),
            _ => {}
        }
        situation
    }

    /// A receive request as the responder posted them.
    pub(crate) fn receive(&self) -> ReceiveRequest {
        ReceiveRequest { id: WorkId(0), sg_list: SgList::from(self.receive) }
    }
}

fn config(exchange: &Exchange, access: AccessFlags) -> Config {
    Config {
        role: Role::Both,
        number: exchange.responder,
        destination: exchange.requester,
        partition: PKey(0xffff),
        pd: PdId(0),
        mtu: exchange.mtu,
        send_psn: Psn(0),
        receive_psn: exchange.first_psn(),
        timeout: None,
        retry_count: 7,
        rnr_retry: 7,
        rnr_timer: RnrTimer::from_code(14).expect("5 bits"),
        max_rd_atomic: 4,
        max_dest_rd_atomic: 16,
        access,
        congestion: Congestion::Unlimited,
        send_capacity: 1,
    }
}

/// Every key that a request names.
fn keys(exchange: &Exchange) -> BTreeSet<u32> {
    let named = exchange.requests.iter().flat_map(|sent| {
        let headers = sent.packet().extensions;
        let reth = headers.reth.map(|reth| reth.key);
        [reth, headers.atomic.map(|atomic| atomic.key), headers.ieth.map(|ieth| ieth.key)]
    });
    named.flatten().map(|key| key.0).collect()
}

/// The only write of the capture goes one byte beyond the region.
fn end_of_region(exchange: &Exchange) -> u64 {
    let reth = exchange.requests[0].packet().extensions.reth.expect("a write");
    reth.address.0 + u64::from(reth.length) - 1
}

/// Where in memory the packets of WRITEs, READs and atomics have their bytes.
struct Places {
    mtu: u32,
    /// First PSN, packets, address.
    messages: Vec<(Psn, u32, u64)>,
}

impl Places {
    fn of(exchange: &Exchange) -> Self {
        let mtu = u32::from(exchange.mtu);
        let messages = exchange.requests.iter().filter_map(|sent| {
            let packet = sent.packet();
            let headers = packet.extensions;
            let (address, length) = (headers.reth.map(|reth| (reth.address, reth.length)))
                .or(headers.atomic.map(|atomic| (atomic.address, 8)))?;
            Some((packet.bth.psn, length.div_ceil(mtu).max(1), address.0))
        });
        Self { mtu, messages: messages.collect() }
    }

    fn address(&self, psn: Psn) -> Option<u64> {
        self.messages.iter().find_map(|&(first, packets, address)| {
            let index = u32::try_from(psn.distance(first)).ok().filter(|&index| index < packets)?;
            Some(address + u64::from(index * self.mtu))
        })
    }

    /// The bytes of memory that an answer tells, and where they are.
    fn told(&self, sent: &Sent) -> Option<(u64, Vec<u8>)> {
        let answer = Answer::of(&sent.packet());
        let bytes = match answer.original {
            Some(original) => original.0.to_le_bytes().to_vec(),
            None => answer.payload,
        };
        self.address(answer.bth.psn).filter(|_| !bytes.is_empty()).map(|address| (address, bytes))
    }
}

/// What was in memory before the first request: what READs and atomics found in places that no WRITE had touched. In
/// all other places our responder must find what it was made to write itself.
fn initial(exchange: &Exchange) -> BTreeMap<u64, u8> {
    let places = Places::of(exchange);
    let mut written = BTreeSet::new();
    let mut found = BTreeMap::new();
    let mut requests = exchange.requests.iter().peekable();
    for answer in &exchange.answers {
        while let Some(request) = requests.next_if(|request| request.number < answer.number) {
            let packet = request.packet();
            if request.info().operation == Operation::Write {
                let start = places.address(packet.bth.psn).expect("a write has an address");
                written.extend(start..start + packet.payload.len() as u64);
            }
        }
        if let Some((address, bytes)) = places.told(answer) {
            for (at, byte) in (address..).zip(bytes) {
                if !written.contains(&at) {
                    found.entry(at).or_insert(byte);
                }
            }
        }
    }
    found
}

/// What each READ found, by its PSN.
fn refreshed(exchange: &Exchange) -> BTreeMap<u32, Vec<(u64, Vec<u8>)>> {
    let places = Places::of(exchange);
    let reads =
        exchange.requests.iter().filter(|one| one.info().operation == Operation::ReadRequest);
    let found = reads.map(|read| {
        let packet = read.packet();
        let reth = packet.extensions.reth.expect("a READ has a RETH");
        let packets = reth.length.div_ceil(places.mtu).max(1) as i32;
        let answers = exchange.answers.iter().filter(|answer| {
            (0..packets).contains(&answer.packet().bth.psn.distance(packet.bth.psn))
        });
        (packet.bth.psn.0, answers.filter_map(|answer| places.told(answer)).collect())
    });
    found.collect()
}
