//! The schedule of failures of a run.
//!
//! Times are virtual. An interval begins at `from` and is over at `until`; frame events at either time come after the
//! change.

use ferroce_proto::time::Instant;

use crate::host::HostId;

/// The failures of a run. Hosts that do not exist are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Hosts that cannot reach each other.
    pub partitions: Vec<Partition>,
    /// Hosts that stop for some time.
    pub pauses: Vec<Pause>,
    /// Hosts that crash.
    pub crashes: Vec<Crash>,
}

/// The switch does not forward between two sets of hosts. Frames that have left the switch still arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// When it begins.
    pub from: Instant,
    /// When it heals.
    pub until: Instant,
    /// Side A.
    pub side_a: Vec<HostId>,
    /// Side B; `None` is all other hosts.
    pub side_b: Option<Vec<HostId>>,
    /// The directions in which frames are dropped.
    pub directions: Directions,
}

/// The directions in which a partition drops frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// Both directions.
    Both,
    /// Frames from side A to side B. The opposite direction works.
    AToB,
    /// Frames from side B to side A. The opposite direction works.
    BToA,
}

/// A host stops: it handles no frame and no timeout and sends nothing. Then it continues, late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The host.
    pub host: HostId,
    /// When the pause begins.
    pub from: Instant,
    /// When the host continues.
    pub until: Instant,
    /// What happens to frames that arrive meanwhile.
    pub arriving: WhilePaused,
}

/// What happens to frames that arrive at a paused host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhilePaused {
    /// They are queued, and handled in order when the host continues.
    Wait,
    /// They are dropped, as by a full receive buffer.
    Drop,
}

/// A host crashes and loses all state. Frames that it sent stay in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The host.
    pub host: HostId,
    /// The time of the crash.
    pub at: Instant,
    /// When a new host replaces it, see [`crate::Fabric::on_restart`].
    pub restart: Option<Instant>,
}

/// One change of state of the plan, for the event queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Partition(u32),
    Heal(u32),
    Pause(Pause),
    Resume(Pause),
    Crash(HostId),
    Restart(HostId),
}

impl FaultPlan {
    /// Returns all changes. At the same time, beginnings come before ends, so that a pause that follows another leaves
    /// no gap.
    pub(crate) fn changes(&self) -> Vec<(Instant, Change)> {
        let mut changes = Vec::new();
        let lasting = |from: Instant, until: Instant| from < until;
        for (at, partition) in (0..).zip(&self.partitions) {
            if lasting(partition.from, partition.until) {
                changes.push((partition.from, Change::Partition(at)));
                changes.push((partition.until, Change::Heal(at)));
            }
        }
        for &pause in self.pauses.iter().filter(|pause| lasting(pause.from, pause.until)) {
            changes.push((pause.from, Change::Pause(pause)));
            changes.push((pause.until, Change::Resume(pause)));
        }
        for crash in &self.crashes {
            changes.push((crash.at, Change::Crash(crash.host)));
            let restart = crash.restart.map(|at| (at.max(crash.at), Change::Restart(crash.host)));
            changes.extend(restart);
        }
        // The sort is stable: a restart at the time of its crash stays after it.
        changes.sort_by_key(|(at, change)| {
            let begins = matches!(change, Change::Partition(_) | Change::Pause(_));
            (*at, !begins)
        });
        changes
    }
}

/// A set of hosts with constant-time lookup.
#[derive(Debug)]
struct HostSet(Vec<u64>);

impl HostSet {
    /// Ignores hosts that do not exist, so that a huge host number in a plan costs no memory.
    fn new(hosts: &[HostId], count: usize) -> Self {
        let mut words = vec![0; count.div_ceil(64)];
        for host in hosts.iter().filter(|host| host.index() < count) {
            words[host.index() / 64] |= 1 << (host.index() % 64);
        }
        Self(words)
    }

    fn contains(&self, host: HostId) -> bool {
        self.0.get(host.index() / 64).is_some_and(|word| word >> (host.index() % 64) & 1 == 1)
    }
}

/// A partition that is in effect.
#[derive(Debug)]
struct ActivePartition {
    number: u32,
    side_a: HostSet,
    side_b: Option<HostSet>,
    directions: Directions,
}

/// The partitions in effect: only these are checked for each frame.
#[derive(Debug, Default)]
pub(crate) struct ActivePartitions(Vec<ActivePartition>);

impl ActivePartitions {
    pub(crate) fn begin(&mut self, number: u32, partition: &Partition, hosts: usize) {
        self.0.push(ActivePartition {
            number,
            side_a: HostSet::new(&partition.side_a, hosts),
            side_b: partition.side_b.as_ref().map(|other| HostSet::new(other, hosts)),
            directions: partition.directions,
        });
    }

    pub(crate) fn heal(&mut self, number: u32) {
        self.0.retain(|cut| cut.number != number);
    }

    /// Whether a partition drops frames from `source` to `destination`.
    pub(crate) fn separate(&self, source: HostId, destination: HostId) -> bool {
        self.0.iter().any(|cut| {
            let crosses = |from: HostId, to: HostId| {
                let to_other = match &cut.side_b {
                    Some(other) => other.contains(to),
                    None => !cut.side_a.contains(to),
                };
                cut.side_a.contains(from) && to_other
            };
            let (out, back) = (crosses(source, destination), crosses(destination, source));
            match cut.directions {
                Directions::Both => out || back,
                Directions::AToB => out,
                Directions::BToA => back,
            }
        })
    }
}
