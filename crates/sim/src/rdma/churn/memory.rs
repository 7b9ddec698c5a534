//! The regions and shared receive queues of a host whose memory changes while traffic runs.

use std::collections::BTreeSet;

use ferroce_proto::memory::AccessFlags;
use ferroce_proto::work::{Completion, CompletionKind, ReceiveRequest, SgList, Status, WorkId};
use ferroce_wire::number::{LKey, RKey};

use super::{contents, pattern, read};
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::random::Random;
use crate::rdma::host::RdmaHost;
use crate::rdma::memory::{PD, REMOTE, Regions, local};

/// The bytes of a region behind the pattern that atomic operations change.
pub(super) const COUNTERS: usize = 64;

/// The contents of memory that no request may access any more.
const DEAD: u8 = 0xee;

/// Regions of a host that are registered at a time.
const REGISTERED: usize = 3;

/// A region, and which part of it is not accessible any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) region: usize,
    pub(super) lkey: LKey,
    dead: (usize, usize),
    /// It is deregistered.
    pub(super) revoked: bool,
}

impl Area {
    pub(super) fn rkey(&self) -> RKey {
        RKey(self.lkey.0)
    }

    fn deregister(&mut self, memory: &mut Regions, length: usize) {
        memory.deregister(self.region);
        (self.revoked, self.dead) = (true, (0, length));
        memory.write(self.region, 0, &vec![DEAD; length]);
    }

    /// Whether an access to a part must fail.
    pub(super) fn is_dead(&self, at: usize, length: usize) -> bool {
        at < self.dead.1 && self.dead.0 < at + length
    }
}

/// The regions of a host.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) largest: usize,
    areas: Vec<Area>,
    /// The regions whose deregistration waits for accesses that have not finished.
    waiting: Vec<usize>,
}

impl Pool {
    pub(super) fn new(memory: &mut Regions, largest: u32) -> Self {
        let mut pool =
            Self { largest: largest.max(8) as usize, areas: Vec::new(), waiting: Vec::new() };
        (0..REGISTERED).for_each(|_| pool.register(memory));
        pool
    }

    pub(super) fn length(&self) -> usize {
        self.largest.next_multiple_of(8) + COUNTERS
    }

    fn register(&mut self, memory: &mut Regions) {
        let mut bytes = contents(0, self.length());
        let counters = bytes.len() - COUNTERS;
        bytes[counters..].fill(0);
        let access = REMOTE | AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
        let region = memory.register(&bytes, PD, access);
        self.areas.push(Area { region, lkey: memory.lkey(region), dead: (0, 0), revoked: false });
    }

    /// Returns a region to access, which may be dead.
    pub(super) fn choose(&self, random: &mut Random) -> Area {
        let recent = self.areas.len() - REGISTERED;
        let index = match random.below(24) {
            0 if random.below(4) == 0 => random.below(self.areas.len() as u64) as usize,
            _ => recent + random.below(REGISTERED as u64) as usize,
        };
        self.areas[index]
    }

    /// Returns what is accessible of a region now.
    pub(super) fn find(&self, region: usize) -> Option<Area> {
        self.areas.iter().find(|area| area.region == region).copied()
    }

    /// Deregisters a region, or unmaps a part of it, and registers another one.
    pub(super) fn change(&mut self, memory: &mut Regions, unmaps: bool, random: &mut Random) {
        let (length, recent) = (self.length(), self.areas.len() - REGISTERED);
        let index = recent + random.below(REGISTERED as u64) as usize;
        let area = &mut self.areas[index];
        if unmaps {
            let at = random.below(length as u64) as usize;
            let end = at + 1 + random.below((length - at) as u64) as usize;
            memory.unmap(area.region, at, end - at);
            area.dead = (at, end);
            memory.write(area.region, at, &vec![DEAD; end - at]);
        } else if random.below(2) == 0 {
            // What was begun fails.
            area.deregister(memory, length);
        } else {
            self.waiting.push(area.region);
        }
        self.areas.swap(index, recent);
        self.register(memory);
        self.settle(memory);
    }

    /// Whether a deregistration waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Deregisters the regions that waited, and that nothing accesses any more.
    pub(super) fn settle(&mut self, memory: &mut Regions) {
        let length = self.length();
        let Self { areas, waiting, .. } = self;
        waiting.retain(|&region| {
            let waits = memory.is_accessed(region);
            let area = areas.iter_mut().find(|area| area.region == region);
            if let (false, Some(area)) = (waits, area) {
                area.deregister(memory, length);
            }
            waits
        });
    }

