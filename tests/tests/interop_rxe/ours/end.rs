//! The device, memory and completion queue that every program of ours needs.

use ferroce::*;

use super::Task;

/// All that peers can be allowed to do.
pub(crate) const ALL: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// The Q_Key of `ibv_ud_pingpong`.
pub(crate) const QUEUE_KEY: QKey = QKey(0x1111_1111);

/// A queue pair of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partner {
    pub number: Qpn,
    /// The PSN of its first request.
    pub psn: Psn,
    pub gid: Gid,
}

/// Our device with memory and a completion queue.
pub(crate) struct End {
    pub context: Context,
    pub pd: ProtectionDomain,
    pub region: MemoryRegion,
    pub completions: CompletionQueue,
    pub source: u8,
    pub gid: Gid,
    pub mtu: PathMtu,
    events: bool,
}

impl End {
    /// Opens the device that has our address.
    pub(crate) fn open(task: &Task, bytes: usize) -> Self {
        let (device, source) = Device::with_address((task.here(), 0).into()).expect("our device");
        let context = Context::open(&device, &Options::default()).expect("an open device");
        Self::of(&context, source, task, bytes)
    }

    pub(crate) fn of(context: &Context, source: u8, task: &Task, bytes: usize) -> Self {
        let pd = context.protection_domain();
        let channel = CompletionChannel::new().expect("a channel");
        let completions = context.completion_queue(4096, Some(&channel)).expect("a queue");
        Self {
            region: pd.allocate(bytes, ALL).expect("memory"),
            gid: Gid::from_ip(task.here()),
            mtu: PathMtu::from_bytes(task.mtu).expect("a path MTU"),
            events: task.events,
            context: context.clone(),
            pd,
            completions,
            source,
        }
    }

    pub(crate) fn queue_pair(&self, service: ServiceType) -> QueuePair {
        let options = QueuePairOptions::new(service, &self.completions);
        self.pd.queue_pair(&options).expect("a queue pair")
    }

    /// Returns the address vector of a partner.
    pub(crate) fn path(&self, destination: Gid) -> AddressVector {
        AddressVector { port: 1, source_index: self.source, destination, ..Default::default() }
    }

    /// Returns all attributes that a queue pair needs to reach RTS, with the timeouts that the pingpongs choose.
    pub(crate) fn attributes(&self, psn: Psn, partner: &Partner) -> QueuePairAttributes {
        QueuePairAttributes {
            access: Some(ALL),
            partition: Some(0),
            port: Some(1),
            queue_key: Some(QUEUE_KEY),
            path: Some(self.path(partner.gid)),
            path_mtu: Some(self.mtu),
            destination: Some(partner.number),
            receive_psn: Some(partner.psn),
            send_psn: Some(psn),
            max_rd_atomic: Some(4),
            max_dest_rd_atomic: Some(4),
            min_rnr_timer: RnrTimer::from_code(12),
            timeout: Some(AckTimeout(14)),
            retry_count: Some(7),
            rnr_retry: Some(RnrRetry(7)),
            ..QueuePairAttributes::default()
        }
    }

    /// Moves a queue pair to RTS, with the attributes that the state table requires at each step.
    pub(crate) fn connect(&self, queue_pair: &QueuePair, all: &QueuePairAttributes) {
        for (from, to) in [
            (State::Reset, State::Init),
            (State::Init, State::ReadyToReceive),
            (State::ReadyToReceive, State::ReadyToSend),
        ] {
            if queue_pair.state() != from {
                continue;
            }
            let mut change = QueuePairAttributes { state: Some(to), ..*all };
            let rule = rule(queue_pair.service(), from, to).expect("a way up");
            change.clear(change.attributes() - rule.required - AttributeMask::STATE);
            queue_pair.modify(&change).expect("a queue pair that comes up");
        }
    }

    /// Moves a queue pair from RESET to INIT, where receives can be posted.
    pub(crate) fn prepare(&self, queue_pair: &QueuePair, access: AccessFlags) {
        let datagram = queue_pair.service() == ServiceType::UnreliableDatagram;
        let change = QueuePairAttributes {
            state: Some(State::Init),
            access: (!datagram).then_some(access),
            partition: Some(0),
            port: Some(1),
            queue_key: datagram.then_some(QUEUE_KEY),
            ..QueuePairAttributes::default()
        };
        queue_pair.modify(&change).expect("a queue pair in INIT");
    }

    /// Waits for the next completion, of any status.
    pub(crate) fn next(&self) -> WorkCompletion {
        if self.events {
            return self.completions.wait().expect("a completion");
        }
        loop {
            if let Some(done) = self.completions.poll_one() {
                return done;
            }
            // Yields, because the machine shares these processors.
            std::thread::yield_now();
        }
    }

    /// Waits for the next completion, which must be successful.
    pub(crate) fn done(&self) -> WorkCompletion {
        let done = self.next();
        assert_eq!(done.status, Status::Success, "{done:?}");
        done
    }

    pub(crate) fn data(&self, offset: usize, length: usize) -> Data {
        Data::SgList(self.sg_list(offset, length))
    }

    pub(crate) fn sg_list(&self, offset: usize, length: usize) -> SgList {
        match length {
            0 => SgList::NONE,
            _ => self.region.sge(offset as u64, length as u32).into(),
        }
    }

    pub(crate) fn receive(&self, offset: usize, length: usize) -> ReceiveRequest {
        ReceiveRequest { id: WorkId(0), sg_list: self.sg_list(offset, length) }
    }

    pub(crate) fn post(&self, to: &QueuePair, operation: Operation, offset: usize, length: usize) {
        let request = SendRequest::new(WorkId(1), operation, self.data(offset, length));
        to.post_send(request).expect("a request that is taken");
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.region.write(offset, bytes).expect("room");
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.region.read(offset, &mut bytes).expect("so many bytes");
        bytes
    }
}

/// Returns bytes that depend on the offset and the seed: `puppet.c` has the same function.
pub(crate) fn pattern(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Asserts equality, and reports the first difference instead of both values.
pub(crate) fn same(found: &[u8], wanted: &[u8], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let differs = found.iter().zip(wanted).position(|(one, other)| one != other);
    assert_eq!(differs, None, "{what}: the first byte that is not as it was sent");
}
