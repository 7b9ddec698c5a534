//! What credit remembers about a QP, in the QP: see [`Membership`](crate::Membership) and [`Marks`](crate::Marks).

use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use ferroce_proto::budget::InFlight;

use crate::receiver::Receiver;

/// A pool by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolId(pub(super) usize);

/// The pools that count a QP, in its [`Membership`](crate::Membership).
#[derive(Debug, Default)]
pub(crate) struct Member {
    pub(super) receiver: Option<(Receiver, PoolId)>,
    /// The bytes that the pools count for it.
    pub(super) charged: InFlight,
}

impl Member {
    /// Whether a pool counts the QP.
    #[inline]
    pub(crate) fn has_joined(&self) -> bool {
        self.receiver.is_some()
    }

    /// Whether the pool that counts the QP is that of this receiver.
    #[inline]
    pub(super) fn is_of(&self, receiver: Option<Receiver>) -> bool {
        self.receiver.map(|(receiver, _)| receiver) == receiver
    }
}

/// Whether a QP waits for credit, in its [`Marks`](crate::Marks): a QP is resumed while another one is locked.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(super) state: AtomicU8,
    /// The credit that is set aside for a resumed QP.
    pub(super) reserved: AtomicUsize,
}

pub(super) const NOT_WAITING: u8 = 0;
/// In the queue of a pool.
pub(super) const WAITING: u8 = 1;
/// Credit of the peer's pool, or of this process's own, is set aside until the QP is served.
pub(super) const RESUMED: u8 = 2;
pub(super) const RESUMED_OWN: u8 = 3;

impl Waiting {
    #[inline]
    pub(super) fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.state() != NOT_WAITING
    }

    /// The credit that is set aside for the QP.
    #[inline]
    pub(super) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Takes the credit that was set aside: for the peer's buffer, and for the own one.
    #[inline]
    pub(super) fn take_reserved(&self) -> InFlight {
        let state = self.state();
        if state != RESUMED && state != RESUMED_OWN {
            return InFlight::NONE;
        }
        let bytes = self.reserved();
        self.reserved.store(0, Ordering::Relaxed);
        self.state.store(NOT_WAITING, Ordering::Relaxed);
        match state {
            RESUMED => InFlight { peer: bytes, own: 0 },
            _ => InFlight { peer: 0, own: bytes },
        }
    }
}

/// The wait of a QP for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowWait {
    pub(super) receiver: Receiver,
    /// The value of `Window::opened` when it began to wait. If it is higher now, the wait is over.
    pub(super) opened: u64,
}

/// The number of the transmit queue that a QP waits for, in its [`Marks`](crate::Marks); 0 if none.
#[derive(Debug, Default)]
pub(crate) struct AwaitedQueue(AtomicU64);

impl AwaitedQueue {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, queue: u64) {
        self.0.store(queue, Ordering::Relaxed);
    }
}
