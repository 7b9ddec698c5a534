//! What fails when: a plan made before the run.
//!
//! Times are moments of the run. An interval starts at `from` and is over at `until`; what happens to frames at either
//! very moment happens after the change.

use ferroce_proto::time::Instant;

use crate::host::HostId;

/// The failures of a run. Hosts that do not exist are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Who cannot reach whom.
    pub partitions: Vec<Partition>,
    /// Who stands still.
    pub pauses: Vec<Pause>,
    /// Who dies.
    pub crashes: Vec<Crash>,
}

/// The switch does not forward between two sets of hosts. Frames that have left the switch arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// When it begins.
    pub from: Instant,
    /// When it heals.
    pub until: Instant,
    /// The one side.
    pub one: Vec<HostId>,
    /// The other side; `None` is everybody else.
    pub other: Option<Vec<HostId>>,
    /// Which way frames are dropped.
    pub directions: Directions,
}

/// Which way a partition drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// Both.
    Both,
    /// What the one side sends to the other; answers would get through.
    FromOne,
    /// What the other side sends to the one.
    ToOne,
}

/// A host does nothing: no frame is handled, no timeout, nothing is sent. Then it goes on, late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Who.
    pub host: HostId,
    /// When it stops.
    pub from: Instant,
    /// When it goes on.
    pub until: Instant,
    /// What becomes of frames meanwhile.
    pub arriving: WhilePaused,
}

/// What becomes of frames that arrive at a host that is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhilePaused {
    /// They wait, and are handled in order when it goes on.
    Wait,
    /// They are dropped, as by a full receive buffer.
    Drop,
}

/// A host dies with all its state. What it had sent is still on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Who.
    pub host: HostId,
    /// When.
    pub at: Instant,
    /// When a new one takes its place, see [`crate::Fabric::on_restart`].
    pub restart: Option<Instant>,
}

/// One change of the plan, for the event queue.
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
    /// All changes. At the same moment, beginnings come before ends: a pause that follows another leaves no gap.
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
        // The sort is stable, so that a restart at the very moment of its crash stays behind it.
        changes.sort_by_key(|(at, change)| {
            let begins = matches!(change, Change::Partition(_) | Change::Pause(_));
            (*at, !begins)
        });
        changes
    }
}

/// A set of hosts that answers in constant time.
#[derive(Debug)]
struct HostSet(Vec<u64>);

impl HostSet {
    /// Only hosts that can exist are kept, so that a plan with a huge number costs nothing.
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

/// A partition that is in force.
#[derive(Debug)]
struct Cut {
    number: u32,
    one: HostSet,
    other: Option<HostSet>,
    directions: Directions,
}

/// The partitions in force: frames are checked against these only.
#[derive(Debug, Default)]
pub(crate) struct Cuts(Vec<Cut>);

impl Cuts {
    pub(crate) fn begin(&mut self, number: u32, partition: &Partition, hosts: usize) {
        self.0.push(Cut {
            number,
            one: HostSet::new(&partition.one, hosts),
            other: partition.other.as_ref().map(|other| HostSet::new(other, hosts)),
            directions: partition.directions,
        });
    }

    pub(crate) fn heal(&mut self, number: u32) {
        self.0.retain(|cut| cut.number != number);
    }

    /// Whether a frame from `source` cannot reach `destination`.
    pub(crate) fn separate(&self, source: HostId, destination: HostId) -> bool {
        self.0.iter().any(|cut| {
            let crosses = |from: HostId, to: HostId| {
                let to_other = match &cut.other {
                    Some(other) => other.contains(to),
                    None => !cut.one.contains(to),
                };
                cut.one.contains(from) && to_other
            };
            let (out, back) = (crosses(source, destination), crosses(destination, source));
            match cut.directions {
                Directions::Both => out || back,
                Directions::FromOne => out,
                Directions::ToOne => back,
            }
        })
    }
}
