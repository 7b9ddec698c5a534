//! Programs for RC, UC and XRC connections.

use ferroce_memory::WindowKind;
use ferroce_proto::memory::{AccessFlags, Bind};
use ferroce_proto::work::{
    Data, Operation, ReceiveRequest, RemoteAddress, SendRequest, SgList, Status, WorkId,
};
use ferroce_wire::number::{Immediate, LKey, RKey, VirtualAddress};
use ferroce_wire::transport::{FlushPlacement, FlushSelectivity};

use super::violation::{self, InvalidRequestInputs};
use super::{Effect, EndpointId, PostedProgram, Program, RegionLayout, Step};
use crate::random::Random;
use crate::rdma::host::{EndpointRq, RdmaHost};
use crate::rdma::layout::{NO_REMOTE_REGION, OTHER_PD_REGION, XRC_SRQS, srq_number};
use crate::rdma::memory::{BASE, PD, REMOTE, local};
use crate::rdma::workload::Service;
use crate::rdma::workload::Workload;

/// Placeholder for the end of the passive region until that is known.
const REGION_END: u64 = 1 << 62;

/// The bits in which the key of a bound window of the passive side differs from the first one.
const TAG_CHANGE: u32 = 0x5a;

/// A program under construction.
struct ProgramBuilder<'a> {
    service: Service,
    largest: usize,
    hosts: &'a mut [RdmaHost],
    active: EndpointId,
    passive: EndpointId,
    regions: [usize; 2],
    /// Their keys.
    lkeys: [LKey; 2],
    /// The regions of the active and the passive side.
    areas: [RegionLayout; 2],
    work: Vec<SendRequest>,
    steps: Vec<Step>,
    /// Receive buffers of the passive endpoint's own RQ.
    buffers: Vec<(usize, usize)>,
    counters: [usize; 2],
    /// The number of compare-and-swaps so far.
    swapped: u64,
    /// Windows of the passive side: type 1, and type 2 while it is valid.
    windows: Vec<RKey>,
    invalid: Option<RKey>,
    /// A window of the active side, whether it is bound, and how often its key changed.
    own: RKey,
    own_bound: bool,
    own_keys: u32,
}

/// Draws a program, posts the receive requests it needs, and creates its regions on both sides.
pub(in crate::rdma) fn connected(
    workload: &Workload,
    service: Service,
    [active, passive]: [EndpointId; 2],
    hosts: &mut [RdmaHost],
    random: &mut Random,
) -> PostedProgram {
    let largest = workload.largest as usize;
    let mut areas =
        [RegionLayout::new(largest + 64, random), RegionLayout::new(largest + 64, random)];
    let counters = [areas[1].counter(), areas[1].counter()];
    let windows = windows(service, passive, hosts, random);
    let access = REMOTE | AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
    let mut lkeys = [LKey(0); 2];
    // Two different hosts: no host is its own peer.
    let regions = [0, 1].map(|side| {
        let memory = &mut hosts[[active, passive][side].host].memory;
        let region = memory.add(Vec::new(), PD, access);
        lkeys[side] = memory.lkey(region);
        region
    });
    let mut draft = ProgramBuilder {
        service,
        largest,
        regions,
        lkeys,
        own: hosts[active.host].memory.add_window(WindowKind::Type2),
        hosts,
        active,
        passive,
        areas,
        work: Vec::new(),
        steps: Vec::new(),
        buffers: Vec::new(),
        counters,
        swapped: 0,
        windows: windows.clone(),
        invalid: None,
        own_bound: false,
        own_keys: 0,
    };
    let requests = workload.requests as usize;
    let violation = (random.below(5) == 0).then(|| random.below(requests as u64) as usize);
    for id in 0..requests {
        if violation == Some(id) {
            draft.invalid_request(random);
        } else {
            draft.step(random);
        }
        let signaled = id + 1 == requests || random.below(4) > 0;
        if let (Some(request), Some(step)) = (draft.work.last_mut(), draft.steps.last_mut()) {
            request.signaled = signaled;
            request.solicited = random.below(8) == 0;
            request.fence |= random.below(8) == 0;
            step.signaled = signaled;
        }
    }
    draft.finish(&windows)
}

