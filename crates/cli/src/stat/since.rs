//! How much counters increased between two snapshots. `stat`, `top` and the dashboard all use it.
//!
//! Counters only increase while their object lives. An object that is new since the last snapshot counts from zero, so that
//! a short burst is not lost. One that is older but was not seen before (the tool just started, or the process could not be
//! read last time) has no rate yet. A process or QP whose age went down is another one with the same number.

use std::collections::HashMap;

use ferroce_stat::snapshot::{Device, Latency, Process, QueuePair, Snapshot};

/// The counters of an object at the last snapshot.
#[derive(Debug)]
pub(crate) enum Before<'a, T> {
    /// It existed.
    Known(&'a T),
    /// It did not exist.
    New,
    /// It existed, but its counters are not known.
    Unknown,
}

// Not derived: that would demand it of `T`, too.
impl<T> Clone for Before<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Before<'_, T> {}

impl<T> Before<'_, T> {
    /// How much a counter increased. One that decreased is that of an object created since, which counts from zero.
    pub(crate) fn increase(&self, now: &T, counter: impl Fn(&T) -> u64) -> u64 {
        let now = counter(now);
        match self {
            Self::Known(before) => now.checked_sub(counter(before)).unwrap_or(now),
            Self::New => now,
            Self::Unknown => 0,
        }
    }
}

impl Before<'_, QueuePair> {
    /// The requests measured since.
    pub(crate) fn latency(&self, now: &QueuePair) -> Latency {
        match self {
            Self::Known(before) => now.latency.since(&before.latency),
            Self::New => now.latency.clone(),
            Self::Unknown => Latency::default(),
        }
    }
}

/// The time between two snapshots, and the objects of the first.
#[derive(Debug)]
pub(crate) struct Interval<'a> {
    /// The seconds since the last snapshot; `None` if there is none, or if it was taken at the same moment.
    elapsed: Option<f64>,
    processes: HashMap<u32, &'a Process>,
}

impl<'a> Interval<'a> {
    pub(crate) fn new(before: Option<&'a Snapshot>, now: &Snapshot) -> Self {
        let elapsed = before.map(|before| now.time_ns.saturating_sub(before.time_ns) as f64 / 1e9);
        let processes = before.iter().flat_map(|before| &before.processes);
        Self {
            elapsed: elapsed.filter(|elapsed| *elapsed > 0.0),
            processes: processes.map(|process| (process.pid, process)).collect(),
        }
    }

    /// Whether counters could increase since an earlier snapshot.
    pub(crate) const fn is_known(&self) -> bool {
        self.elapsed.is_some()
    }

    pub(crate) fn rate(&self, increase: u64) -> f64 {
        self.elapsed.map_or(0.0, |elapsed| increase as f64 / elapsed)
    }

    /// Whether an object of this age has been created since the last snapshot. The two times are read one after the other.
    fn is_new(&self, age: f64) -> bool {
        self.elapsed.is_some_and(|elapsed| age <= elapsed + 0.25)
    }

    /// Whether two ages of an object with the same number are of the same object: it is as much older as time has passed.
    fn is_same(&self, before: f64, now: f64) -> bool {
        self.elapsed.is_some_and(|elapsed| now >= before + elapsed / 2.0)
    }

    pub(crate) fn process(&self, now: &Process) -> Before<'a, Process> {
        let known = self.processes.get(&now.pid).copied();
        match known.filter(|known| self.is_same(known.age_seconds, now.age_seconds)) {
            Some(known) => Before::Known(known),
            None if self.is_new(now.age_seconds) => Before::New,
            None => Before::Unknown,
        }
    }

    /// The device at `index` of the process: a process that opened a device twice has two of the same name.
    pub(crate) fn device(
        &self,
        before: Before<'a, Process>,
        now: &Process,
        index: usize,
    ) -> Before<'a, Device> {
        match before {
            Before::Known(process) => {
                let name = &now.devices[index].name;
                let mut same = process.devices.iter().filter(|one| one.name == *name);
                same.nth(ordinal(now, index)).map_or(Before::New, Before::Known)
            }
            Before::New => Before::New,
            Before::Unknown => Before::Unknown,
        }
    }

    pub(crate) fn queue_pair(
        &self,
        before: Before<'a, Device>,
        now: &QueuePair,
    ) -> Before<'a, QueuePair> {
        let known = match before {
            Before::Known(device) => {
                // The reader sorts them.
                let qps = &device.queue_pairs;
                let index = qps.binary_search_by_key(&now.number, |one| one.number);
                index.ok().map(|index| &qps[index])
            }
            Before::New | Before::Unknown => None,
        };
        match known.filter(|known| self.is_same(known.age_seconds, now.age_seconds)) {
            Some(known) => Before::Known(known),
            None if self.is_new(now.age_seconds) => Before::New,
            None => Before::Unknown,
        }
    }
}

/// How many devices of this name the process opened before this one.
fn ordinal(process: &Process, index: usize) -> usize {
    let name = &process.devices[index].name;
    process.devices[..index].iter().filter(|one| one.name == *name).count()
}

/// Identifies a device of a process from snapshot to snapshot: its name, with a number if the process opened it before.
pub(crate) fn device_key(process: &Process, index: usize) -> String {
    let name = &process.devices[index].name;
    match ordinal(process, index) {
        0 => name.clone(),
        ordinal => format!("{name}.{ordinal}"),
    }
}
