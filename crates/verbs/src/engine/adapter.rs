//! An open device in a process, or one of its shards: see [`super::shards`].

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use ferroce_sync::Owned;

use super::data_path::DataPath;
use super::driver::Driver;
use crate::drive::Polling;
use crate::sync::lock;

/// An open device in this process: its data path, and which thread drives it.
pub(crate) struct Adapter {
    pub(super) data_path: DataPath,
    /// The process that opened the device.
    pub(super) process: u32,
    /// What only the thread that makes a pass may use.
    pub(crate) driver: Owned<Driver>,
    pub(super) polling: Polling,
    pub(super) pause: Pause,
    /// Makes the next pass of the device thread panic.
    #[cfg(test)]
    pub(super) panics: AtomicBool,
}

impl Adapter {
    pub(super) fn new(data_path: DataPath) -> Self {
        let driver = Driver::new(&data_path);
        Self {
            data_path,
            process: std::process::id(),
            driver: Owned::new(driver),
            polling: Polling::default(),
            pause: Pause::default(),
            #[cfg(test)]
            panics: false.into(),
        }
    }
}

impl Deref for Adapter {
    type Target = DataPath;

    #[inline]
    fn deref(&self) -> &DataPath {
        &self.data_path
    }
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

/// Where the device thread halts while a program makes all passes itself.
#[derive(Debug, Default)]
pub(super) struct Pause {
    requested: AtomicBool,
    halted: Mutex<bool>,
    changed: Condvar,
}

impl Pause {
    /// Waits while a pause is requested. Called by the device thread.
    pub(super) fn halt_if_requested(&self, prepare: impl FnOnce()) {
        if !self.requested.load(Ordering::Relaxed) {
            return;
        }
        prepare();
        let mut halted = lock(&self.halted);
        *halted = true;
        self.changed.notify_all();
        let halted = self.changed.wait_while(halted, |_| self.requested.load(Ordering::Relaxed));
        *halted.unwrap_or_else(PoisonError::into_inner) = false;
    }

    pub(super) fn request(&self, wake: impl FnOnce()) {
        self.requested.store(true, Ordering::Relaxed);
        wake();
        drop(self.changed.wait_while(lock(&self.halted), |halted| !*halted));
    }

    pub(super) fn end(&self) {
        let _halted = lock(&self.halted);
        self.requested.store(false, Ordering::Relaxed);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use crate::event::{AsyncEvent, EventKind, Source};
    use crate::{Context, Device, Options};

    #[test]
    fn a_panic_in_a_pass_is_a_fatal_event() {
        let options = Options { port: 9471, ..Options::default() };
        let context = Context::open(&Device::named("lo").unwrap(), &options).unwrap();
        let adapter = context.adapter();
        adapter.panics.store(true, Ordering::Relaxed);
        adapter.signals.wake();
        let deadline = Instant::now() + Duration::from_secs(20);
        let event = context.wait_event(Some(deadline)).unwrap();
        let fatal = AsyncEvent { source: Source::Device, kind: EventKind::DeviceFatal };
        assert_eq!(event, Some(fatal));
        // Calls still return, and the device can be closed.
        let pd = context.protection_domain();
        let completions = context.completion_queue(16, None).unwrap();
        assert!(completions.poll_one().is_none());
        drop((pd, completions, context));
    }
}