    /// Describes the first wrong byte.
    pub(super) fn verify(&self, memory: &Regions) -> Option<String> {
        let counters = self.length() - COUNTERS;
        self.areas.iter().find_map(|area| {
            let found = &memory.regions[area.region].bytes;
            let wrong = found.iter().enumerate().find(|&(at, &byte)| {
                let dead = area.is_dead(at, 1);
                if dead { byte != DEAD } else { at < counters && byte != pattern(at) }
            });
            let (at, byte) = wrong?;
            let kind = if area.is_dead(at, 1) { "deregistered or unmapped" } else { "registered" };
            Some(format!("{kind} region {} has {byte:#04x} at {at:#x}", area.region))
        })
    }
}

/// Receive requests with a buffer for each: the id is the number of the buffer.
#[derive(Debug)]
pub(super) struct Buffers {
    region: usize,
    lkey: LKey,
    size: usize,
    free: Vec<u64>,
    posted: BTreeSet<u64>,
}

impl Buffers {
    pub(super) fn new(memory: &mut Regions, count: usize, size: usize) -> Self {
        let region = memory.register(&vec![0; count * size], PD, AccessFlags::LOCAL_WRITE);
        let free = (0..count as u64).collect();
        Self { region, lkey: memory.lkey(region), size, free, posted: BTreeSet::new() }
    }

    /// Posts a request if there is a free buffer.
    pub(super) fn post(&mut self, post: impl FnOnce(ReceiveRequest) -> bool) {
        let Some(&id) = self.free.last() else { return };
        let sge = local(self.lkey, id as usize * self.size, self.size);
        if post(ReceiveRequest { id: WorkId(id), sg_list: SgList::from(sge) }) {
            self.free.pop();
            self.posted.insert(id);
        }
    }

    /// All requests were discarded.
    pub(super) fn reset(&mut self) {
        self.free.extend(std::mem::take(&mut self.posted));
    }

    pub(super) fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Verifies that the request of a completion was posted. Returns the message that it received.
    pub(super) fn complete(
        &mut self,
        memory: &Regions,
        done: &Completion,
    ) -> Result<Option<Vec<u8>>, String> {
        if !self.posted.remove(&done.id.0) {
            return Err(format!("receive request {} was not posted: {done:?}", done.id.0));
        }
        self.free.push(done.id.0);
        if done.status != Status::Success || done.kind != CompletionKind::Receive {
            return Ok(None);
        }
        let (at, length) = (done.id.0 as usize * self.size, done.length as usize);
        Ok(Some(read(memory, self.region, at, length)))
    }
}

/// An SRQ of a host.
#[derive(Debug)]
pub(super) struct SharedReceives {
    pub(super) host: usize,
    pub(super) srq: usize,
    pub(super) buffers: Buffers,
}

impl SharedReceives {
    pub(super) fn new(host: usize, srq: usize, memory: &mut Regions, largest: u32) -> Self {
        Self { host, srq, buffers: Buffers::new(memory, 32, largest.max(8) as usize) }
    }

    /// Posts requests, and arms the limit.
    pub(super) fn fill<T: EventLog>(
        &mut self,
        fabric: &mut Fabric<RdmaHost, T>,
        random: &mut Random,
    ) {
        let Self { srq, buffers, .. } = self;
        fabric.with_host(HostId(self.host as u32), |host, _| {
            let shared = &mut host.srqs[*srq];
            for _ in 0..random.between(1..=8) {
                buffers.post(|request| shared.queue().post(request).is_ok());
            }
            if shared.limit_events() > 0 || shared.limit == 0 {
                shared.arm_limit();
            }
        });
    }

    /// Verifies that the limit event is raised.
    pub(super) fn verify<T: EventLog>(&self, fabric: &mut Fabric<RdmaHost, T>) -> Option<String> {
        let shared = &fabric.host(HostId(self.host as u32))?.srqs[self.srq];
        let (left, limit, events) = (shared.queue().len(), shared.limit, shared.limit_events());
        let missed = left < limit && events == 0;
        (missed || events > 1).then(|| {
            let (host, srq) = (self.host, self.srq);
            format!("host {host}, SRQ {srq}: {events} limit events, {left} left, limit {limit}")
        })
    }
}
