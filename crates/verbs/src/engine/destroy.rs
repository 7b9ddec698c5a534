//! Destroying objects that the engine may be working on: between two passes, so that nothing of them is half done.
//!
//! A pass owns the device from the first packet that it receives to the last that it sends. Whoever destroys a queue
//! pair or a shared receive queue waits for the end of the current pass, and holds the next one off meanwhile. So after
//! the destroying call has returned, no thread is between looking the object up and using it, no completion of it is on
//! its way, and no packet of it waits to be sent.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use ferroce_sys::clock;
use ferroce_wire::number::Qpn;

use super::adapter::{Adapter, now};
use super::progress::Progress;
use super::queue_pair::Core;
use crate::sync::lock;

/// How long a socket without room is waited for, nanoseconds: the peer wants the acknowledgements of what has completed.
const LONGEST: u64 = 100_000_000;

thread_local! {
    /// This thread is in a pass.
    static IN_PASS: Cell<bool> = const { Cell::new(false) };
}

/// The device, for as long as a pass takes.
pub(super) struct Pass<'a>(MutexGuard<'a, Progress>);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        IN_PASS.set(false);
    }
}

impl Deref for Pass<'_> {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.0
    }
}

impl DerefMut for Pass<'_> {
    fn deref_mut(&mut self) -> &mut Progress {
        &mut self.0
    }
}

impl Adapter {
    /// Begins a pass, after those who wait for the end of the last one.
    pub(super) fn begin_pass(&self) -> Pass<'_> {
        // The mutex alone is not fair: a thread that polls would take it again and again.
        while self.is_awaited() {
            std::thread::yield_now();
        }
        let progress = lock(&self.progress);
        IN_PASS.set(true);
        Pass(progress)
    }

    /// Whether a thread waits for the end of the pass. That thread does what the pass leaves undone.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits for the end of the current pass. `None` where that would be for ever: within a pass, and in a forked child,
    /// whose parent's threads do not exist. The caller calls [`Adapter::drive`] afterwards.
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

    /// Takes a queue pair from the engine. It keeps its number, for which packets may come.
    pub(crate) fn destroy_queue_pair(&self, core: &Arc<Core>) {
        self.groups.detach(None, core);
        let until = clock::now() + LONGEST;
        while let Some(mut progress) = self.between_passes() {
            // A pass acknowledges what it has received before it ends, unless a socket had no room.
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

    /// Takes a shared receive queue from the engine.
    pub(crate) fn destroy_receive_queue(&self, number: Qpn) {
        let pass = self.between_passes();
        self.remove_receive_queue(number);
        drop(pass);
        self.drive();
    }

    /// Sends what a queue pair may have left to send. False when a socket has no room.
    fn send_remaining(&self, core: &Arc<Core>, progress: &mut Progress) -> bool {
        if !self.flush(&mut progress.tx) {
            return false;
        }
        if core.queued.load(Ordering::Acquire) {
            self.transmit(core, progress, now());
        }
        self.flush(&mut progress.tx)
    }
}
