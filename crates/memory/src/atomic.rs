//! Atomic operations on registered memory, by the processor's atomic instructions, so that they are also atomic with respect
//! to the application's threads (`IBV_ATOMIC_GLOB`).

use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_proto::memory::Atomic;

/// Executes the operation and returns the original value.
///
/// # Safety
/// The 8 bytes at `word` are mapped and writable until this returns, and `word` is aligned to 8.
#[inline]
pub(crate) unsafe fn execute(word: *mut u64, operation: Atomic) -> u64 {
    // SAFETY: the caller's promise. Other users of the word use atomics, or accept a race.
    let word = unsafe { AtomicU64::from_ptr(word) };
    // Sequentially consistent: a peer orders its operations by their completions, and expects all others to see that order.
    match operation {
        Atomic::CompareSwap { compare, swap } => word
            .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
            .unwrap_or_else(|original| original),
        Atomic::FetchAdd(value) => word.fetch_add(value, Ordering::SeqCst),
        Atomic::Write(value) => word.swap(value, Ordering::SeqCst),
    }
}
