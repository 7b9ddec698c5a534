//! Requests that overtake the RTU of the connection before them.
//!
//! A peer that opens one connection after the other sends the RTU of one and then the REQ of the next. Where processes share
//! an address, each message may reach any of them and is forwarded, so the REQ may arrive first. A program that accepts one
//! connection at a time does not expect that: libfabric's EQ reports a request where its caller waits for the connection. So a
//! REQ waits a moment for the RTUs that its sender owes.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CommId, Req};

use super::timer::Timer;
use super::{ConnectionManager, Envelope};
use crate::time::Instant;

/// How long a REQ waits, and how long after the REP an RTU is expected.
const WAIT: Duration = Duration::from_millis(50);

/// Maximum number of waiting REQs, of all peers. Further ones do not wait.
const MAX_WAITING: usize = 64;

/// The number of accepted connections that are looked at, newest first.
const NEWEST: usize = 8;

#[derive(Debug)]
struct Waiting {
    until: Instant,
    envelope: Envelope,
    req: Box<Req>,
}

#[derive(Debug, Default)]
pub(super) struct Overtaking {
    /// In the order of arrival, which is that of their deadlines.
    queue: VecDeque<Waiting>,
    deadline: Option<Instant>,
}

impl ConnectionManager {
    /// Keeps a REQ while its sender owes an RTU. Returns whether it does.
    pub(super) fn wait_for_rtu(&mut self, now: Instant, envelope: &Envelope, req: &Req) -> bool {
        let (from, id) = (envelope.from, req.local_comm_id);
        let queue = &mut self.overtaking.queue;
        if queue.iter().any(|one| one.envelope.from == from && one.req.local_comm_id == id) {
            return true; // A retransmission.
        }
        if queue.len() >= MAX_WAITING || !self.is_rtu_due(now, from, id) {
            return false;
        }
        let (until, envelope, req) = (now + WAIT, *envelope, Box::new(*req));
        self.overtaking.queue.push_back(Waiting { until, envelope, req });
        self.arm_overtaking();
        true
    }

    /// Whether an RTU of the process with this communication ID is expected. The top byte of an ID names a process, if it is
    /// one of ours; other implementations send from one place in order.
    fn is_rtu_due(&self, now: Instant, from: Gid, id: CommId) -> bool {
        self.table.newest_awaiting_rtu().take(NEWEST).any(|accepted| {
            accepted.peer == from
                && accepted.remote().0 >> 24 == id.0 >> 24
                && now < accepted.answered_at + WAIT
        })
    }

    /// Handles the REQs that need not wait any longer.
    pub(super) fn handle_overtaking(&mut self, now: Instant) {
        for _ in 0..self.overtaking.queue.len() {
            let Some(one) = self.overtaking.queue.pop_front() else { break };
            if now < one.until && self.is_rtu_due(now, one.envelope.from, one.req.local_comm_id) {
                self.overtaking.queue.push_back(one);
            } else {
                // The peer retransmits what is ignored.
                let _ = self.handle_new_req(now, &one.envelope, &one.req);
            }
        }
        self.arm_overtaking();
    }

    fn arm_overtaking(&mut self) {
        let Overtaking { queue, deadline } = &mut self.overtaking;
        let first = queue.front().map(|one| one.until);
        self.timers.set(Timer::Overtaking, deadline, first);
    }
}
