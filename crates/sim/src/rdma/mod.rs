//! Reliable connections on the fabric: random programs of work requests, checked to the last byte.
//!
//! A [`Simulation`] is a scenario, a seed and a size of workload; everything else follows from them. Two hosts hold a
//! number of connections, on each of which one side posts SENDs, WRITEs, READs and atomics. What must hold afterwards is
//! listed in `verify`; whatever does not is a violation, and a bug.

mod host;
mod memory;
mod program;
mod transfer;
mod verify;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use ferroce_proto::memory::AccessFlags;
use ferroce_proto::rc::Config;
use ferroce_proto::time::Instant;
use ferroce_proto::work::Status;
use ferroce_wire::number::{PKey, Psn, Qpn};
use ferroce_wire::syndrome::RnrTimer;

use crate::{Fabric, HostId, Random, Replay, Scenario, Totals, Trace};
use host::{FIRST_QPN, RdmaHost};
use memory::DOMAIN;
use program::Program;
pub use transfer::Transfer;

/// How much is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Connections between the two hosts.
    pub connections: u32,
    /// Work requests on each.
    pub requests: u32,
    /// Bytes of the largest message.
    pub largest: u32,
}

impl Default for Workload {
    fn default() -> Self {
        Self { connections: 4, requests: 16, largest: 9_000 }
    }
}

/// One run, told in full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulation {
    /// What the network does.
    pub scenario: Scenario,
    /// What everything is drawn from.
    pub seed: u64,
    /// What the hosts do.
    pub workload: Workload,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Virtual time until all was done.
    pub time: Duration,
    /// Events of the fabric.
    pub events: u64,
    /// Work requests posted.
    pub requests: u64,
    /// Those that ended well.
    pub succeeded: u64,
    /// Those that ended in an error of their own, by status.
    pub failed: Vec<(Status, u64)>,
    /// Bytes that successful requests moved.
    pub bytes: u64,
    /// Frames that receivers dropped for their ICRC, or could not read.
    pub damaged: u64,
    /// What the fabric counted.
    pub totals: Totals,
    /// A hash over everything that happened, in order.
    pub hash: u64,
    /// What should never happen, and did.
    pub violations: Vec<String>,
}

impl Simulation {
    /// The command that runs this again.
    pub fn replay(&self) -> Replay {
        Replay { scenario: self.scenario, seed: self.seed }
    }

    /// Runs it.
    pub fn run(&self) -> Summary {
        self.run_traced(()).0
    }

    /// Runs it, and hands everything that is sent to `trace`.
    pub fn run_traced<T: Trace>(&self, trace: T) -> (Summary, T) {
        let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let random = Random::new(self.seed).stream("workload");
        let mut hosts = addresses.map(RdmaHost::new);
        let programs: Vec<Program> = (0..self.workload.connections)
            .map(|number| {
                let mut random = random.substream(u64::from(number));
                self.connect(number, &mut hosts, addresses, &mut random)
            })
            .collect();

        let mut settings = self.scenario.settings(self.seed, 2);
        settings.limits.time = settings.limits.time.max(Instant::ZERO + Duration::from_secs(3600));
        let mut fabric = Fabric::with_trace(self.seed, settings, trace);
        let mut ids = Vec::new();
        let mut violations = Vec::new();
        for (host, address) in hosts.into_iter().zip(addresses) {
            match fabric.add_host(host, &[address.into()]) {
                Ok(id) => ids.push(id),
                Err(error) => violations.push(error.to_string()),
            }
        }
        let outcome = fabric.run();
        if !matches!(outcome, crate::Outcome::Idle) {
            violations.push(format!("the run did not come to an end: {outcome}"));
        }
        let summary = self.summarize(&fabric, &ids, &programs, violations);
        (summary, fabric.into_trace())
    }

    /// Sets up one connection and posts its program.
    fn connect(
        &self,
        number: u32,
        hosts: &mut [RdmaHost; 2],
        addresses: [Ipv4Addr; 2],
        random: &mut Random,
    ) -> Program {
        let mtu = [256, 512, 1024, 2048, 4096][random.below(5) as usize];
        let psns = [0, 1].map(|_| Psn::new(random.next_u64() as u32));
        for side in 0..2 {
            let config = Config {
                destination: Qpn(FIRST_QPN + number),
                partition: PKey(0xffff),
                domain: DOMAIN,
                mtu,
                send_psn: psns[side],
                receive_psn: psns[1 - side],
                timeout: Some(Duration::from_millis(1)),
                retry_count: 7,
                rnr_retry: 7,
                rnr_timer: RnrTimer::at_least(Duration::from_micros(20)),
                max_rd_atomic: 1 + random.below(8) as u8,
                max_dest_rd_atomic: 8,
                access: AccessFlags::REMOTE_WRITE
                    | AccessFlags::REMOTE_READ
                    | AccessFlags::REMOTE_ATOMIC,
                window: 32,
                send_capacity: self.workload.requests as usize,
            };
            hosts[side].connect(config, addresses[1 - side]);
        }
        Program::post(number as usize, &self.workload, hosts, random)
    }

    fn summarize<T: Trace>(
        &self,
        fabric: &Fabric<RdmaHost, T>,
        ids: &[HostId],
        programs: &[Program],
        mut violations: Vec<String>,
    ) -> Summary {
        let hosts: Vec<_> = ids.iter().map(|&id| fabric.host(id)).collect();
        let mut summary = Summary {
            time: fabric.now().since(Instant::ZERO),
            events: fabric.events(),
            requests: 0,
            succeeded: 0,
            failed: Vec::new(),
            bytes: 0,
            damaged: hosts.iter().flatten().map(|host| host.damaged).sum(),
            totals: fabric.totals(),
            hash: fabric.hash(),
            violations: Vec::new(),
        };
        for program in programs {
            summary.requests += program.len() as u64;
            // A host that crashed took its end with it: the other end is judged by itself.
            let active = hosts.get(program.active).copied().flatten();
            let passive = hosts.get(1 - program.active).copied().flatten();
            if let Some(active) = active {
                verify::verify(program, active, passive, &mut violations);
                for completion in &active.ends[program.number].sent {
                    match completion.status {
                        Status::Success => {
                            summary.succeeded += 1;
                            summary.bytes += u64::from(completion.length);
                        }
                        status => match summary.failed.iter_mut().find(|(one, _)| *one == status) {
                            Some((_, count)) => *count += 1,
                            None => summary.failed.push((status, 1)),
                        },
                    }
                }
            }
        }
        if !summary.totals.are_conserved() {
            violations.push("frames were lost without a cause".to_owned());
        }
        summary.violations = violations;
        summary
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  virtual time   {:?}, {} events", self.time, self.events)?;
        writeln!(
            f,
            "  work requests  {} posted, {} succeeded, {} bytes moved",
            self.requests, self.succeeded, self.bytes
        )?;
        for (status, count) in &self.failed {
            writeln!(f, "                 {count} ended with {status:?}")?;
        }
        writeln!(f, "  damaged        {} frames dropped by their receivers", self.damaged)?;
        writeln!(f, "  hash           {:016x}", self.hash)?;
        write!(f, "  violations     {}", self.violations.len())?;
        self.violations.iter().try_for_each(|one| write!(f, "\n    {one}"))
    }
}
