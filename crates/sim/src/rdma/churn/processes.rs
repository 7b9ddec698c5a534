//! The hosts of a run: one on each machine, or several processes on each, which pause, end, and begin again.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_proto::time::Instant;

use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::fault::WhilePaused;
use crate::host::HostId;
use crate::random::Random;
use crate::rdma::host::{Machine, RdmaHost};
use crate::rdma::layout::{FIRST_QPN, address};
use crate::rdma::management::Management;
use crate::rdma::plan;
use crate::rdma::workload::Workload;

/// QPNs of a process, so that another one with the same slot has others.
const NUMBERS: u32 = 3000;

/// A host, whether it is up or not.
#[derive(Debug)]
struct Process {
    address: Ipv4Addr,
    /// Its machine, if it shares one, and its slot there.
    machine: Option<(Arc<Machine>, u8)>,
    /// How often it has begun.
    begun: u32,
    is_up: bool,
}

/// All hosts.
#[derive(Debug)]
pub(super) struct Processes {
    list: Vec<Process>,
    seed: u64,
    workload: Workload,
    /// When pauses end, and of which host.
    pauses: Vec<(Instant, HostId)>,
}

impl Processes {
    /// One host on each machine, or two to four if they are `shared`.
    pub(super) fn new(seed: u64, workload: Workload, shared: bool) -> Self {
        let mut random = Random::new(seed).stream("machines");
        let mut list = Vec::new();
        for number in 0..workload.hosts.max(2) as usize {
            let address = address(number);
            if !shared {
                list.push(Process { address, machine: None, begun: 0, is_up: true });
                continue;
            }
            let machine = Machine::new(random.stream("machine").substream(number as u64));
            for slot in 1..=random.between(2..=4) as u8 {
                let machine = Some((Arc::clone(&machine), slot));
                list.push(Process { address, machine, begun: 0, is_up: true });
            }
        }
        Self { list, seed, workload, pauses: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether they share machines.
    pub(super) fn share(&self) -> bool {
        self.list[0].machine.is_some()
    }

    pub(super) fn address(&self, host: usize) -> Ipv4Addr {
        self.list[host].address
    }

    /// The slot of a host, which is 0 if it shares its machine with none.
    pub(super) fn slot(&self, host: usize) -> u8 {
        self.list[host].machine.as_ref().map_or(0, |(_, slot)| *slot)
    }

    /// Makes a host, for the first time or again. Its memory is that of the caller.
    pub(super) fn make(&mut self, index: usize) -> RdmaHost {
        let Self { list, seed, workload, .. } = self;
        let process = &mut list[index];
        process.begun += 1;
        process.is_up = true;
        // Another process has other keys.
        let seed = *seed ^ u64::from(process.begun - 1) << 48;
        let mut host = plan::host_at(index, process.address, seed, workload);
        let mut random = Random::new(seed).stream("batches").substream(index as u64);
        host.batch = Duration::from_micros([0, 0, 5, 20][random.below(4) as usize]);
        host.received.limit = Some(64 << 10 << random.below(5));
        host.memory.slow_down(Random::new(seed).stream("memory").substream(index as u64));
        host.memory.fail_some();
        host.use_windows();
        let mut slot = None;
        if let Some((machine, number)) = &process.machine {
            let first = FIRST_QPN + (process.begun - 1) % 20 * NUMBERS;
            host.join(machine.begin(*number, HostId(index as u32)), first);
            slot = Some(*number);
        }
        let management = Management::of_programs(index as u64, random.next_u64(), slot);
        host.management = Some(Box::new(management));
        host
    }

    /// Adds a host to the fabric.
    pub(super) fn add<T: EventLog>(
        &self,
        index: usize,
        host: RdmaHost,
        fabric: &mut Fabric<RdmaHost, T>,
    ) {
        let Process { address, machine, .. } = &self.list[index];
        // Addresses of machines are distinct.
        let _ = match machine {
            Some((_, slot)) => fabric.add_process(host, (*address).into(), *slot),
            None => fabric.add_host(host, &[(*address).into()]),
        };
    }

    /// Ends a process, if it shares its machine. Returns whether it was up.
    pub(super) fn end<T: EventLog>(
        &mut self,
        index: usize,
        fabric: &mut Fabric<RdmaHost, T>,
    ) -> bool {
        let Some(host) = fabric.crash(HostId(index as u32)) else { return false };
        self.list[index].is_up = false;
        host.leave_machine().into_iter().for_each(|other| fabric.notify(other));
        true
    }

    /// A host that is down.
    pub(super) fn down(&self, random: &mut Random) -> Option<usize> {
        let down: Vec<usize> = (0..self.len()).filter(|&index| !self.list[index].is_up).collect();
        random.choose(&down).copied()
    }

    /// Pauses a host: mostly as long as it takes until it gets a processor.
    pub(super) fn pause<T: EventLog>(
        &mut self,
        index: usize,
        fabric: &mut Fabric<RdmaHost, T>,
        random: &mut Random,
    ) {
        let id = HostId(index as u32);
        if self.pauses.iter().any(|(_, paused)| *paused == id) {
            return;
        }
        let longest = [100, 2_000, 2_000, 40_000][random.below(4) as usize];
        let until = fabric.now() + Duration::from_micros(random.between(1..=longest));
        fabric.pause(id, WhilePaused::Wait);
        self.pauses.push((until, id));
    }

    /// The next host to resume until this time, or ever, and when.
    pub(super) fn next_resume(&mut self, until: Option<Instant>) -> Option<(Instant, HostId)> {
        let next = *self.pauses.iter().min()?;
        if until.is_some_and(|until| next.0 > until) {
            return None;
        }
        self.pauses.retain(|one| *one != next);
        Some(next)
    }
}
