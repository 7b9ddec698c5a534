//! The patterns, and the flows of each.

use std::fmt;
use std::str::FromStr;

use super::plan::{NewFlow, Plan};
use crate::random::Random;
use crate::rdma::workload::{UnknownName, named};

named! {
    /// Which hosts send to which, and when.
    "a pattern", Pattern {
        /// All other hosts WRITE to host 0.
        Incast = "incast",
        /// Each host WRITEs to one other host and receives from one, drawn from the seed.
        Permutation = "permutation",
        /// Each host WRITEs to every other host.
        AllToAll = "all-to-all",
        /// Ring all-reduce: 2 (n - 1) steps, each a WRITE of 1/n of the data to the next host, which begins the next
        /// step when it has received it.
        Allreduce = "allreduce",
        /// All other hosts WRITE to host 0, which WRITEs to all of them when it has received everything.
        ParameterServer = "parameter-server",
        /// A quarter of the hosts are servers; the others each have 4 requests outstanding to random servers, 70 %
        /// READs and 30 % WRITEs.
        Storage = "storage",
    }
}

/// Requests of a storage client per round.
const STORAGE_REQUESTS: u32 = 8;

/// Requests that a storage client has outstanding.
const STORAGE_DEPTH: usize = 4;

/// READs of a storage client, in percent.
const STORAGE_READS: u64 = 70;

impl Pattern {
    /// Returns all flows among `hosts` hosts.
    pub(super) fn plan(self, hosts: u32, bytes: u32, rounds: u32, seed: u64) -> Plan {
        let mut plan = Plan::new(hosts);
        let mut random = Random::new(seed).stream("pattern");
        match self {
            Self::Incast => {
                for host in 1..hosts {
                    repeat(&mut plan, NewFlow::write(host, 0, bytes), rounds);
                }
            }
            Self::Permutation => {
                let mut order: Vec<u32> = (0..hosts).collect();
                random.shuffle(&mut order);
                // One cycle through all hosts: nobody sends to itself.
                for (at, &host) in order.iter().enumerate() {
                    let next = order[(at + 1) % order.len()];
                    repeat(&mut plan, NewFlow::write(host, next, bytes), rounds);
                }
            }
            Self::AllToAll => {
                // Shifted, so that the hosts do not all begin with the same receiver.
                for shift in 1..hosts {
                    for host in 0..hosts {
                        let to = (host + shift) % hosts;
                        repeat(&mut plan, NewFlow::write(host, to, bytes), rounds);
                    }
                }
            }
            Self::Allreduce => allreduce(&mut plan, hosts, bytes, rounds),
            Self::ParameterServer => parameter_server(&mut plan, hosts, bytes, rounds),
            Self::Storage => storage(&mut plan, hosts, bytes, rounds, &mut random),
        }
        plan
    }
}

/// Adds a flow that is repeated when it has completed.
fn repeat(plan: &mut Plan, flow: NewFlow, rounds: u32) {
    let mut after = None;
    for round in 1..=rounds {
        let done = (round < rounds).then(|| plan.gate(flow.from, 1));
        plan.add(NewFlow { after, done, ..flow });
        after = done;
    }
}

fn allreduce(plan: &mut Plan, hosts: u32, bytes: u32, rounds: u32) {
    let (chunk, steps) = (bytes.div_ceil(hosts).max(1), 2 * (hosts - 1) * rounds);
    let mut after: Vec<Option<u32>> = vec![None; hosts as usize];
    for step in 1..=steps {
        let last = step == steps;
        let received: Vec<_> = (0..hosts).map(|host| (!last).then(|| plan.gate(host, 1))).collect();
        for host in 0..hosts {
            let to = (host + 1) % hosts;
            let flow = NewFlow::write(host, to, chunk);
            plan.add(NewFlow {
                after: after[host as usize],
                notify: received[to as usize],
                ..flow
            });
        }
        after = received;
    }
}

fn parameter_server(plan: &mut Plan, hosts: u32, bytes: u32, rounds: u32) {
    let mut weights: Vec<Option<u32>> = vec![None; hosts as usize];
    for round in 1..=rounds {
        let gradients = Some(plan.gate(0, hosts - 1));
        for worker in 1..hosts {
            let after = weights[worker as usize];
            plan.add(NewFlow { after, notify: gradients, ..NewFlow::write(worker, 0, bytes) });
        }
        for worker in 1..hosts {
            let notify = (round < rounds).then(|| plan.gate(worker, 1));
            plan.add(NewFlow { after: gradients, notify, ..NewFlow::write(0, worker, bytes) });
            weights[worker as usize] = notify;
        }
    }
}

fn storage(plan: &mut Plan, hosts: u32, bytes: u32, rounds: u32, random: &mut Random) {
    let servers = (hosts / 4).max(1);
    for client in servers..hosts {
        let mut done = Vec::new();
        for request in 0..(STORAGE_REQUESTS * rounds) as usize {
            let server = random.below(u64::from(servers)) as u32;
            let read = random.below(100) < STORAGE_READS;
            let after = request.checked_sub(STORAGE_DEPTH).map(|before| done[before]);
            let gate = plan.gate(client, 1);
            done.push(gate);
            let flow = NewFlow::write(client, server, bytes);
            plan.add(NewFlow { read, after, done: Some(gate), ..flow });
        }
    }
}
