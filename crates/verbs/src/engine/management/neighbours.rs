//! Ids that wait until the next host on the way to their peer is found.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Weak};

use ferroce_sys::neighbour::{Neighbour, NeighbourState};
use ferroce_sys::{NetlinkGroup, NetlinkMonitor, clock};

use super::super::Adapter;
use super::connections::CmEventHandler;
use crate::sync::lock;

/// An id that waits.
#[derive(Debug)]
struct Waiting {
    id: Weak<dyn CmEventHandler>,
    neighbour: Neighbour,
    /// Nanoseconds of the monotonic clock.
    until: u64,
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    /// `None` where the system has no such monitor: then nobody waits.
    monitor: Option<NetlinkMonitor>,
    waiting: Mutex<Vec<Waiting>>,
    next: AtomicU64,
}

impl Neighbours {
    pub(crate) fn new() -> Self {
        let monitor = NetlinkMonitor::of(Subject::Neighbours).ok();
        Self { monitor, waiting: Mutex::default(), next: AtomicU64::new(u64::MAX) }
    }

    /// What the device's thread watches.
    pub(crate) fn watch(&self) -> Option<&NetlinkMonitor> {
        self.monitor.as_ref()
    }

    pub(crate) fn next_timer(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Lets an id wait for a neighbour. False when there is nothing to wait for: it is there, or the system does not tell.
    pub(crate) fn wait(
        &self,
        adapter: &Adapter,
        id: Weak<dyn CmEventHandler>,
        neighbour: Neighbour,
        until: u64,
    ) -> bool {
        let Some(monitor) = &self.monitor else { return false };
        // Mostly.
        if !matches!(neighbour.state(), Ok(NeighbourState::Unresolved | NeighbourState::Resolving))
        {
            return false;
        }
        let mut waiting = lock(&self.waiting);
        // It is looked for after we listen, so that it is not found in between.
        if waiting.is_empty() && monitor.listen(true).is_err() {
            return false;
        }
        if Self::is_missing(&neighbour) {
            waiting.push(Waiting { id, neighbour, until });
            self.set_timer(&waiting);
            adapter.thread.wake();
            return true;
        }
        self.set_timer(&waiting);
        false
    }

    /// Whether it is not found; then it is looked for.
    fn is_missing(neighbour: &Neighbour) -> bool {
        let known = neighbour.state();
        if let Ok(NeighbourState::Unresolved) = known {
            neighbour.solicit();
        }
        matches!(known, Ok(NeighbourState::Unresolved | NeighbourState::Resolving))
    }

    /// Who waits no longer hears why. Called by the device's thread, when there are monitor or somebody has waited for long
    /// enough.
    pub(crate) fn run(&self, changed: bool) {
        let now = clock::now();
        if !changed && self.next_timer() > now {
            return;
        }
        if let Some(monitor) = &self.monitor {
            monitor.clear();
        }
        let mut done = Vec::new();
        {
            let mut waiting = lock(&self.waiting);
            waiting.retain(|one| {
                let missing = Self::is_missing(&one.neighbour);
                if missing && one.until > now && one.id.strong_count() > 0 {
                    return true;
                }
                let failure = missing.then(|| one.neighbour.late());
                done.push((one.id.clone(), failure));
                false
            });
            self.set_timer(&waiting);
        }
        for (id, failure) in done {
            if let Some(id) = id.upgrade() {
                id.handle_neighbour(failure.map(Into::into));
            }
        }
    }

    fn set_timer(&self, waiting: &[Waiting]) {
        let next = waiting.iter().map(|one| one.until).min();
        self.next.store(next.unwrap_or(u64::MAX), Ordering::SeqCst);
        if let (Some(monitor), true) = (&self.monitor, waiting.is_empty()) {
            let _ = monitor.listen(false);
        }
    }
}
