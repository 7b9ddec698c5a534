//! The result of a run.

use std::fmt;
use std::time::Duration;

use ferroce_proto::time::Instant;
use ferroce_proto::work::Status;
use ferroce_wire::number::Qpn;

use super::host::RdmaHost;
use super::plan::Connection;
use super::program::Step;
use super::verify::{Hosts, ProgramResult};
use super::workload::Workload;
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::statistics::Totals;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The workload.
    pub workload: Workload,
    /// Virtual time of the run.
    pub time: Duration,
    /// Events of the fabric.
    pub events: u64,
    /// Work requests of all programs.
    pub requests: u64,
    /// Requests that succeeded.
    pub succeeded: u64,
    /// Requests that completed in error, by status.
    pub failed: Vec<(Status, u64)>,
    /// Requests that are invalid on purpose, and that were refused as they should be.
    pub refused: u64,
    /// Requests that were flushed because of those: behind them, or of the queue pair at the other side.
    pub flushed_by_refused: u64,
    /// The statuses of those that were refused.
    pub refused_statuses: Vec<(Status, u64)>,
    /// Requests of connections that were not established.
    pub unconnected: u64,
    /// Requests of hosts that crashed, whose result is not known.
    pub crashed: u64,
    /// Bytes that successful requests moved.
    pub bytes: u64,
    /// Requests that were held back, to leave with later ones.
    pub held: u64,
    /// Connections that were established by messages and disconnected in order.
    pub disconnected: u64,
    /// Connections that programs have established by messages while they ran.
    pub established: u64,
    /// Records that processes have read from transmit queues of others of their machine.
    pub records: u64,
    /// Frames that reached the wrong process of a machine, and were forwarded.
    pub forwarded: u64,
    /// Frames that receivers dropped because of a bad ICRC or header.
    pub damaged: u64,
    /// Counters of the fabric.
    pub totals: Totals,
    /// The hash of all frame events.
    pub hash: u64,
    /// The invariants that were violated.
    pub violations: Vec<String>,
    /// The hosts of the first connection with a violation, the active side first.
    pub suspects: Vec<HostId>,
    /// Their QPNs.
    pub suspect_pairs: Vec<Qpn>,
}

impl Summary {
    pub(super) fn new(workload: Workload) -> Self {
        Self {
            workload,
            time: Duration::ZERO,
            events: 0,
            requests: 0,
            succeeded: 0,
            failed: Vec::new(),
            refused: 0,
            flushed_by_refused: 0,
            refused_statuses: Vec::new(),
            unconnected: 0,
            crashed: 0,
            bytes: 0,
            held: 0,
            disconnected: 0,
            established: 0,
            records: 0,
            forwarded: 0,
            damaged: 0,
            totals: Totals::default(),
            hash: 0,
            violations: Vec::new(),
            suspects: Vec::new(),
            suspect_pairs: Vec::new(),
        }
    }

    /// Counts the results of a connection's requests.
    pub(super) fn count(
        &mut self,
        connection: &Connection,
        all: &[ProgramResult],
        hosts: &Hosts<'_>,
    ) {
        let programs =
            connection.programs.iter().map(|program| (program.active, program.steps.as_slice()));
        let datagrams =
            connection.datagrams.iter().map(|program| (program.active, program.steps.as_slice()));
        let programs = programs.chain(datagrams).zip(all);
        let is_refused = |steps: &[Step], progress: &ProgramResult| {
            let wrong = steps.get(progress.cause).and_then(|step| step.fails);
            wrong.is_some() && wrong == progress.failed
        };
        // It ends both queue pairs, so the requests of the other side are flushed, too.
        let any_refused =
            programs.clone().any(|((_, steps), progress)| is_refused(steps, progress));
        for ((active, steps), progress) in programs {
            let posted = steps.len() as u64;
            self.requests += posted;
            let Some(host) = hosts[active.host] else {
                self.crashed += posted;
                continue;
            };
            let endpoint = &host.endpoints[active.index];
            if endpoint.pending.is_some() {
                self.unconnected += posted;
                continue;
            }
            self.succeeded += progress.succeeded as u64;
            self.held += endpoint.poster.as_ref().map_or(0, |poster| poster.held);
            let moved =
                endpoint.send_completions.iter().filter(|one| one.status == Status::Success);
            self.bytes += moved.map(|one| u64::from(one.length)).sum::<u64>();
            let Some(status) = progress.failed else { continue };
            let behind = posted - progress.succeeded as u64 - 1;
            if is_refused(steps, progress) {
                self.refused += 1;
                self.flushed_by_refused += behind;
                add(&mut self.refused_statuses, status, 1);
            } else if any_refused && status == Status::Flushed {
                self.flushed_by_refused += 1 + behind;
            }
            add(&mut self.failed, status, 1);
            add(&mut self.failed, Status::Flushed, behind);
        }
    }

