//! Doorbell coalescing: requests that were just posted may be sent with later ones, in one system call.
//!
//! A request may be held back only while an earlier one of its QP is in flight and the wait for the peer's ACK is
//! bounded: the ACK was requested (AckReq), or a timer of the QP is armed. The ACK or the timer then causes the QP to
//! be polled, and what was held back is sent without another call by the program.

#[cfg(test)]
mod tests;

/// What to do with requests that were just posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "requests that are not held back have to be sent"]
pub enum Ring {
    /// Send them now, with all that were held back.
    Now,
    /// They may wait for the next packet from the peer, the next timeout, or a later post.
    Later,
}

/// The requests of a QP that were posted and may not have been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doorbell {
    requests: usize,
    bytes: u64,
}

impl Doorbell {
    /// Maximum number of requests held back: beyond it, one system call costs little per request.
    pub const MAX_REQUESTS: usize = 32;

    /// Maximum number of bytes held back, so that the network does not idle for long while there is something to send.
    pub const MAX_BYTES: u64 = 16 << 10;

    /// Decides whether to send or hold back `requests` requests of `bytes` bytes that were just posted.
    ///
    /// `has_unacknowledged` is that of the QP, for instance
    /// [`Endpoint::has_unacknowledged`](crate::endpoint::Endpoint::has_unacknowledged). It is false for UC and UD,
    /// whose requests are never held back. A request with no other in flight is sent at once.
    pub fn post(&mut self, requests: usize, bytes: u64, has_unacknowledged: bool) -> Ring {
        self.requests += requests;
        self.bytes += bytes;
        let fits = self.requests <= Self::MAX_REQUESTS && self.bytes <= Self::MAX_BYTES;
        if fits && has_unacknowledged { Ring::Later } else { Ring::Now }
    }

    /// Called when the QP is polled for packets: nothing is held back any more.
    pub fn release(&mut self) {
        *self = Self::default();
    }

    /// Number of requests since the last [`Doorbell::release`].
    pub fn requests(&self) -> usize {
        self.requests
    }
}
