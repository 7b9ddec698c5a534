//! What is counted.

use ferroce::{
    AccessFlags, AckTimeout, AddressVector, AttributeMask, CompletionQueue, Context, Data, Device,
    Local, MemoryRegion, Operation, Options, PathMtu, Psn, QueuePair, QueuePairAttributes,
    QueuePairOptions, ReceiveRequest, RnrRetry, RnrTimer, SendRequest, ServiceType, State, Status,
    WorkId, rule,
};

pub(crate) struct Row {
    pub(crate) name: &'static str,
    local: Local,
    verb: Verb,
    bytes: u32,
    mtu: usize,
    queue_pairs: usize,
    /// By how many per cent the count may differ: over sockets the kernel decides how packets are batched.
    pub(crate) tolerance: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Verb {
    Send,
    Write,
    Read,
}

const fn ring(name: &'static str, verb: Verb, bytes: u32, queue_pairs: usize) -> Row {
    Row { name, local: Local::Memory, verb, bytes, mtu: 4096, queue_pairs, tolerance: 2.0 }
}

const fn sockets(name: &'static str, verb: Verb, bytes: u32, mtu: usize) -> Row {
    Row { name, local: Local::Sockets, verb, bytes, mtu, queue_pairs: 1, tolerance: 5.0 }
}

pub(crate) const ROWS: &[Row] = &[
    ring("ring SEND 64 B", Verb::Send, 64, 1),
    ring("ring WRITE 64 B", Verb::Write, 64, 1),
    ring("ring READ 64 B", Verb::Read, 64, 1),
    ring("ring WRITE 64 KiB", Verb::Write, 65_536, 1),
    ring("ring WRITE 64 B, 1000 QPs", Verb::Write, 64, 1_000),
    sockets("sockets SEND 64 B", Verb::Send, 64, 4096),
    sockets("sockets WRITE 64 KiB MTU 1024", Verb::Write, 65_536, 1024),
    sockets("sockets WRITE 64 KiB MTU 4096", Verb::Write, 65_536, 4096),
];

const ACCESS: AccessFlags =
    AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);

/// One end: an open device with a CQ, an MR and its QPs.
struct End {
    context: Context,
    region: MemoryRegion,
    completions: CompletionQueue,
    queue_pairs: Vec<QueuePair>,
}

impl End {
    fn open(row: &Row, options: &Options) -> Self {
        let context = Context::open(&Device::named("lo").unwrap(), options).unwrap();
        let pd = context.protection_domain();
        let completions = context.completion_queue(4096, None).unwrap();
        let region = pd.allocate(row.bytes as usize, ACCESS).unwrap();
        let options = QueuePairOptions::new(ServiceType::ReliableConnection, &completions);
        let queue_pairs = (0..row.queue_pairs).map(|_| pd.queue_pair(&options).unwrap()).collect();
        Self { context, region, completions, queue_pairs }
    }

    fn connect(&self, peer: &Self, mtu: usize) {
        for (queue_pair, other) in self.queue_pairs.iter().zip(&peer.queue_pairs) {
            let attributes = QueuePairAttributes {
                access: Some(ACCESS),
                partition: Some(0),
                port: Some(1),
                path: Some(AddressVector {
                    port: 1,
                    destination: peer.context.device().gids()[0].gid,
                    ..AddressVector::default()
                }),
                path_mtu: PathMtu::from_bytes(mtu),
                destination: Some(other.number()),
                receive_psn: Some(Psn(0)),
                send_psn: Some(Psn(0)),
                max_rd_atomic: Some(16),
                max_dest_rd_atomic: Some(16),
                min_rnr_timer: RnrTimer::from_code(1),
                // 2 s: no timer expires while callgrind runs.
                timeout: Some(AckTimeout(19)),
                retry_count: Some(7),
                rnr_retry: Some(RnrRetry(7)),
                ..QueuePairAttributes::default()
            };
            for (from, to) in [
                (State::Reset, State::Init),
                (State::Init, State::ReadyToReceive),
                (State::ReadyToReceive, State::ReadyToSend),
            ] {
                let mut change = QueuePairAttributes { state: Some(to), ..attributes };
                let rule = rule(ServiceType::ReliableConnection, from, to).unwrap();
                change.clear(change.attributes() - rule.required - AttributeMask::STATE);
                queue_pair.modify(&change).unwrap();
            }
        }
    }
}

impl Row {
    /// How many messages are counted.
    pub(crate) fn messages(&self) -> u64 {
        if self.bytes > 4096 { 200 } else { 2_000 }
    }

    /// How many messages are in flight together.
    fn batch(&self) -> u64 {
        if self.bytes > 4096 { 4 } else { 8 }
    }
}

/// Exchanges the messages of a row, after some that are not counted.
pub(crate) fn run(row: &Row) {
    let options = Options { local: row.local, port: 20_791, ..Options::default() };
    let requester = End::open(row, &options);
    // Other options: a device of its own, as another process has.
    let responder = End::open(row, &Options { shards: Some(1), ..options });
    requester.connect(&responder, row.mtu);
    responder.connect(&requester, row.mtu);
    // With the device threads: the first messages set up the rings.
    exchange(row, &requester, &responder, row.queue_pairs.max(64) as u64);
    let _paused = (requester.context.pause_thread(), responder.context.pause_thread());
    exchange(row, &requester, &responder, row.messages() / 2);
    counted_messages(row, &requester, &responder);
}

/// Callgrind counts while this function runs.
#[inline(never)]
fn counted_messages(row: &Row, requester: &End, responder: &End) {
    exchange(row, requester, responder, row.messages());
    std::hint::black_box(row);
}

/// Exchanges messages in batches, each over the next QP in turn, and polls both ends in turn.
fn exchange(row: &Row, requester: &End, responder: &End, messages: u64) {
    let (mut posted, mut expected) = (0, 0);
    while posted < messages {
        while posted < messages && expected < row.batch() {
            expected += post(row, requester, responder, posted);
            posted += 1;
        }
        while expected > 0 {
            for end in [responder, requester] {
                end.completions.poll_with(16, |done| {
                    assert_eq!(done.status, Status::Success);
                    expected -= 1;
                });
            }
        }
    }
}

/// Posts one message, and returns the number of its completions.
fn post(row: &Row, requester: &End, responder: &End, message: u64) -> u64 {
    let index = message as usize % requester.queue_pairs.len();
    let remote = responder.region.remote(0);
    let operation = match row.verb {
        Verb::Send => Operation::Send { immediate: None, invalidate: None },
        Verb::Write => Operation::Write { remote, immediate: None },
        Verb::Read => Operation::Read { remote },
    };
    if row.verb == Verb::Send {
        let sg_list = responder.region.sge(0, row.bytes).into();
        let receive = ReceiveRequest { id: WorkId(message), sg_list };
        responder.queue_pairs[index].post_receive(receive).unwrap();
    }
    let data = Data::SgList(requester.region.sge(0, row.bytes).into());
    let request = SendRequest::new(WorkId(message), operation, data);
    requester.queue_pairs[index].post_send(request).unwrap();
    1 + u64::from(row.verb == Verb::Send)
}