/// Adds unbound windows through which the program accesses the passive side.
fn windows(
    service: Service,
    passive: EndpointId,
    hosts: &mut [RdmaHost],
    random: &mut Random,
) -> Vec<RKey> {
    // An XRC target has no SQ to bind windows with, and over UC the active side would not know when they are bound.
    if service != Service::Reliable || random.below(2) == 0 {
        return Vec::new();
    }
    let memory = &mut hosts[passive.host].memory;
    let kinds = [WindowKind::Type1, WindowKind::Type2];
    kinds.map(|kind| RKey(memory.add_window(kind).0 ^ TAG_CHANGE)).to_vec()
}

impl ProgramBuilder<'_> {
    fn push(&mut self, operation: Operation, data: Data, effect: Effect) {
        let mut request = SendRequest::new(WorkId(self.work.len() as u64), operation, data);
        request.fence = matches!(operation, Operation::Send { invalidate: Some(_), .. });
        self.work.push(request);
        self.steps.push(Step { effect, signaled: true, fails: None });
    }

    /// Sets the SRQ of an XRC request, and posts a receive request for a message.
    fn post_receive(&mut self, random: &mut Random) {
        let Some(step) = self.steps.last() else { return };
        let (consumes, length) = match step.effect {
            Effect::Sent { length, .. } => (true, length),
            effect => (effect.consumes_receive(), 0),
        };
        let mut shared = None;
        if self.service == Service::Extended {
            let queue = XRC_SRQS[random.below(XRC_SRQS.len() as u64) as usize];
            shared = Some(queue);
            if let Some(request) = self.work.last_mut() {
                let remote = !request.operation.is_local();
                request.receive_queue = remote.then_some(srq_number(queue));
            }
        }
        let host = &mut self.hosts[self.passive.host];
        if !consumes {
            return;
        }
        let endpoint = &host.endpoints[self.passive.index];
        match endpoint.rq {
            EndpointRq::Own(_) => {
                let capacity = length + random.below(64) as usize;
                let at = self.areas[1].allocate(capacity);
                let id = WorkId(self.buffers.len() as u64);
                let sg_list = SgList::from(local(self.lkeys[1], at, capacity));
                // The RQ has capacity for one per request.
                let _ = endpoint.receives().post(ReceiveRequest { id, sg_list });
                self.buffers.push((at, capacity));
            }
            EndpointRq::Shared(queue) => shared = Some(queue),
            EndpointRq::Xrc => {}
        }
        if let Some(shared) = shared {
            // Any message of any endpoint may consume it, so each buffer fits the largest.
            let queue = &mut host.srqs[shared];
            let lkey = host.memory.lkey(queue.region);
            let bytes = &mut host.memory.regions[queue.region].bytes;
            let at = bytes.len();
            bytes.resize(at + self.largest + 8, super::FILL);
            let id = WorkId(queue.buffers.len() as u64);
            let sg_list = SgList::from(local(lkey, at, self.largest));
            let _ = queue.queue().post(ReceiveRequest { id, sg_list });
            queue.buffers.push((at, self.largest));
        }
    }

    /// Returns a remote address, by the region's key or through a window.
    fn remote(&self, at: usize, random: &mut Random) -> RemoteAddress {
        let through = if random.below(2) == 0 { None } else { random.choose(&self.windows) };
        let key = through.copied().unwrap_or(RKey(self.lkeys[1].0));
        RemoteAddress { address: VirtualAddress(BASE + at as u64), key }
    }

    /// Returns local data: one SGE, two SGEs, or inline.
    fn gather(&self, from: usize, length: usize, random: &mut Random) -> Data {
        match random.below(4) {
            0 if length <= 256 => Data::Inline(self.areas[0].bytes[from..][..length].into()),
            1 => self.pieces(from, length, random),
            _ => Data::SgList(SgList::from(local(self.lkeys[0], from, length))),
        }
    }

    fn pieces(&self, at: usize, length: usize, random: &mut Random) -> Data {
        let cut = random.below(length as u64 + 1) as usize;
        let sg_list = [local(self.lkeys[0], at, cut), local(self.lkeys[0], at + cut, length - cut)];
        Data::SgList(SgList::from(&sg_list[..]))
    }

    /// Draws one request.
    fn step(&mut self, random: &mut Random) {
        let max = if random.below(4) == 0 { 300.min(self.largest) } else { self.largest };
        let length = random.below(max as u64 + 1) as usize;
        let from = random.below((self.largest + 64 - length) as u64 + 1) as usize;
        let immediate = (random.below(3) == 0).then(|| Immediate(random.next_u64() as u32));
        let kinds = if self.service == Service::Unreliable { 6 } else { 13 };
        match random.below(kinds) {
            0..=2 => {
                let to = self.areas[1].allocate(length);
                let operation = Operation::Write { remote: self.remote(to, random), immediate };
                let data = self.gather(from, length, random);
                self.push(operation, data, Effect::Written { from, to, length, immediate });
            }
            3..=5 => {
                let second = self.windows.get(1).copied().filter(|_| random.below(4) == 0);
                // A SEND has either immediate data or an invalidation.
                let immediate = immediate.filter(|_| second.is_none());
                if let Some(key) = second {
                    self.windows.truncate(1);
                    self.invalid = Some(key);
                }
                let operation = Operation::Send { immediate, invalidate: second };
                let data = self.gather(from, length, random);
                let invalidated = second;
                self.push(operation, data, Effect::Sent { from, length, immediate, invalidated });
            }
            6 | 7 => {
                let to = self.areas[0].allocate(length);
                let operation = Operation::Read { remote: self.remote(from, random) };
                let data = self.pieces(to, length, random);
                self.push(operation, data, Effect::Read { from, to, length });
            }
            8 => {
                let to = self.areas[0].allocate(8);
                let remote = self.remote(self.counters[0], random);
                let data = Data::SgList(SgList::from(local(self.lkeys[0], to, 8)));
                self.push(Operation::FetchAdd { remote, add: 1 }, data, Effect::Added { to });
            }
            9 => {
                let to = self.areas[0].allocate(8);
                let remote = self.remote(self.counters[1], random);
                let data = Data::SgList(SgList::from(local(self.lkeys[0], to, 8)));
                let (compare, swap) = (self.swapped, self.swapped + 1);
                self.swapped += 1;
                let operation = Operation::CompareSwap { remote, compare, swap };
                self.push(operation, data, Effect::Swapped { to });
            }
            10 => {
                let (to, length) = (self.areas[1].allocate(8), 8);
                let from = from.min(self.largest);
                let data = Data::SgList(SgList::from(local(self.lkeys[0], from, 8)));
                let operation = Operation::AtomicWrite { remote: self.remote(to, random) };
                let effect = Effect::Written { from, to, length, immediate: None };
                self.push(operation, data, effect);
            }
            11 => {
                let remote =
                    RemoteAddress { address: VirtualAddress(BASE), key: RKey(self.lkeys[1].0) };
                let operation = Operation::Flush {
                    remote,
                    length: 64,
                    selectivity: FlushSelectivity(0),
                    placement: FlushPlacement(1),
                };
                self.push(operation, Data::NONE, Effect::Nothing);
            }
            _ => self.own_window(),
        }
        self.post_receive(random);
    }

    /// Binds or invalidates a window of the active side, which no peer uses.
    fn own_window(&mut self) {
        let operation = if self.own_bound {
            Operation::LocalInvalidate { key: self.own }
        } else {
            let window = self.own;
            self.own_keys += 1;
            self.own = RKey(window.0 & 0xffff_ff00 | self.own_keys & 0xff);
            Operation::Bind(Bind {
                window,
                key: self.own,
                region: self.lkeys[0],
                address: VirtualAddress(BASE),
                length: 64,
                access: AccessFlags::REMOTE_READ,
            })
        };
        self.own_bound = !self.own_bound;
        self.push(operation, Data::NONE, Effect::Nothing);
    }

    /// Adds an invalid request.
    fn invalid_request(&mut self, random: &mut Random) {
        let id = WorkId(self.work.len() as u64);
        let length = random.below(self.largest as u64 + 1) as usize;
        let own_queue = matches!(
            self.hosts[self.passive.host].endpoints[self.passive.index].rq,
            EndpointRq::Own(_)
        );
        if self.service == Service::Reliable && own_queue && random.below(6) == 0 {
            return self.too_long(length.max(1));
        }
        let buffer = self.areas[0].allocate(length.max(8));
        let inputs = InvalidRequestInputs {
            service: self.service,
            local: self.lkeys[0],
            unbindable: self.hosts[self.active.host].memory.lkey(NO_REMOTE_REGION),
            remote: RKey(self.lkeys[1].0),
            no_remote: self.hosts[self.passive.host].memory.rkey(NO_REMOTE_REGION),
            other_pd: self.hosts[self.passive.host].memory.rkey(OTHER_PD_REGION),
            end: REGION_END,
            buffer,
            foreign: self.hosts[self.passive.host].window,
            invalid: self.invalid,
            own: self.own,
        };
        let (mut request, fails) = violation::invalid_request(id, length, &inputs, random);
        if self.service == Service::Extended && request.receive_queue.is_none() {
            let remote = !request.operation.is_local();
            request.receive_queue = remote.then_some(srq_number(XRC_SRQS[0]));
        }
        self.work.push(request);
        self.steps.push(Step { effect: Effect::Nothing, signaled: true, fails });
    }

    /// Adds a SEND that is longer than its receive request. All bytes but the last may be written.
    fn too_long(&mut self, length: usize) {
        let capacity = length - 1;
        let at = self.areas[1].allocate(capacity);
        let id = WorkId(self.buffers.len() as u64);
        let sg_list = SgList::from(local(self.lkeys[1], at, capacity));
        let endpoint = &self.hosts[self.passive.host].endpoints[self.passive.index];
        if let EndpointRq::Own(_) = endpoint.rq {
            let _ = endpoint.receives().post(ReceiveRequest { id, sg_list });
        }
        self.buffers.push((at, capacity));
        let data = Data::SgList(SgList::from(local(self.lkeys[0], 0, length)));
        self.push(Operation::SEND, data, Effect::Nothing);
        if let Some(step) = self.steps.last_mut() {
            step.fails = Some(Status::RemoteInvalidRequest);
        }
    }

    fn finish(mut self, windows: &[RKey]) -> PostedProgram {
        let [ours, theirs] = self.areas.map(RegionLayout::finish);
        let end = BASE + theirs.len() as u64;
        for request in &mut self.work {
            if let Operation::Write { remote, .. }
            | Operation::Read { remote }
            | Operation::FetchAdd { remote, .. } = &mut request.operation
            {
                // A request across the end of the region, which is known only now.
                let offset = remote.address.0.wrapping_sub(REGION_END) as i64;
                if offset.abs() <= 8 {
                    remote.address = VirtualAddress(end.wrapping_add_signed(offset));
                }
            }
        }
        let second = windows.get(1).copied();
        let window_binds = (0..).zip(windows).map(|(id, &window)| {
            let bind = Bind {
                window: RKey(window.0 ^ TAG_CHANGE),
                key: window,
                region: self.lkeys[1],
                address: VirtualAddress(BASE),
                length: theirs.len() as u64,
                access: REMOTE,
            };
            SendRequest::new(WorkId(id), Operation::Bind(bind), Data::NONE)
        });
        let window_binds = window_binds.collect();
        let before = [ours.clone(), theirs.clone()];
        self.hosts[self.active.host].memory.regions[self.regions[0]].bytes = ours;
        let host = &mut self.hosts[self.passive.host];
        host.memory.regions[self.regions[1]].bytes = theirs;
        host.window = host.window.or(second);
        let own = matches!(host.endpoints[self.passive.index].rq, EndpointRq::Own(_));
        let program = Program {
            active: self.active,
            passive: self.passive,
            steps: self.steps,
            regions: self.regions,
            before,
            buffers: own.then_some(self.buffers),
            counters: self.counters,
        };
        PostedProgram { program, work: self.work, window_binds }
    }
}
