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
    /// `None` where the system has no such news: then nobody waits.
    news: Option<NetlinkMonitor>,
    waiting: Mutex<Vec<Waiting>>,
    next: AtomicU64,
}

impl Neighbours {
    pub(crate) fn new() -> Self {
        let news = NetlinkMonitor::new(NetlinkGroup::Neighbours).ok();
        Self { news, waiting: Mutex::default(), next: AtomicU64::new(u64::MAX) }
    }

    /// What the device's thread watches.
    pub(crate) fn watch(&self) -> Option<&NetlinkMonitor> {
        self.news.as_ref()
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
        let Some(news) = &self.news else { return false };
        // Mostly.
        if !matches!(neighbour.state(), Ok(NeighbourState::Unresolved | NeighbourState::Resolving))
        {
            return false;
        }
        let mut waiting = lock(&self.waiting);
        // It is looked for after we listen, so that it is not found in between.
        if waiting.is_empty() && news.set_subscribed(true).is_err() {
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

    /// Who waits no longer hears why. Called by the device's thread, when there are news or somebody has waited for long
    /// enough.
    pub(crate) fn run(&self, news_came: bool) {
        let now = clock::now();
        if !news_came && self.next_timer() > now {
            return;
        }
        if let Some(news) = &self.news {
            news.drain();
        }
        let mut over = Vec::new();
        {
            let mut waiting = lock(&self.waiting);
            waiting.retain(|one| {
                let missing = Self::is_missing(&one.neighbour);
                if missing && one.until > now && one.id.strong_count() > 0 {
                    return true;
                }
                let late = missing.then(|| one.neighbour.timeout_error());
                over.push((one.id.clone(), late));
                false
            });
            self.set_timer(&waiting);
        }
        for (id, late) in over {
            if let Some(id) = id.upgrade() {
                id.handle_neighbour(late.map(Into::into));
            }
        }
    }

    fn set_timer(&self, waiting: &[Waiting]) {
        let next = waiting.iter().map(|one| one.until).min();
        self.next.store(next.unwrap_or(u64::MAX), Ordering::SeqCst);
        if let (Some(news), true) = (&self.news, waiting.is_empty()) {
            let _ = news.set_subscribed(false);
        }
    }
}
