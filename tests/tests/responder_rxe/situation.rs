//! The state of the responder before the first request, as implied by a capture: its QP, memory and receive requests.

use std::collections::{BTreeMap, BTreeSet};

use ferroce_proto::congestion::Congestion;
use ferroce_proto::memory::{AccessFlags, PdId, Sge};
use ferroce_proto::rc::{Config, Role};
use ferroce_proto::work::{ReceiveRequest, SgList, WorkId};
use ferroce_tests::exchange::{Exchange, Sent};
use ferroce_wire::number::{LKey, PKey, Psn, VirtualAddress};
use ferroce_wire::opcode::Operation;
use ferroce_wire::syndrome::RnrTimer;

use crate::memory::{LOCAL_KEY, SparseMemory};
use crate::response::{self, Response};

/// Captures in which the responder's program writes new text into its buffer before each READ.
const OWNER_WRITES: &[&str] = &["rping", "rping_v6"];

/// The responder before the first request.
pub(crate) struct Situation {
    pub(crate) config: Config,
    pub(crate) memory: SparseMemory,
    /// How often a receive request was missing, by the PSN of the message that needed it.
    pub(crate) not_ready: BTreeMap<u32, usize>,
    receive: Sge,
    /// Bytes that the owner of the memory wrote just before the READ with this PSN.
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
        for response in response::expected(exchange).iter().filter(|response| response.is_rnr_nak())
        {
            *situation.not_ready.entry(response.bth.psn.0).or_default() += 1;
        }
        if OWNER_WRITES.contains(&exchange.capture.as_str()) {
            situation.refreshed = refreshed(exchange);
        }
        // The capture shows an error of the requester only by the response; its cause follows from the purpose of the
        // capture.
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

    /// Returns a receive request like those that the responder posted.
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
        keepalive: None,
        send_capacity: 1,
    }
}

/// Returns every key in a request.
fn keys(exchange: &Exchange) -> BTreeSet<u32> {
    let named = exchange.requests.iter().flat_map(|sent| {
        let headers = sent.packet().extensions;
        let reth = headers.reth.map(|reth| reth.key);
        [reth, headers.atomic.map(|atomic| atomic.key), headers.ieth.map(|ieth| ieth.key)]
    });
    named.flatten().map(|key| key.0).collect()
}

/// The only WRITE of the capture exceeds the region by one byte.
fn end_of_region(exchange: &Exchange) -> u64 {
    let reth = exchange.requests[0].packet().extensions.reth.expect("a write");
    reth.address.0 + u64::from(reth.length) - 1
}

/// The addresses of the packets of WRITEs, READs and atomics.
struct PacketAddresses {
    mtu: u32,
    /// First PSN, packets, address.
    messages: Vec<(Psn, u32, u64)>,
}

impl PacketAddresses {
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

    /// Returns the bytes of memory in a response, and their address.
    fn contents(&self, sent: &Sent) -> Option<(u64, Vec<u8>)> {
        let response = Response::of(&sent.packet());
        let bytes = match response.original {
            Some(original) => original.0.to_le_bytes().to_vec(),
            None => response.payload,
        };
        self.address(response.bth.psn).filter(|_| !bytes.is_empty()).map(|address| (address, bytes))
    }
}

/// Returns the initial contents of memory: what READs and atomics found where no WRITE had written. Elsewhere our
/// responder must find what it wrote itself.
fn initial(exchange: &Exchange) -> BTreeMap<u64, u8> {
    let places = PacketAddresses::of(exchange);
    let mut written = BTreeSet::new();
    let mut found = BTreeMap::new();
    let mut requests = exchange.requests.iter().peekable();
    for response in &exchange.responses {
        while let Some(request) = requests.next_if(|request| request.number < response.number) {
            let packet = request.packet();
            if request.info().operation == Operation::Write {
                let start = places.address(packet.bth.psn).expect("a write has an address");
                written.extend(start..start + packet.payload.len() as u64);
            }
        }
        if let Some((address, bytes)) = places.contents(response) {
            for (at, byte) in (address..).zip(bytes) {
                if !written.contains(&at) {
                    found.entry(at).or_insert(byte);
                }
            }
        }
    }
    found
}

/// Returns what each READ found, by its PSN.
fn refreshed(exchange: &Exchange) -> BTreeMap<u32, Vec<(u64, Vec<u8>)>> {
    let places = PacketAddresses::of(exchange);
    let reads =
        exchange.requests.iter().filter(|one| one.info().operation == Operation::ReadRequest);
    let found = reads.map(|read| {
        let packet = read.packet();
        let reth = packet.extensions.reth.expect("a READ has a RETH");
        let packets = reth.length.div_ceil(places.mtu).max(1) as i32;
        let responses = exchange.responses.iter().filter(|response| {
            (0..packets).contains(&response.packet().bth.psn.distance(packet.bth.psn))
        });
        (packet.bth.psn.0, responses.filter_map(|response| places.contents(response)).collect())
    });
    found.collect()
}
