//! Receive queues: a queue pair's own, or one that many share.

use alloc::collections::VecDeque;

use crate::work::ReceiveRequest;

/// Receive requests in the order in which messages will take them.
#[derive(Debug)]
pub struct ReceiveQueue {
    requests: VecDeque<ReceiveRequest>,
    capacity: usize,
    /// Raise an event when fewer than this many are left (IBA 10.2.9.3); disarmed when it was raised.
    limit: Option<usize>,
    limit_reached: bool,
}

/// The queue holds as many requests as it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full(pub ReceiveRequest);

impl ReceiveQueue {
    /// A queue for so many requests.
    pub fn new(capacity: usize) -> Self {
        Self { requests: VecDeque::new(), capacity, limit: None, limit_reached: false }
    }

    /// Adds a request, or gives it back.
    pub fn post(&mut self, request: ReceiveRequest) -> Result<(), Full> {
        if self.requests.len() >= self.capacity {
            return Err(Full(request));
        }
        self.requests.push_back(request);
        Ok(())
    }

    /// Arms the limit of a shared receive queue.
    pub fn arm_limit(&mut self, limit: usize) {
        self.limit = Some(limit).filter(|&limit| limit > 0);
    }

    /// Whether the limit was reached since it was last asked.
    pub fn poll_limit(&mut self) -> bool {
        core::mem::take(&mut self.limit_reached)
    }

    /// Takes the oldest request.
    pub fn take(&mut self) -> Option<ReceiveRequest> {
        let request = self.requests.pop_front()?;
        if self.limit.is_some_and(|limit| self.requests.len() < limit) {
            self.limit = None;
            self.limit_reached = true;
        }
        Some(request)
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}
