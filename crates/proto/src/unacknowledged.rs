//! Parts common to the services without acknowledgements, UC and UD: the send queue, the completions, and the SQE and
//! ERR states.

#[cfg(debug_assertions)]
mod invariants;
mod payload;

use alloc::collections::VecDeque;

use ferroce_wire::number::Psn;

use crate::counters::Uncollected;
use crate::qp::Fault;
use crate::reason::Reason;
use crate::receive::ReceiveQueue;
use crate::sequence::Sequence;
use crate::staging::Staging;
use crate::work::{Completion, CompletionKind, Data, PostError, SendRequest, Status, WorkId};

/// A send work request of UC or UD.
pub(crate) trait SendWork {
    fn id(&self) -> WorkId;
    fn kind(&self) -> CompletionKind;
    fn signaled(&self) -> bool;
    fn data(&self) -> &Data;

    /// Payload bytes.
    fn len(&self) -> u64 {
        self.data().len()
    }

    /// Number of its packets.
    fn packets(&self, mtu: u64) -> u64 {
        self.len().div_ceil(mtu).max(1)
    }

    /// The completion of the request. Only a successful one reports a length.
    fn completion(&self, status: Status) -> Completion {
        Completion {
            length: if status == Status::Success { self.len() as u32 } else { 0 },
            ..Completion::new(self.id(), self.kind(), status)
        }
    }
}

impl SendWork for SendRequest {
    fn id(&self) -> WorkId {
        self.id
    }

    fn kind(&self) -> CompletionKind {
        CompletionKind::from(&self.operation)
    }

    fn signaled(&self) -> bool {
        self.signaled
    }

    fn data(&self) -> &Data {
        &self.data
    }
}

/// One packet of the oldest request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// Its index within the message.
    pub(crate) index: u32,
    pub(crate) last: bool,
    pub(crate) sequence: Sequence,
}

/// The send queue.
///
/// A request is complete when its last packet is handed out (IBA 9.8.2, 9.8.3). That packet still borrows the request,
/// and its payload may turn out to be unreadable, so the request leaves the queue in the next call of
/// [`SendQueue::complete_sent`].
#[derive(Debug)]
pub(crate) struct SendQueue<T> {
    requests: VecDeque<T>,
    /// The next packet.
    next: Sequence,
    /// Packets of the oldest request that were handed out.
    sent: u32,
    /// The last packet of the oldest request was handed out.
    finished: bool,
    /// The payload that memory reads ahead.
    staging: Staging,
    /// The payload of the next packet is being read.
    waits: bool,
}

impl<T: SendWork> SendQueue<T> {
    pub(crate) fn new(psn: Psn) -> Self {
        let (requests, staging) = (VecDeque::new(), Staging::default());
        let next = Sequence::starting(psn);
        Self { requests, next, sent: 0, finished: false, staging, waits: false }
    }

    /// The PSN of the next packet.
    pub(crate) fn next_psn(&self) -> Psn {
        self.next.psn()
    }

    /// Number of unfinished requests.
    pub(crate) fn len(&self) -> usize {
        self.requests.len() - usize::from(self.finished)
    }

