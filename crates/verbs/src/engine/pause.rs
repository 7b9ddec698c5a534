//! Where the device thread halts while a program makes all passes itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

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

    pub(super) fn request(&self, wake: impl FnOnce()) {
        lock(&self.state).requested = true;
        self.requested.store(true, Ordering::Relaxed);
        wake();
        drop(self.changed.wait_while(lock(&self.state), |state| !state.halted));
    }

    pub(super) fn end(&self) {
        self.requested.store(false, Ordering::Relaxed);
        lock(&self.state).requested = false;
        self.changed.notify_all();
    }
}
