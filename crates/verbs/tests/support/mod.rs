//! Two ends of a connection, for the tests of this crate.
#![allow(dead_code, unreachable_pub)] // Each test binary uses some of it.

pub mod other;

use ferroce::*;
use ferroce_test_support as _;

pub const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// One end: a QP with its CQ and an MR.
pub struct Side {
    pub context: Context,
    pub pd: ProtectionDomain,
    pub region: MemoryRegion,
    pub completions: CompletionQueue,
    pub queue_pair: QueuePair,
}

/// Options for tests that have to pass over shared memory and over sockets: `FERROCE_LOCAL` chooses.
pub fn options() -> Options {
    Options::from_env().unwrap()
}

/// Options for tests of what happens to packets in sockets.
pub fn over_sockets() -> Options {
    Options { local: Local::Sockets, ..Options::default() }
}

/// Opens the loopback device, which every host has.
pub fn open(options: &Options) -> Context {
    Context::open(&Device::named("lo").unwrap(), options).unwrap()
}

/// Opens the loopback device at a port that only this process uses. On the common port, processes come and go, and packets
/// are forwarded between them: UC and UD may lose some then.
pub fn open_alone(options: &Options) -> Context {
    open(&Options { port: own_port(), ..options.clone() })
}

/// The port of [`open_alone`].
pub fn own_port() -> u16 {
    20_000 + (std::process::id() % 10_000) as u16
}

/// Returns the index of a GID of this address family.
pub fn gid_index(context: &Context, ipv6: bool) -> Option<u8> {
    let gids = context.device().gids();
    gids.iter().position(|entry| entry.address.is_ipv6() == ipv6).map(|index| index as u8)
}

pub fn side(context: &Context, service: ServiceType, bytes: usize) -> Side {
    let pd = context.protection_domain();
    let channel = CompletionChannel::new().unwrap();
    let completions = context.completion_queue(4096, Some(&channel)).unwrap();
    let region = pd.allocate(bytes, ACCESS).unwrap();
    let queue_pair = pd.queue_pair(&QueuePairOptions::new(service, &completions)).unwrap();
    Side { context: context.clone(), pd, region, completions, queue_pair }
}

/// Returns the attributes of all transitions from RESET to RTS.
pub fn attributes(context: &Context, index: u8, peer: Qpn, mtu: usize) -> QueuePairAttributes {
    let destination = context.device().gids()[usize::from(index)].gid;
    QueuePairAttributes {
        access: Some(ACCESS),
        partition: Some(0),
        port: Some(1),
        queue_key: Some(QKey(0x1234)),
        path: Some(AddressVector {
            port: 1,
            source_index: index,
            destination,
            ..AddressVector::default()
        }),
        path_mtu: PathMtu::from_bytes(mtu),
        destination: Some(peer),
        receive_psn: Some(Psn(0xff_fff0)),
        send_psn: Some(Psn(0xff_fff0)),
        max_rd_atomic: Some(16),
        max_dest_rd_atomic: Some(16),
        min_rnr_timer: RnrTimer::from_code(1),
        // 134 ms: a busy host may delay a peer for that long once, but not 8 times in a row.
        timeout: Some(AckTimeout(15)),
        retry_count: Some(7),
        rnr_retry: Some(RnrRetry(7)),
        ..QueuePairAttributes::default()
    }
}

/// Brings a QP to RTS, with the attributes that the state table requires at each step.
pub fn bring_up(queue_pair: &QueuePair, attributes: &QueuePairAttributes) {
    let service = queue_pair.service();
    for (from, to) in [
        (State::Reset, State::Init),
        (State::Init, State::ReadyToReceive),
        (State::ReadyToReceive, State::ReadyToSend),
    ] {
        let mut change = QueuePairAttributes { state: Some(to), ..*attributes };
        let rule = rule(service, from, to).unwrap();
        change.clear(change.attributes() - rule.required - AttributeMask::STATE);
        queue_pair.modify(&change).unwrap();
    }
}

pub fn connect(one: &Side, other: &Side, index: u8, mtu: usize) {
    for (side, peer) in [(one, other), (other, one)] {
        let attributes = attributes(&side.context, index, peer.queue_pair.number(), mtu);
        bring_up(&side.queue_pair, &attributes);
    }
}

/// Returns bytes that differ from offset to offset.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    bytes.truncate(length);
    bytes
}

impl Side {
    pub fn data(&self, offset: u64, length: usize) -> Data {
        Data::SgList(self.region.sge(offset, length as u32).into())
    }

    pub fn post(&self, id: u64, operation: Operation, offset: u64, length: usize) {
        let request = SendRequest::new(WorkId(id), operation, self.data(offset, length));
        self.queue_pair.post_send(request).unwrap();
    }

    pub fn post_receive(&self, id: u64, offset: u64, length: usize) {
        let sg_list = self.region.sge(offset, length as u32).into();
        self.queue_pair.post_receive(ReceiveRequest { id: WorkId(id), sg_list }).unwrap();
    }

    /// Waits for the successful completion of this request.
    pub fn expect(&self, id: u64) -> WorkCompletion {
        let done = self.completions.wait().unwrap();
        assert_eq!((done.id, done.status), (WorkId(id), Status::Success), "{done:?}");
        done
    }

    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.region.read(offset, &mut bytes).unwrap();
        bytes
    }
}
