//! Destroying objects that the engine may be using: only between two passes.
//!
//! A pass owns the device from the first packet it receives to the last it sends. A thread that destroys a QP or an SRQ
//! waits for the end of the current pass and holds off the next one. After the call has returned, no thread is between
//! looking up the object and using it, no completion of it is in flight, and no packet of it waits to be sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_device::Link as _;
use ferroce_device::tuning::destroy::LONGEST;
use ferroce_memory::Registry;
use ferroce_proto::memory::Memory;
use ferroce_sys::clock;

use super::adapter::Adapter;
use super::driver::Driver;
use super::pass::{IN_PASS, Pass, TX};
use super::queue_pair::Core;
use crate::time::now;

// Memory that takes time has to be waited for before a QP is destroyed or reset: see `Endpoint::unfinished`.
const _: () = assert!(!<&Registry as Memory>::CAN_PEND);

impl Adapter {
    /// Waits for the end of the current pass. Returns `None` where that would deadlock: within a pass, and in a forked
    /// child, which does not have its parent's threads; and when the device has failed. The caller calls
    /// [`Adapter::drive`] afterwards.
    fn between_passes(&self) -> Option<Pass<'_>> {
        if IN_PASS.get() || self.process != std::process::id() {
            return None;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut guard = self.driver.try_own();
        while guard.is_none() && !self.driver.has_failed() {
            std::thread::yield_now();
            guard = self.driver.try_own();
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard.map(|guard| Pass::new(self, guard))
    }

    /// Removes a QP from the engine. Its QPN stays reserved, because packets for it may still arrive.
    pub(crate) fn destroy_queue_pair(&self, core: &Arc<Core>) {
        self.port.groups.detach(None, core);
        let until = clock::now() + LONGEST;
        while let Some(mut pass) = self.between_passes() {
            // A pass acknowledges what it received before it ends, unless a send buffer was full.
            let Driver { device, tx, .. } = &mut *pass;
            let mut sent = tx.flush(&self.data_path);
            if sent {
                device.turn(tx, &self.data_path, core, &mut core.inner.lock(), now());
                sent = tx.flush(&self.data_path);
            }
            if sent || clock::now() >= until {
                pass.forget(self, core);
                pass.hand_over(TX);
                break;
            }
            pass.hand_over(TX);
            std::thread::yield_now();
        }
        let mut inner = core.inner.lock();
        debug_assert_eq!(inner.endpoint.unfinished(), 0, "its memory is still accessed");
        inner.destroyed = true;
        drop(inner);
        if IN_PASS.get() {
            // Its credit is returned in what would be its next turn.
            self.hold(core);
        }
        self.drive();
    }

    /// Waits until no pass is in progress that began before this call.
    pub(crate) fn wait_for_pass(&self) {
        if let Some(pass) = self.between_passes() {
            pass.hand_over(TX);
        }
        self.drive();
    }
}
