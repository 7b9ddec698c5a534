//! Asymmetric fences: a light one, which is free, and a heavy one, which is a system call.
//!
//! Two threads that store something and then load what the other has stored both need a fence in between; otherwise
//! each may miss the other's store, which is still in a store buffer. If one does so millions of times per second and
//! the other rarely, the first calls [`light`] and the second [`heavy`]. The heavy fence is membarrier(2): it makes
//! every running thread of this process execute a fence; all others have executed one when they were scheduled out.
//!
//! Without kernel support, both are ordinary fences.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier};

use crate::primitives::fence;

/// Whether [`light`] is only a compiler fence. If so, [`heavy`] is a system call.
static IS_ASYMMETRIC: AtomicBool = AtomicBool::new(false);

/// Registers the process for membarrier(2), so that [`light`] becomes a compiler fence. Without this call it is an ordinary fence.
///
/// The first call in a multithreaded process waits until all processors have been scheduled: milliseconds.
pub fn prepare() {
    static PREPARED: OnceLock<()> = OnceLock::new();
    PREPARED.get_or_init(|| {
        // Miri does not support the call, and loom does not know its effect.
        let is_possible = !cfg!(any(miri, ferroce_loom));
        let register = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        IS_ASYMMETRIC.store(is_possible && register(), Ordering::Relaxed);
    });
}

/// The fence of the thread that executes it often.
#[inline]
pub fn light() {
    if IS_ASYMMETRIC.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The fence of the thread that executes it rarely.
pub fn heavy() {
    prepare();
    fence(Ordering::SeqCst);
    if IS_ASYMMETRIC.load(Ordering::Relaxed) && interrupt_all().is_err() {
        // A sandbox that was entered meanwhile forbids the call. Light fences are full ones from now on, and the
        // earlier stores of other threads leave their store buffers long before this sleep ends.
        IS_ASYMMETRIC.store(false, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(10));
    }
    fence(Ordering::SeqCst);
}

fn interrupt_all() -> Result<(), Errno> {
    match membarrier(MembarrierCommand::PrivateExpedited) {
        // Not registered: a forked child.
        Err(Errno::PERM) => {
            membarrier(MembarrierCommand::RegisterPrivateExpedited)?;
            membarrier(MembarrierCommand::PrivateExpedited)
        }
        done => done,
    }
}

#[cfg(test)]
mod tests;
