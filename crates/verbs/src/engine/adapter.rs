//! An open device in a process, or one of its shards: see [`super::shards`].

use std::ops::Deref;

use ferroce_sync::Owned;

use super::data_path::DataPath;
use super::driver::Driver;
use super::pause::Pause;
use crate::drive::Polling;

/// An open device in this process: its data path, and which thread drives it.
pub(crate) struct Adapter {
    pub(super) data_path: DataPath,
    /// The process that opened the device.
    pub(super) process: u32,
    /// What only the thread that makes a pass may use.
    pub(super) driver: Owned<Driver>,
    pub(super) polling: Polling,
    pub(super) pause: Pause,
    /// Makes the next pass of the device thread panic.
    #[cfg(test)]
    pub(super) panics: std::sync::atomic::AtomicBool,
}

impl Adapter {
    pub(super) fn new(data_path: DataPath) -> Self {
        let driver = Driver::new(&data_path.port, data_path.options.faults);
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
