//! Atomic operations on registered memory: the processor's own, so that they are atomic towards the application's
//! threads too (what verbs call `IBV_ATOMIC_GLOB`).

use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_proto::memory::Atomic;

/// Does the operation and returns what was there.
///
/// # Safety
/// The 8 bytes at `place` are mapped and writable until this returns, and `place` is aligned to 8.
#[inline]
pub(crate) unsafe fn execute(place: *mut u64, what: Atomic) -> u64 {
    // SAFETY: the caller's promise. Whoever else uses the word does so atomically, or accepts a race.
    let word = unsafe { AtomicU64::from_ptr(place) };
    // Sequentially consistent: a peer orders its operations by their completions, and expects all others to see that order.
    match what {
        Atomic::CompareSwap { compare, swap } => word
            .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
            .unwrap_or_else(|original| original),
        Atomic::FetchAdd(value) => word.fetch_add(value, Ordering::SeqCst),
        Atomic::Write(value) => word.swap(value, Ordering::SeqCst),
    }
}
