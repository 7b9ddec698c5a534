//! Halts the device thread, so that a program makes all passes itself: for counting the instructions of the data path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::shards::Handle;
use crate::sync::lock;

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

/// The device threads of a context are halted while this value lives.
#[derive(Debug)]
pub struct PausedThread {
    handle: Arc<Handle>,
}

impl PausedThread {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        for shard in handle.shards() {
            shard.signals.pause.request(|| shard.signals.wake());
        }
        Self { handle }
    }
}

impl Drop for PausedThread {
    fn drop(&mut self) {
        self.handle.shards().for_each(|shard| shard.signals.pause.end());
    }
}
