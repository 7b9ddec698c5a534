//! Bandwidth and message rate: as many requests in flight as the send queue holds.

use ferroce::clock;

use super::args::Operation;
use super::control::Mail;
use super::test::Amount;
use super::worker::{Limit, Run};
use crate::session::failure::Failure;

impl Run<'_> {
    /// Sends, if this side does, and serves the peer.
    pub(super) fn stream(&mut self) -> Result<(), Failure> {
        if self.worker.sends() {
            self.send_for(Amount::Iterations(self.test.warm_up(self.size)))?;
            let before = self.sent();
            self.tally.start = clock::now();
            self.send_for(self.test.amount)?;
            self.tally.end = clock::now();
            self.tally.sent = self.sent();
            self.tally.messages = self.tally.sent - before;
            self.line.send(Mail::Sent { count: self.tally.sent })?;
        }
        let peer_sends = !self.worker.sends() || self.test.bidirectional;
        if peer_sends { self.serve_peer() } else { Ok(()) }
    }

    fn sent(&self) -> u64 {
        self.flows.iter().map(|flow| flow.completed).sum()
    }

    fn send_for(&mut self, amount: Amount) -> Result<(), Failure> {
        let limit = self.limit(amount);
        match self.test.verify {
            true => self.send_in_rounds(&limit),
            false => self.send_all(&limit),
        }
    }

    /// Keeps all send queues full.
    fn send_all(&mut self, limit: &Limit) -> Result<(), Failure> {
        let (test, size) = (self.test, self.size);
        let (depth, list) = (u64::from(test.tx_depth), u64::from(test.post_list));
        let moderation = test.moderation(size);
        let ends = self.flows.iter().map(|flow| flow.posted.saturating_add(limit.messages));
        let ends: Vec<u64> = ends.collect();
        while !self.is_over(limit) {
            let mut done = true;
            for ((flow, end), &last) in self.flows.iter_mut().zip(&self.worker.ends).zip(&ends) {
                while flow.posted < last {
                    let next = flow.posted + list.min(last - flow.posted);
                    if next - flow.completed > depth {
                        break;
                    }
                    let signaled = |number| is_signaled(number, moderation) || number + 1 == last;
                    end.post(test, size, flow.posted..next, signaled)?;
                    flow.posted = next;
                }
                done &= flow.completed == last;
            }
            if done {
                return Ok(());
            }
            self.turn()?;
        }
        self.drain(moderation)
    }

    /// Waits until all requests are done. Those without a completion are done when a later one with a completion is, so
    /// such a request is sent if the last one has none.
    fn drain(&mut self, moderation: u64) -> Result<(), Failure> {
        for (index, end) in self.worker.ends.iter().enumerate() {
            let posted = self.flows[index].posted;
            if posted == self.flows[index].completed || is_signaled(posted - 1, moderation) {
                continue;
            }
            while posted - self.flows[index].completed >= u64::from(self.test.tx_depth) {
                self.turn()?;
            }
            end.post(self.test, self.size, posted..posted + 1, |_| true)?;
            self.flows[index].posted += 1;
        }
        self.wait_for_completions()
    }

    fn wait_for_completions(&mut self) -> Result<(), Failure> {
        while self.flows.iter().any(|flow| flow.completed < flow.posted) {
            self.turn()?;
        }
        Ok(())
    }

    /// Sends as many messages as memory has room for, and has all of them checked before the memory is used again.
    fn send_in_rounds(&mut self, limit: &Limit) -> Result<(), Failure> {
        let (test, list) = (self.test, u64::from(self.test.post_list));
        let mut left = limit.messages;
        while left > 0 && !self.is_over(limit) {
            let count = test.slots().min(left);
            let firsts: Vec<u64> = self.flows.iter().map(|flow| flow.posted).collect();
            for (index, &first) in firsts.iter().enumerate() {
                self.worker.fill(index, self.size, first..first + count)?;
            }
            for (flow, end) in self.flows.iter_mut().zip(&self.worker.ends) {
                let last = flow.posted + count;
                while flow.posted < last {
                    let next = last.min(flow.posted + list);
                    end.post(test, self.size, flow.posted..next, |number| number + 1 == last)?;
                    flow.posted = next;
                }
            }
            self.wait_for_completions()?;
            for (end, &first) in firsts.iter().enumerate() {
                if matches!(test.operation, Operation::Read | Operation::Atomic) {
                    self.check_results(end, first..first + count)?;
                }
                if test.operation != Operation::Read {
                    self.line.send(Mail::Check { end, first, count })?;
                    self.unanswered += 1;
                }
            }
            self.wait_for_answers()?;
            left -= count;
        }
        Ok(())
    }
}

fn is_signaled(number: u64, moderation: u64) -> bool {
    (number + 1) % moderation == 0
}
