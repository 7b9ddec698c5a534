//! cm_ids that wait for neighbour resolution (ARP, NDP) of the next hop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Weak};

use ferroce_sys::neighbour::{Neighbour, NeighbourState};
use ferroce_sys::{NetlinkGroup, NetlinkMonitor, clock};

use super::connections::CmEventHandler;
use super::transport::MadTransport;
use crate::sync::lock;

/// A waiting cm_id.
#[derive(Debug)]
struct Waiting {
    id: Weak<dyn CmEventHandler>,
    neighbour: Neighbour,
    /// Nanoseconds of the monotonic clock.
    until: u64,
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    /// The device thread watches it. `None` if the kernel offers no such notifications; cm_ids then do not wait.
    pub(crate) monitor: Option<NetlinkMonitor>,
    waiting: Mutex<Vec<Waiting>>,
    pub(super) next: AtomicU64,
}

impl Neighbours {
    pub(crate) fn new() -> Self {
        let monitor = NetlinkMonitor::new(NetlinkGroup::Neighbours).ok();
        Self { monitor, waiting: Mutex::default(), next: AtomicU64::new(u64::MAX) }
    }

    /// Lets a cm_id wait for a neighbour. Returns false if it is already resolved, or the kernel does not report it.
    pub(crate) fn wait(
        &self,
        transport: &dyn MadTransport,
        id: Weak<dyn CmEventHandler>,
        neighbour: Neighbour,
        until: u64,
    ) -> bool {
        let Some(monitor) = &self.monitor else { return false };
        // The common case.
        if !Self::is_missing(&neighbour) {
            return false;
        }
        let mut waiting = lock(&self.waiting);
        // Checked again after subscribing, so that a resolution in between is not missed.
        if waiting.is_empty() && monitor.set_subscribed(true).is_err() {
            return false;
        }
        let missing = Self::is_missing(&neighbour);
        if missing {
            waiting.push(Waiting { id, neighbour, until });
        }
        self.set_timer(&waiting);
        if missing {
            transport.wake_thread();
        }
        missing
    }

    /// Whether the neighbour is unresolved. Starts its resolution if necessary.
    fn is_missing(neighbour: &Neighbour) -> bool {
        let known = neighbour.state();
        if let Ok(NeighbourState::Unresolved) = known {
            neighbour.solicit();
        }
        matches!(known, Ok(NeighbourState::Unresolved | NeighbourState::Resolving))
    }

    /// Notifies the cm_ids whose wait is over. Called by the device thread after a netlink notification or a timeout.
    pub(crate) fn run(&self, changed: bool) {
        let now = clock::now();
        if !changed && self.next.load(Ordering::SeqCst) > now {
            return;
        }
        if let Some(monitor) = &self.monitor {
            monitor.drain();
        }
        let mut done = Vec::new();
        {
            let mut waiting = lock(&self.waiting);
            waiting.retain(|one| {
                let missing = Self::is_missing(&one.neighbour);
                if missing && one.until > now && one.id.strong_count() > 0 {
                    return true;
                }
                let failure = missing.then(|| one.neighbour.timeout_error());
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
            let _ = monitor.set_subscribed(false);
        }
    }
}
