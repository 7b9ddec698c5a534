//! Halts the device thread, so that a program makes all passes itself: for counting the instructions of the data path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use ferroce_sys::clock::FastClock;

use super::adapter::Adapter;
use super::shards::Handle;
use crate::sync::lock;

/// Nanoseconds between two readings of the clock of a halted device: about what a pass takes.
const STEP: u64 = 100;

#[derive(Debug, Default)]
pub(super) struct Pause {
    /// The same as in `state`: the thread looks at it before each pass.
    requested: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requested: bool,
    halted: bool,
}

impl Pause {
    /// Waits while a pause is requested. Called by the device thread.
    pub(super) fn halt_if_requested(&self, prepare: impl FnOnce()) {
        if !self.requested.load(Ordering::Relaxed) {
            return;
        }
        prepare();
        let mut state = lock(&self.state);
        state.halted = true;
        self.changed.notify_all();
        let state = self.changed.wait_while(state, |state| state.requested);
        state.unwrap_or_else(|poisoned| poisoned.into_inner()).halted = false;
    }

    fn request(&self, wake: impl FnOnce()) {
        lock(&self.state).requested = true;
        self.requested.store(true, Ordering::Relaxed);
        wake();
        drop(self.changed.wait_while(lock(&self.state), |state| !state.halted));
    }

    fn end(&self) {
        self.requested.store(false, Ordering::Relaxed);
        lock(&self.state).requested = false;
        self.changed.notify_all();
    }
}

/// The device threads of a context are halted while this value lives, and its clocks advance by a step with each reading: how
/// often a pass looks at quiet sockets must not depend on the speed of the machine.
#[derive(Debug)]
pub struct PausedThread {
    handle: Arc<Handle>,
}

impl PausedThread {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        for shard in handle.shards() {
            shard.pause.request(|| shard.signals.wake());
            set_clock(shard, FastClock::stepped(STEP));
        }
        Self { handle }
    }
}

impl Drop for PausedThread {
    fn drop(&mut self) {
        for shard in self.handle.shards() {
            set_clock(shard, FastClock::new());
            shard.pause.end();
        }
    }
}

/// Without its thread, only a program that uses it from several threads at once may own the device: its clock is not replaced.
fn set_clock(shard: &Adapter, clock: FastClock) {
    if let Some(mut driver) = shard.driver.try_own() {
        driver.clock = clock;
    }
}
