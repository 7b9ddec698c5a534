//! What is true of a requester after every event. Debug builds check it.

use super::{ACK_REQUEST_INTERVAL, RequestState, Requester, Sending};
use crate::budget::InFlight;
use crate::congestion::RateControl;
use crate::rc::placement::Failed;
use crate::rc::queue_pair::Config;

/// A queue up to this length is walked after each event, a longer one after one event of this many: tests post thousands
/// of requests.
const SHORT_QUEUE: usize = 8;
const WALK_INTERVAL: usize = 64;

impl Requester {
    /// `stopped`: the QP is in ERR.
    pub(in crate::rc) fn check_invariants(&self, config: &Config, stopped: bool) {
        self.check_positions(config);
        self.check_in_flight(config);
        self.withheld.check_invariants();
        if stopped {
            return self.check_stopped();
        }
        self.check_congestion();
        self.check_timer(config);
        self.check_progress(config);
        // A post changes the one, and a packet the other; together they must not cancel out.
        let event = 3 * self.queue.len() + self.next.psn().0 as usize;
        if self.queue.len() <= SHORT_QUEUE || event % WALK_INTERVAL == 0 {
            self.check_queue(config);
        }
    }

    /// The positions are in order, and the queue holds exactly what is not acknowledged (IBA 9.7.2).
    fn check_positions(&self, config: &Config) {
        let Self { unacknowledged, next, newest, tail, ack_requested, .. } = *self;
        assert!(
            unacknowledged <= next && next <= newest && newest <= tail && ack_requested <= next,
            "positions out of order: unacknowledged {unacknowledged:?}, next {next:?}, newest \
             {newest:?}, tail {tail:?}, ACK requested before {ack_requested:?}"
        );
        let (length, capacity) = (self.queue.len(), config.send_capacity);
        assert!(length <= capacity, "{length} requests in a send queue for {capacity}");
        let (Some(oldest), Some(last)) = (self.queue.front(), self.queue.back()) else {
            assert!(
                unacknowledged == tail,
                "unacknowledged {unacknowledged:?} before tail {tail:?} in an empty queue"
            );
            return;
        };
        assert!(self.sending != Sending::NotYet, "{length} send requests before RTS");
        let is_in_oldest = match oldest.packets {
            0 => oldest.start == unacknowledged,
            _ => (oldest.start..oldest.end()).contains(&unacknowledged),
        };
        assert!(
            is_in_oldest,
            "unacknowledged {unacknowledged:?} outside the oldest request, {:?} to {:?}",
            oldest.start,
            oldest.end()
        );
        assert!(
            last.end() == tail,
            "the newest request ends at {:?} and not at tail {tail:?}",
            last.end()
        );
        assert!(
            oldest.state == RequestState::Queued,
            "the oldest request is {:?} and has not completed",
            oldest.state
        );
        let index = self.next_index;
        let is_next = match self.queue.get(index) {
            Some(queued) if queued.packets == 0 => queued.start == next,
            Some(queued) => (queued.start..queued.end()).contains(&next),
            None => index == length && next == tail,
        };
        assert!(is_next, "next {next:?} is not of request {index} of {length}");
        let went_back_to = self.went_back_to;
        assert!(
            went_back_to.is_none_or(|position| position == unacknowledged),
            "went back to {went_back_to:?}, and {unacknowledged:?} is unacknowledged"
        );
    }

    /// In flight are the bytes from `unacknowledged` to `next`, and no more READs and atomics than max_rd_atomic.
    fn check_in_flight(&self, config: &Config) {
        let Self { unacknowledged, next, in_flight, .. } = *self;
        assert!(
            (in_flight == InFlight::NONE) == (unacknowledged == next),
            "{in_flight:?} from unacknowledged {unacknowledged:?} to next {next:?}"
        );
        // IBA 9.4.4.
        let (outstanding, max) = (self.outstanding.len(), config.max_rd_atomic);
        assert!(
            outstanding <= usize::from(max),
            "{outstanding} READs and atomics outstanding of max_rd_atomic {max}"
        );
        let ends = (self.outstanding.front(), self.outstanding.back());
        if let (Some(&oldest), Some(&newest)) = ends {
            assert!(
                unacknowledged < oldest && newest <= next,
                "outstanding from {oldest:?} to {newest:?}, in flight from {unacknowledged:?} to \
                 {next:?}"
            );
        }
    }

    /// The congestion control counts the same bytes: otherwise the window would shrink or grow with each message.
    fn check_congestion(&self) {
        let next = self.queue.get(self.next_index);
        // The peer may have got packets of a request whose memory can no longer be read; nothing more is sent.
        if next.is_some_and(|queued| matches!(queued.state, RequestState::Failed(..))) {
            return;
        }
        let (total, charged) = (self.in_flight.peer + self.in_flight.own, self.rate.in_flight());
        assert!(total == charged, "{total} bytes in flight, {charged} in the window");
        let (measured, unacknowledged) = (self.rtt.measured(), self.unacknowledged);
        assert!(
            measured.is_none_or(|end| unacknowledged < end),
            "the round trip to {measured:?} is measured, and {unacknowledged:?} is unacknowledged"
        );
    }

