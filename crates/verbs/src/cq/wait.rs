//! Waiting for the events of completion queues in a thread that makes the passes itself.

use std::ptr;
use std::time::Instant;

use ferroce_sys::{Interest, Poller, clock};

use super::channel::{Channel, SERVED};
use crate::engine::{Adapter, Leading};
use crate::error::WaitError;
use crate::sync::lock;
use crate::time::nanos;

impl Channel {
    /// Makes a pass, whose events raise no descriptor, and takes the first event. Makes more if an event will come soon.
    pub(crate) fn serve(&self, adapter: &Adapter) -> Result<Option<u64>, WaitError> {
        SERVED.set(self);
        let mut left = adapter.make_pass();
        while lock(&self.raised).queues.is_empty() && (left || self.spins()) {
            // It will make another soon, so the device thread may leave the sockets to it.
            adapter.signals.polled();
            left = adapter.make_pass();
        }
        SERVED.set(ptr::null());
        let taken = self.take();
        if let Ok(Some(_)) = taken {
            self.spin.end(clock::now(), adapter.counters.socket_bytes());
        }
        // Other events are for other threads.
        let mut raised = lock(&self.raised);
        for _ in 0..std::mem::take(&mut raised.unsignaled) {
            let _ = self.event.signal();
        }
        taken
    }

    /// Whether the thread that waits looks for packets again before it sleeps.
    fn spins(&self) -> bool {
        self.spin.wait(clock::now()).is_some()
    }

    /// Waits for an event. With a device, this thread waits for its packets itself, unless another thread does.
    pub(crate) fn wait(
        &self,
        adapter: Option<&Adapter>,
        deadline: Option<Instant>,
    ) -> Result<Option<u64>, WaitError> {
        let deadline = nanos(deadline);
        self.set_served(adapter.is_some());
        let mut poller = Poller::new();
        poller.watch(&self.event, Interest::Read);
        loop {
            if let Some(queue) = self.take()? {
                return Ok(Some(queue));
            }
            let waited = match adapter.and_then(Adapter::lead).zip(adapter) {
                Some((leading, adapter)) => self.wait_leading(adapter, &leading, deadline)?,
                None if poller.wait(deadline)? > 0 => Waited::Again,
                None => Waited::Deadline,
            };
            match waited {
                Waited::Event(queue) => return Ok(Some(queue)),
                Waited::Again => {}
                Waited::Deadline => return self.take(),
            }
        }
    }

    /// Waits for packets, and for events of other threads.
    fn wait_leading(
        &self,
        adapter: &Adapter,
        leading: &Leading,
        deadline: Option<u64>,
    ) -> Result<Waited, WaitError> {
        let _stop = StopLeading(adapter);
        let mut poller = Poller::new();
        let event = poller.watch(&self.event, Interest::Read);
        adapter.watch_sockets(&mut poller);
        loop {
            if let Some(queue) = self.serve(adapter)? {
                return Ok(Waited::Event(queue));
            }
            if adapter.driver.has_failed() {
                return Ok(Waited::Again);
            }
            let until = deadline.map_or(leading.until, |deadline| deadline.min(leading.until));
            adapter.rings.sleep();
            let ready = poller.wait(Some(until))?;
            if ready == 0 && Some(until) == deadline {
                return Ok(Waited::Deadline);
            }
            if ready == 0 || poller.readiness(event).readable {
                return Ok(Waited::Again);
            }
        }
    }
}

/// How a wait ended.
enum Waited {
    Event(u64),
    /// There may be an event.
    Again,
    Deadline,
}

/// Ends the wait for packets, whichever way it ends.
struct StopLeading<'a>(&'a Adapter);

impl Drop for StopLeading<'_> {
    fn drop(&mut self) {
        self.0.signals.stop_leading();
    }
}
