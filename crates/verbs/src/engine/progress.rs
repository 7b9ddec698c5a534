//! A round: receive, timers, transmit.

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
use crate::faults::{Failing, Faults};
use crate::sync::lock;

/// Looks at the sockets before a timer runs out, at most: as many as hold all that a socket does.
const MAX_RX_BEFORE_TIMERS: usize = 256;

/// What only the one who drives needs.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) rx: ReceiveBatch,
    pub(crate) tx: TxBatch,
    /// How much comes over each link.
    pub(crate) paces: Vec<Pace>,
    pub(crate) rounds: u32,
    /// The link over which something came last.
    pub(crate) active: usize,
    pub(crate) histories: Histories,
    pub(crate) failing: Option<Failing>,
    /// Queue pairs that may have something to send.
    pub(crate) ready: VecDeque<Arc<Core>>,
    pub(crate) local_flow: LocalFlow,
    /// Timers of queue pairs, by number. One that was since put off is found out when it runs out.
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Progress {
    pub(crate) fn new(links: &[Link], slot: u8, faults: Option<Faults>) -> Self {
        Self {
            rx: ReceiveBatch::for_socket(&links[0].receiver),
            tx: TxBatch::new(),
            paces: vec![Pace::default(); links.len()],
            rounds: 0,
            active: 0,
            histories: Histories::default(),
            failing: faults.map(Failing::new),
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

    /// Keeps the list of timers in step with a queue pair: an entry that runs out too late is joined by another, one
    /// that runs out too early is put off when it does.
    pub(crate) fn set_timer(&mut self, core: &Core, inner: &mut Inner) {
        let Some(time) = inner.endpoint.poll_timeout() else { return };
        if inner.timer.is_none_or(|standing| time < standing) {
            inner.timer = Some(time);
            self.timers.push(Reverse((time, core.number.0)));
        }
    }
}

impl Adapter {
    /// True when something was done, so that there may be more.
    pub(crate) fn round(&self, progress: &mut Progress, thorough: bool) -> bool {
        let mut received = self.receive_all(progress, thorough);
        self.retry_forwarding();
        if thorough {
            self.rx_passes.fetch_add(1, Ordering::Release);
        }
        let mut now = adapter::now();
        if progress.next_timer().is_some_and(|time| time <= now) {
            // The answer may be here already, behind others: it was us who came late.
            self.receive_forwarded(progress);
            for _ in 0..MAX_RX_BEFORE_TIMERS {
                if !self.receive_all(progress, true) {
                    break;
                }
                received = true;
            }
            now = adapter::now();
        }
        // Also for who only polls: the thread would have to wait for a gap between two polls, and there may be none.
        self.run_timers(progress, now);
        let sent = self.transmit_all(progress, now);
        received || sent
    }

    fn run_timers(&self, progress: &mut Progress, now: Instant) {
        let Progress { local_flow, ready, .. } = progress;
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
            // Another entry stands for an earlier time, which was metadata to.
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
                // Its next timer is known when it has sent: until then it may be the one that has just run out.
                continue;
            }
            progress.set_timer(&core, &mut inner);
        }
    }
}
