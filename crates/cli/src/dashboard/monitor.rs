//! Reads the counters of all processes at an interval, and keeps what the page and the metrics need.
//!
//! A thread of its own reads, because reading blocks. The page's data is serialized once for each sample, whatever the
//! number of browsers.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ferroce_stat::snapshot::Snapshot;
use ferroce_stat::{Filter, read_all};
use serde::Serialize;

use super::detail::{self, QpDetail};
use super::sampler::Sampler;
use super::view::Point;
use crate::recent::QpAddress;

/// The points of the charts that are kept: 15 minutes at one a second.
const MAX_POINTS: usize = 900;

#[derive(Debug, Default)]
struct Inner {
    sampler: Sampler,
    points: VecDeque<Point>,
    /// The last view as JSON.
    state: Arc<str>,
    stopped: bool,
}

/// The samples.
#[derive(Debug)]
pub(super) struct Monitor {
    inner: Mutex<Inner>,
    stop: Condvar,
    interval: Duration,
    host: String,
}

/// The points of the charts, the oldest first.
#[derive(Debug, Serialize)]
pub(super) struct History {
    points: Vec<Point>,
}

impl Monitor {
    /// Takes the first sample.
    pub(super) fn new(interval: Duration) -> Arc<Self> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().to_owned();
        let monitor = Self { inner: Mutex::default(), stop: Condvar::new(), interval, host };
        monitor.sample();
        Arc::new(monitor)
    }

    /// Starts the thread that samples, until [`Monitor::stop`].
    pub(super) fn start(self: &Arc<Self>) -> JoinHandle<()> {
        let monitor = Arc::clone(self);
        thread::spawn(move || {
            let mut next = Instant::now() + monitor.interval;
            while monitor.wait(next) {
                monitor.sample();
                // Samples that are late are not made up for.
                next = (next + monitor.interval).max(Instant::now());
            }
        })
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.stop.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `time`; `false` if it was stopped.
    fn wait(&self, time: Instant) -> bool {
        let mut inner = self.lock();
        loop {
            let left = time.saturating_duration_since(Instant::now());
            if inner.stopped || left.is_zero() {
                return !inner.stopped;
            }
            inner = self.stop.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn sample(&self) {
        // Not under the lock: it takes a while if there are many processes.
        let snapshot = read_all(&Filter::default());
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        let mut inner = self.lock();
        let mut view = inner.sampler.update(snapshot, now);
        view.host.clone_from(&self.host);
        view.version = env!("CARGO_PKG_VERSION");
        view.interval = self.interval.as_secs_f64();
        // The first sample has no rates.
        if view.sequence > 1 {
            if inner.points.len() == MAX_POINTS {
                inner.points.pop_front();
            }
            inner.points.push_back(view.totals);
        }
        // The types are plain data, which always serializes.
        inner.state = serde_json::to_string(&view).unwrap_or_default().into();
    }

    /// The last view, as JSON.
    pub(super) fn state(&self) -> String {
        let state = Arc::clone(&self.lock().state);
        state.to_string()
    }

    /// The points of the charts.
    pub(super) fn history(&self) -> History {
        History { points: self.lock().points.iter().copied().collect() }
    }

    /// The QP with this key, as it was at the last sample.
    pub(super) fn queue_pair(&self, key: &str) -> Option<QpDetail> {
        let inner = self.lock();
        QpDetail::find(inner.sampler.last()?, key)
    }

    /// How packets name the QP with this key, whether it exists or not; `None` if it is not a key.
    pub(super) fn address(&self, key: &str) -> Option<QpAddress> {
        detail::address(self.lock().sampler.last(), key)
    }

    /// Calls `body` with the last snapshot.
    pub(super) fn with_snapshot<T>(&self, body: impl FnOnce(&Snapshot) -> T) -> T {
        body(self.lock().sampler.last().unwrap_or(&Snapshot::default()))
    }
}
