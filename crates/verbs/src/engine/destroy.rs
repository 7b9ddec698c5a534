//! Destroying objects that the engine may be using: only between two passes.
//!
//! A pass owns the device from the first packet it receives to the last it sends. A thread that destroys a QP or an SRQ
//! waits for the end of the current pass and holds off the next one. After the call has returned, no thread is between
//! looking up the object and using it, no completion of it is in flight, and no packet of it waits to be sent.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use ferroce_sys::clock;
use ferroce_wire::number::Qpn;

use super::adapter::{Adapter, now};
use super::progress::PassState;
use super::queue_pair::Core;
use crate::sync::lock;

/// How long to wait for space in a send buffer, in nanoseconds: the peer still needs the ACKs of completed requests.
const LONGEST: u64 = 100_000_000;

thread_local! {
    /// This thread is making a pass.
    static IN_PASS: Cell<bool> = const { Cell::new(false) };
}

/// Exclusive use of the device during a pass.
pub(super) struct Pass<'a>(MutexGuard<'a, PassState>);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        IN_PASS.set(false);
    }
}

impl Deref for Pass<'_> {
    type Target = PassState;

    fn deref(&self) -> &PassState {
        &self.0
    }
}

impl DerefMut for Pass<'_> {
    fn deref_mut(&mut self) -> &mut PassState {
        &mut self.0
    }
}

impl Adapter {
    /// Begins a pass, after the threads that wait for the end of the last one.
    pub(super) fn begin_pass(&self) -> Pass<'_> {
        // The mutex is not fair: a polling thread would take it again at once.
        while self.is_awaited() {
            std::thread::yield_now();
        }
        let progress = lock(&self.progress);
        IN_PASS.set(true);
        Pass(progress)
    }

    /// Whether a thread waits for the end of the pass. That thread drives the device afterwards.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits for the end of the current pass. Returns `None` where that would deadlock: within a pass, and in a forked
    /// child, which does not have its parent's threads. The caller calls [`Adapter::drive`] afterwards.
    fn between_passes(&self) -> Option<Pass<'_>> {
        if IN_PASS.get() || self.process != std::process::id() {
            return None;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let progress = lock(&self.progress);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        IN_PASS.set(true);
        Some(Pass(progress))
    }

    /// Removes a QP from the engine. Its QPN stays reserved, because packets for it may still arrive.
    pub(crate) fn destroy_queue_pair(&self, core: &Arc<Core>) {
        self.groups.detach(None, core);
        let until = clock::now() + LONGEST;
        while let Some(mut progress) = self.between_passes() {
            // A pass acknowledges what it received before it ends, unless a send buffer was full.
            let sent = self.send_remaining(core, &mut progress);
            if sent || clock::now() >= until {
                lock(&core.inner).destroyed = true;
                self.discard(&mut progress.tx, core.number);
                break;
            }
            drop(progress);
            std::thread::yield_now();
        }
        lock(&core.inner).destroyed = true;
        self.drive();
    }

    /// Removes an SRQ from the engine.
    pub(crate) fn destroy_receive_queue(&self, number: Qpn) {
        let pass = self.between_passes();
        self.remove_receive_queue(number);
        drop(pass);
        self.drive();
    }

    /// Sends the remaining packets of a QP. Returns false if a send buffer is full.
    fn send_remaining(&self, core: &Arc<Core>, progress: &mut PassState) -> bool {
        if !self.flush(&mut progress.tx) {
            return false;
        }
        if core.queued.load(Ordering::Acquire) {
            self.transmit(core, progress, now());
        }
        self.flush(&mut progress.tx)
    }
}
