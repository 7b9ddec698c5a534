//! One pass: receive, run timers, transmit.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_proto::time::Instant;
use ferroce_sys::ReceiveBatch;

use super::adapter::{self, Adapter};
use super::link::{Link, Route};
use super::local_flow::LocalFlow;
use super::queue_pair::{Core, Inner};
use super::rx::{Histories, Pace};
use super::tx::TxBatch;
use crate::faults::{FaultInjector, Faults};
use crate::sync::lock;

/// The maximum number of receive calls before timers run: enough to drain a full socket buffer.
const MAX_RX_BEFORE_TIMERS: usize = 256;

/// State that only the owner of the device uses.
#[derive(Debug)]
pub(crate) struct PassState {
    pub(crate) rx: ReceiveBatch,
    pub(crate) tx: TxBatch,
    /// The receive rate of each link.
    pub(crate) paces: Vec<Pace>,
    pub(crate) rounds: u32,
    /// The link that received a packet last.
    pub(crate) active: usize,
    pub(crate) histories: Histories,
    pub(crate) failing: Option<FaultInjector>,
    /// QPs that may have packets to send.
    pub(crate) ready: VecDeque<Arc<Core>>,
    pub(crate) local_flow: LocalFlow,
    /// Timers by QPN. An entry whose timer was postponed is detected when it expires.
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl PassState {
    pub(crate) fn new(links: &[Link], slot: u8, faults: Option<Faults>) -> Self {
        Self {
            rx: ReceiveBatch::for_socket(&links[0].receiver),
            tx: TxBatch::new(),
            paces: vec![Pace::default(); links.len()],
            rounds: 0,
            active: 0,
            histories: Histories::default(),
            failing: faults.map(FaultInjector::new),
            ready: VecDeque::new(),
            local_flow: LocalFlow::new(links, slot),
            timers: BinaryHeap::new(),
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((time, _))| *time);
        timer.into_iter().chain(self.local_flow.next_timer()).min()
    }

    pub(crate) fn blocked_route(&self) -> Option<Route> {
        self.tx.blocked_route()
    }

    /// Updates the timer heap for a QP. A timer that moved to an earlier time gets a second entry; one that moved to a
    /// later time is re-armed when its entry expires.
    pub(crate) fn set_timer(&mut self, core: &Core, inner: &mut Inner) {
        let Some(time) = inner.endpoint.poll_timeout() else { return };
        if inner.timer.is_none_or(|standing| time < standing) {
            inner.timer = Some(time);
            self.timers.push(Reverse((time, core.number.0)));
        }
    }
}

impl Adapter {
    /// Makes one pass. Returns whether anything was received or sent, so that there may be more.
    pub(crate) fn round(&self, progress: &mut PassState, thorough: bool) -> bool {
        let mut received = self.receive_all(progress, thorough);
        self.retry_forwarding();
        if thorough {
            self.rx_passes.fetch_add(1, Ordering::Release);
        }
        let mut now = adapter::now();
        if progress.next_timer().is_some_and(|time| time <= now) {
            // We may be late ourselves: the response may already be in the socket buffer.
            self.receive_forwarded(progress);
            for _ in 0..MAX_RX_BEFORE_TIMERS {
                if !self.receive_all(progress, true) {
                    break;
                }
                received = true;
            }
            now = adapter::now();
        }
        // Pollers run timers as well: the device thread might never find a gap between two polls.
        self.run_timers(progress, now);
        let sent = self.transmit_all(progress, now);
        received || sent
    }

    fn run_timers(&self, progress: &mut PassState, now: Instant) {
        let PassState { local_flow, ready, .. } = progress;
        let resume = |core: &Arc<Core>| {
            if core.enqueue() {
                ready.push_back(Arc::clone(core));
            }
        };
        local_flow.expire(now, resume, |(route, packet)| self.queue_packet(route, packet.into()));
        while let Some(&Reverse((time, number))) = progress.timers.peek() {
            if time > now {
                return;
            }
            progress.timers.pop();
            let Some(core) = self.queue_pair(ferroce_wire::number::Qpn(number)) else { continue };
            let mut inner = lock(&core.inner);
            // Another entry had an earlier time and was handled.
            if inner.timer != Some(time) || inner.destroyed {
                continue;
            }
            inner.timer = None;
            if inner.endpoint.poll_timeout().is_some_and(|due| due <= now) {
                inner.endpoint.handle_timeout(now);
                core.publish_completions(&mut inner, self, now);
                if core.enqueue() {
                    progress.ready.push_back(Arc::clone(&core));
                }
                // Its next timer is set after it has transmitted; until then `poll_timeout` may return the expired one.
                continue;
            }
            progress.set_timer(&core, &mut inner);
        }
    }
}