    /// In ERR, all requests are flushed, and no timer runs (IBA 10.3.1.7).
    fn check_stopped(&self) {
        let (queued, timer) = (self.queue.len(), self.timer.or(self.rnr_wait_until));
        assert!(
            queued == 0 && timer.is_none() && self.next == self.tail,
            "in ERR with {queued} requests and a timer for {timer:?}"
        );
    }

    /// The ACK timer runs exactly while an ACK or a response is missing (IBA 9.7.6.1.3), and nothing is sent while the
    /// responder is not ready (IBA 9.7.5.2.8).
    fn check_timer(&self, config: &Config) {
        let Self { unacknowledged, next, newest, timer, rnr_wait_until, .. } = *self;
        assert!(
            timer.is_none() || unacknowledged < newest,
            "the ACK timer is armed for {timer:?}, and everything before {newest:?} is acknowledged"
        );
        assert!(
            timer.is_some() || unacknowledged == next || config.timeout.is_none(),
            "the ACK timer is not armed, and {unacknowledged:?} to {next:?} are in flight"
        );
        assert!(
            rnr_wait_until.is_none() || unacknowledged == next,
            "{unacknowledged:?} to {next:?} were sent in an RNR wait until {rnr_wait_until:?}"
        );
    }

    /// A requester that does not try to send waits for something that will happen: an ACK or a response that it requested, a
    /// timer, memory, budget, or the owner.
    fn check_progress(&self, config: &Config) {
        let Self { unacknowledged, next, newest, ack_requested, since_ack_request, .. } = *self;
        assert!(
            since_ack_request < ACK_REQUEST_INTERVAL,
            "{since_ack_request} packets without an ACK request"
        );
        let Some(queued) = self.queue.get(self.next_index).filter(|_| self.stalled) else {
            assert!(
                unacknowledged == next || next < self.tail || self.awaits_ack(),
                "all is sent, and no ACK is requested of {unacknowledged:?} to {next:?}"
            );
            return;
        };
        let has_timer = self.rnr_wait_until.or(self.paced_until).or(self.timer).is_some();
        let waits_for_memory = !self.withheld.is_empty() || self.staging.unfinished() > 0;
        let waits_for_owner = (self.sending == Sending::Draining && queued.start >= newest)
            || (queued.request.operation.wants_response() && config.max_rd_atomic == 0);
        assert!(
            has_timer
                || self.awaits_ack()
                || waits_for_memory
                || self.waits_for_budget
                || waits_for_owner,
            "nothing will make request {} of {} go on: unacknowledged {unacknowledged:?}, next {next:?}, \
             newest {newest:?}, ACK requested before {ack_requested:?}",
            self.next_index,
            self.queue.len()
        );
    }

    /// The requests follow each other in PSNs and SSNs, and what is in flight is what they say.
    fn check_queue(&self, config: &Config) {
        let mut outstanding = self.outstanding.iter();
        let mut before = None;
        for (index, queued) in self.queue.iter().enumerate() {
            let ssn = queued.ssn.wrapping_sub(self.messages_of(queued));
            assert!(
                before.is_none_or(|before| before == (queued.start, ssn)),
                "request {index} starts at {:?} with SSN {ssn}, the one before it ends at {before:?}",
                queued.start
            );
            before = Some((queued.end(), queued.ssn));
            assert!(
                queued.packets > 0
                    || index >= self.next_index
                    || queued.state == RequestState::Executed,
                "local request {index} is {:?}, and request {} is next",
                queued.state,
                self.next_index
            );
            if queued.request.operation.wants_response() && queued.start < self.next {
                let mut from = self.unacknowledged.since(queued.start);
                while from < queued.packets && queued.start.plus(from) < self.next {
                    from = self.chunk_end(queued, from);
                    let (end, counted) = (queued.start.plus(from), outstanding.next());
                    assert!(
                        counted == Some(&end),
                        "a response ends at {end:?}, and {counted:?} is outstanding"
                    );
                }
            }
        }
        let left = outstanding.next();
        assert!(left.is_none(), "{left:?} is outstanding, and not in flight");
        let (kept, counted) = (self.in_flight, self.count_in_flight(config.mtu));
        assert!(kept == counted, "{kept:?} in flight, and {counted:?} in the queue");
    }

    /// The messages that the responder counts for a request (IBA 9.7.7.2).
    fn messages_of(&self, queued: &super::QueuedRequest) -> u32 {
        match queued.request.operation {
            super::Operation::Read { .. } => queued.packets.div_ceil(self.chunk_packets),
            _ => queued.packets.min(1),
        }
    }

    /// Requests that were posted, and have not completed. One whose response could not be written has.
    pub(in crate::rc) fn uncompleted(&self) -> usize {
        let is_counted_twice = self.failed.is_some_and(Failed::skips_next);
        self.queue.len() + self.withheld.effects().count() - usize::from(is_counted_twice)
    }
}