    /// Whether no message is partly sent.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.sent == 0 || self.finished
    }

    /// The request whose packet was handed out last.
    pub(crate) fn last_sent(&self) -> Option<WorkId> {
        self.requests.front().filter(|_| self.sent > 0).map(SendWork::id)
    }

    /// The oldest request, finished or not.
    pub(crate) fn oldest(&self) -> Option<&T> {
        self.requests.front()
    }

    /// The oldest unfinished request.
    pub(crate) fn next(&self) -> Option<&T> {
        self.requests.get(usize::from(self.finished))
    }

    fn post(&mut self, request: T, capacity: usize) -> Result<(), PostError> {
        if self.len() >= capacity {
            return Err(PostError::Full);
        }
        self.requests.push_back(request);
        Ok(())
    }

    /// Takes the next packet of the oldest request, a message of `packets` packets.
    pub(crate) fn take_segment(&mut self, packets: u64) -> Option<(&T, &Staging, Segment)> {
        let request = self.requests.front()?;
        let (index, sequence) = (self.sent, self.next);
        self.sent += 1;
        self.finished = u64::from(self.sent) >= packets;
        self.next = sequence.plus(1);
        Some((request, &self.staging, Segment { index, last: self.finished, sequence }))
    }

    /// Removes the oldest request and completes it with `status`; unsignaled successes complete silently.
    pub(crate) fn complete_oldest(&mut self, status: Status, done: &mut VecDeque<Completion>) {
        self.end_oldest(status, 0, done);
    }

    /// The same with the number of a reason.
    pub(crate) fn end_oldest(
        &mut self,
        status: Status,
        reason: u16,
        done: &mut VecDeque<Completion>,
    ) {
        (self.sent, self.finished) = (0, false);
        if let Some(request) = self.requests.pop_front() {
            if request.signaled() || status != Status::Success {
                done.push_back(request.completion(status).because(reason));
            }
        }
    }

    /// Completes the oldest request if its last packet was handed out.
    pub(crate) fn complete_sent(&mut self, done: &mut VecDeque<Completion>) {
        if self.finished {
            self.complete_oldest(Status::Success, done);
        }
    }

    /// Fails the request that the packet with this PSN belongs to. Returns false when the request has already left the
    /// queue: its packet counts as lost.
    fn fail(&mut self, psn: Psn, reason: u16, done: &mut VecDeque<Completion>) -> bool {
        let back = i64::from(self.next_psn().distance(psn));
        let found = (1..=i64::from(self.sent)).contains(&back);
        if found {
            self.end_oldest(Status::LocalProtection, reason, done);
        }
        found
    }

    fn flush(&mut self, done: &mut VecDeque<Completion>) {
        self.clear_payload();
        self.complete_sent(done);
        while !self.requests.is_empty() {
            self.complete_oldest(Status::Flushed, done);
        }
    }
}

/// Send queue, completions and error state of a queue pair.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    pub(crate) send: SendQueue<T>,
    pub(crate) send_done: VecDeque<Completion>,
    pub(crate) receive_done: VecDeque<Completion>,
    pub(crate) reports: Uncollected,
    fault: Option<Fault>,
}

impl<T: SendWork> Queues<T> {
    /// Empty queues; `psn` is the PSN of the first packet.
    pub(crate) fn new(psn: Psn) -> Self {
        Self {
            send: SendQueue::new(psn),
            send_done: VecDeque::new(),
            receive_done: VecDeque::new(),
            reports: Uncollected::new(),
            fault: None,
        }
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Whether the state is ERR; SQE does not count.
    pub(crate) fn in_error(&self) -> bool {
        matches!(self.fault, Some(Fault::Responder | Fault::Owner))
    }

    /// Adds a request to the send queue if `check` accepts it. In SQE and ERR, it is flushed unchecked (IBA 10.3.1.6,
    /// 10.3.1.7).
    pub(crate) fn post_send(
        &mut self,
        request: T,
        capacity: usize,
        check: impl FnOnce(&T) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        if self.fault.is_some() {
            self.send_done.push_back(request.completion(Status::Flushed));
            return Ok(());
        }
        check(&request)?;
        self.send.post(request, capacity)
    }

    /// The payload of the packet with this PSN, the last one handed out, could not be read: its request fails, and all
    /// later requests are flushed (IBA 10.3.1.6).
    pub(crate) fn handle_denied(&mut self, psn: Psn, reason: Reason) {
        if self.fault.is_none() && self.send.fail(psn, reason.number(), &mut self.send_done) {
            self.reports.report(reason);
            self.enter_error(Fault::Requester);
        }
    }

    /// Transition from SQE to RTS (IBA 10.3.1.6). Returns false in any other state.
    pub(crate) fn resume_send(&mut self) -> bool {
        let resumes = self.fault == Some(Fault::Requester);
        if resumes {
            self.fault = None;
        }
        resumes
    }

    /// Enters SQE ([`Fault::Requester`]) or ERR, and flushes the send queue.
    pub(crate) fn enter_error(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.send.flush(&mut self.send_done);
    }

    pub(crate) fn flush_receives(&mut self, receives: &mut ReceiveQueue) {
        receives.flush(&mut self.receive_done);
    }

    pub(crate) fn poll_send_completion(&mut self) -> Option<Completion> {
        self.send.complete_sent(&mut self.send_done);
        self.send_done.pop_front()
    }
}