    /// The requests that completed in error, without those that are invalid on purpose and those behind them.
    pub fn unintended(&self) -> Vec<(Status, u64)> {
        let intended = |status: Status| {
            let refused = self.refused_statuses.iter().find(|(one, _)| *one == status);
            let behind = if status == Status::Flushed { self.flushed_by_refused } else { 0 };
            refused.map_or(0, |(_, count)| *count) + behind
        };
        let rest = |(status, count): &(Status, u64)| (*status, count - intended(*status));
        self.failed.iter().map(rest).filter(|(_, count)| *count > 0).collect()
    }

    /// Counts a request that completed in error.
    pub(super) fn fail(&mut self, status: Status) {
        add(&mut self.failed, status, 1);
    }

    /// Adds the counters of the finished run.
    pub(super) fn close<T: EventLog>(
        &mut self,
        fabric: &Fabric<RdmaHost, T>,
        mut violations: Vec<String>,
    ) {
        self.time = fabric.now().since(Instant::ZERO);
        self.events = fabric.events();
        self.totals = fabric.totals();
        self.hash = fabric.hash();
        if !self.totals.are_conserved() {
            violations.push("frames disappeared without a drop cause".to_owned());
        }
        self.violations = violations;
    }
}

/// Adds a number of requests with a status.
fn add(all: &mut Vec<(Status, u64)>, status: Status, more: u64) {
    match all.iter_mut().find(|(one, _)| *one == status) {
        Some((_, count)) => *count += more,
        None if more > 0 => all.push((status, more)),
        None => {}
    }
}

/// Formats a count with its noun: `1 host`, `2 hosts`.
pub(super) fn counted(count: impl Into<u64>, noun: &str) -> String {
    let count = count.into();
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Workload { hosts, connections, services, set_up, congestion, .. } = self.workload;
        let (hosts, connections) = (counted(hosts, "host"), counted(connections, "connection"));
        writeln!(f, "  workload       {hosts}, {connections} of {services}")?;
        writeln!(f, "                 set up: {set_up}, congestion control: {congestion}")?;
        writeln!(f, "  virtual time   {:?}, {}", self.time, counted(self.events, "event"))?;
        writeln!(
            f,
            "  work requests  {} posted, {} succeeded, {} moved",
            self.requests,
            self.succeeded,
            counted(self.bytes, "byte")
        )?;
        for (status, count) in &self.refused_statuses {
            let what = "invalid on purpose, and refused as it should be";
            writeln!(f, "                 {count} {what}: {status:?}")?;
        }
        let behind = self.flushed_by_refused;
        if behind > 0 {
            writeln!(f, "                 {behind} flushed because of such a request")?;
        }
        for (status, count) in self.unintended() {
            writeln!(f, "                 {count} ended with {status:?}")?;
        }
        let others = [
            (self.crashed, "posted on hosts that crashed"),
            (self.unconnected, "posted on connections that were not established"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(f, "                 {count} {what}")?;
        }
        if self.held > 0 {
            writeln!(f, "                 {} held back", counted(self.held, "request"))?;
        }
        if self.disconnected > 0 {
            writeln!(
                f,
                "  connections    {} connected and disconnected in order",
                self.disconnected
            )?;
        }
        if self.established > 0 {
            writeln!(f, "  connections    {} established by messages", self.established)?;
        }
        if self.records + self.forwarded > 0 {
            let records = counted(self.records, "record");
            let forwarded = counted(self.forwarded, "frame");
            writeln!(
                f,
                "  machines       {records} through transmit queues, {forwarded} forwarded"
            )?;
        }
        let damaged = counted(self.damaged, "frame");
        writeln!(f, "  damaged        {damaged} dropped by the receivers")?;
        writeln!(f, "  hash           {:016x}", self.hash)?;
        write!(f, "  violations     {}", self.violations.len())?;
        self.violations.iter().try_for_each(|one| write!(f, "\n    {one}"))
    }
}
