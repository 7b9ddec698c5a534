//! Halts the device thread, so that a program makes all passes itself: for counting the instructions of the data path.

use std::sync::Arc;

use ferroce_sys::clock::FastClock;

use super::adapter::Adapter;
use super::shards::Handle;

/// Nanoseconds between two readings of the clock of a halted device: about what a pass takes.
const STEP: u64 = 100;

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
