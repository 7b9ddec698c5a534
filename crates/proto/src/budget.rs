//! Flow control by the caller: credit that a QP may spend in one turn, and what it has in flight.
//!
//! Many QPs send to one receive buffer, so a window per QP cannot keep them within it. The caller keeps one pool of
//! credit per buffer, gives a QP a [`Budget`] from it, and takes back what [`InFlight`] no longer contains.

use ferroce_wire::number::Psn;

/// Bytes that a QP may add to those in flight in one turn, as [`cost`](crate::congestion::cost) counts them.
///
/// The packet that leaves less than the cost of a full packet requests an ACK, so the credit comes back within a round
/// trip. This holds only if the next turn's budget is at least what this one left: a caller that reduces it before the
/// ACK request gets the credit back later.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Towards the peer's receive buffer: SENDs, WRITEs, atomics, FLUSHes.
    pub peer: usize,
    /// Towards the local receive buffer: READ responses requested.
    pub own: usize,
}

impl Budget {
    /// No limit.
    pub const UNLIMITED: Self = Self { peer: usize::MAX, own: usize::MAX };

    /// Whether `bytes` fit.
    pub(crate) const fn fits(&self, bytes: InFlight) -> bool {
        bytes.peer <= self.peer && bytes.own <= self.own
    }

    /// Subtracts `bytes`. An unlimited budget stays unlimited for 2^64 bytes.
    pub(crate) fn spend(&mut self, bytes: InFlight) {
        self.peer = self.peer.saturating_sub(bytes.peer);
        self.own = self.own.saturating_sub(bytes.own);
    }
}

/// Bytes in flight of a QP, as [`cost`](crate::congestion::cost) counts them: of request packets sent and not
/// acknowledged, and of READ responses requested and not received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Towards the peer's receive buffer.
    pub peer: usize,
    /// Towards the local receive buffer.
    pub own: usize,
}

impl InFlight {
    /// Nothing.
    pub const NONE: Self = Self { peer: 0, own: 0 };

    pub(crate) fn add(&mut self, bytes: Self) {
        self.peer += bytes.peer;
        self.own += bytes.own;
    }

    pub(crate) fn subtract(&mut self, bytes: Self) {
        debug_assert!(bytes.peer <= self.peer && bytes.own <= self.own, "{bytes:?} of {self:?}");
        self.peer = self.peer.saturating_sub(bytes.peer);
        self.own = self.own.saturating_sub(bytes.own);
    }
}

/// What a QP could send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pending {
    /// Nothing: any unsent packet waits for a response, for a timer or for budget.
    Nothing,
    /// Only positive ACKs, which may be delayed and coalesced (IBA 9.7.5.1.2).
    Ack,
    /// Possibly something else: a request, a NAK, a READ or atomic response, or a CNP.
    Urgent,
}

/// How far a QP is: see [`Endpoint::progress`](crate::endpoint::Endpoint::progress).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Unfinished send requests.
    pub send_queue: usize,
    /// Request packets of RC or XRC sent and not acknowledged.
    pub packets_in_flight: u32,
    /// The cost of these, and of READ responses on their way, as the flow control counts it.
    pub bytes_in_flight: usize,
    /// The PSN of the next request packet.
    pub send_psn: Psn,
    /// The PSN of the request packet expected next.
    pub receive_psn: Psn,
}
