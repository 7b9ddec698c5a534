//! Receive queues: a QP's own RQ, or a shared receive queue (SRQ).

use alloc::collections::VecDeque;

use crate::memory::PdId;
use crate::work::{Completion, ReceiveRequest, Status};

/// An XRC domain (XRCD): targets and SRQs of the same domain reach each other (IBA A14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct XrcDomain(pub u32);

/// XRC properties of an SRQ. An XRC target has no PD: memory is looked up in the PD of the SRQ that a message names
/// (IBA A14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcProperties {
    /// The XRC domain whose targets may use the SRQ.
    pub xrc: XrcDomain,
    /// The PD of the memory that its messages use.
    pub pd: PdId,
}

/// Posted receive requests, consumed in order.
#[derive(Debug)]
pub struct ReceiveQueue {
    requests: VecDeque<ReceiveRequest>,
    capacity: usize,
    /// SRQ limit: an event is raised when fewer than this many requests remain (IBA 10.2.9.3), and the limit is
    /// disarmed.
    limit: Option<usize>,
    limit_reached: bool,
    xrc: Option<XrcProperties>,
}

/// The queue is full; returns the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full(pub ReceiveRequest);

impl ReceiveQueue {
    /// Creates a queue for up to `capacity` requests.
    pub fn new(capacity: usize) -> Self {
        let requests = VecDeque::new();
        Self { requests, capacity, limit: None, limit_reached: false, xrc: None }
    }

    /// Creates an SRQ that XRC messages can name.
    pub fn with_xrc(capacity: usize, xrc: XrcProperties) -> Self {
        Self { xrc: Some(xrc), ..Self::new(capacity) }
    }

    /// The XRC properties, if it is an XRC SRQ.
    pub fn xrc(&self) -> Option<XrcProperties> {
        self.xrc
    }

    /// Maximum number of requests.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the capacity (IBA 11.2.3.3). Returns false, without a change, when more requests than that are queued.
    #[must_use]
    pub fn resize(&mut self, capacity: usize) -> bool {
        let fits = self.requests.len() <= capacity;
        if fits {
            self.capacity = capacity;
        }
        fits
    }

    /// Adds a request, or returns it in the error.
    pub fn post(&mut self, request: ReceiveRequest) -> Result<(), Full> {
        if self.requests.len() >= self.capacity {
            return Err(Full(request));
        }
        self.requests.push_back(request);
        Ok(())
    }

    /// Arms the SRQ limit.
    pub fn arm_limit(&mut self, limit: usize) {
        self.limit = Some(limit).filter(|&limit| limit > 0);
    }

    /// Whether the limit was reached since the last call.
    pub fn poll_limit(&mut self) -> bool {
        core::mem::take(&mut self.limit_reached)
    }

    /// The oldest request.
    #[inline]
    pub fn first(&self) -> Option<&ReceiveRequest> {
        self.requests.front()
    }

    /// Removes the oldest request.
    #[inline]
    pub fn take(&mut self) -> Option<ReceiveRequest> {
        let request = self.requests.pop_front()?;
        if self.limit.is_some_and(|limit| self.requests.len() < limit) {
            self.limit = None;
            self.limit_reached = true;
        }
        Some(request)
    }

    /// Returns a request whose message was dropped before it completed; the next message consumes it.
    pub fn put_back(&mut self, request: ReceiveRequest) {
        self.requests.push_front(request);
    }

    /// Takes all requests and completes them as flushed.
    pub(crate) fn flush(&mut self, done: &mut VecDeque<Completion>) {
        while let Some(request) = self.take() {
            done.push_back(request.completion(Status::Flushed));
        }
    }

    /// The armed limit.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Number of queued requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Full, ReceiveQueue};
    use crate::work::{ReceiveRequest, SgList, WorkId};

    fn request(id: u64) -> ReceiveRequest {
        ReceiveRequest { id: WorkId(id), sg_list: SgList::NONE }
    }

    #[test]
    fn reports_the_srq_limit_once() {
        let mut queue = ReceiveQueue::new(4);
        (0..4).for_each(|id| queue.post(request(id)).unwrap());
        assert_eq!(queue.post(request(4)), Err(Full(request(4))));
        queue.arm_limit(3);
        assert_eq!((queue.limit(), queue.poll_limit()), (Some(3), false));
        assert_eq!(queue.take(), Some(request(0)));
        assert!(!queue.poll_limit(), "three are left");
        assert_eq!(queue.take(), Some(request(1)));
        assert_eq!((queue.poll_limit(), queue.poll_limit()), (true, false));
        assert_eq!((queue.take(), queue.limit()), (Some(request(2)), None), "disarmed");
        assert!(!queue.poll_limit());
    }

    #[test]
    fn a_returned_request_is_consumed_next() {
        let mut queue = ReceiveQueue::new(2);
        (0..2).for_each(|id| queue.post(request(id)).unwrap());
        let first = queue.take().unwrap();
        queue.post(request(2)).unwrap();
        queue.put_back(first);
        assert_eq!((queue.len(), queue.take()), (3, Some(request(0))));
    }

    #[test]
    fn refuses_a_capacity_below_the_queue_length() {
        let mut queue = ReceiveQueue::new(2);
        (0..2).for_each(|id| queue.post(request(id)).unwrap());
        assert!(!queue.resize(1));
        assert!(queue.resize(3));
        assert_eq!(queue.capacity(), 3);
        queue.post(request(2)).unwrap();
    }
}
