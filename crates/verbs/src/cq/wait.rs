//! Waiting for the events of completion queues in a thread that makes the passes itself.

use std::ptr;
use std::time::Instant;

use ferroce_sys::{Interest, Poller, clock};

use super::channel::{CompletionChannel, SERVED};
use crate::engine::{Adapter, Leading};
use crate::error::WaitError;
use crate::sync::lock;
use crate::time::nanos;

impl CompletionChannel {
    /// Makes a pass, whose events raise no descriptor, and takes the first event. Makes more if an event will come soon.
    pub(crate) fn serve_shard(&self, adapter: &Adapter) -> Result<Option<u64>, WaitError> {
        let channel = &*self.0;
        SERVED.set(channel);
        let mut left = adapter.make_pass();
        // Looks for packets again before it sleeps, while it is likely that some come.
        while lock(&channel.raised).queues.is_empty()
            && (left || channel.spin.wait(clock::now()).is_some())
        {
            // It will make another soon, so the device thread may leave the sockets to it.
            adapter.signals.polled();
            left = adapter.make_pass();
        }
        SERVED.set(ptr::null());
        let taken = self.try_event();
        if let Ok(Some(_)) = taken {
            channel.spin.end(clock::now(), adapter.counters.socket_bytes());
        }
        // Other events are for other threads.
        let mut raised = lock(&channel.raised);
        for _ in 0..std::mem::take(&mut raised.unsignaled) {
            let _ = channel.event.signal();
        }
        taken
    }

    /// Waits for an event. With a shard, this thread waits for its packets itself, unless another thread does.
    pub(crate) fn wait_with(
        &self,
        adapter: Option<&Adapter>,
        deadline: Option<Instant>,
    ) -> Result<Option<u64>, WaitError> {
        let deadline = nanos(deadline);
        self.set_served(adapter.is_some());
        let mut poller = Poller::new();
        poller.watch(self, Interest::Read);
        loop {
            if let Some(queue) = self.try_event()? {
                return Ok(Some(queue));
            }
            if let Some((leading, adapter)) = adapter.and_then(Adapter::lead).zip(adapter) {
                let waited = self.wait_leading(adapter, &leading, deadline);
                adapter.signals.stop_leading();
                if let Some(queue) = waited? {
                    return Ok(Some(queue));
                }
            } else {
                poller.wait(deadline)?;
            }
            if deadline.is_some_and(|deadline| deadline <= clock::now()) {
                return self.try_event();
            }
        }
    }

    /// Waits for packets, and for events of other threads. `None` if there may be one of these, or at the deadline.
    fn wait_leading(
        &self,
        adapter: &Adapter,
        leading: &Leading,
        deadline: Option<u64>,
    ) -> Result<Option<u64>, WaitError> {
        let until = deadline.map_or(leading.until, |deadline| deadline.min(leading.until));
        let mut poller = Poller::new();
        let event = poller.watch(self, Interest::Read);
        adapter.watch_sockets(&mut poller);
        loop {
            if let Some(queue) = self.serve_shard(adapter)? {
                return Ok(Some(queue));
            }
            if adapter.driver.has_failed() {
                return Ok(None);
            }
            adapter.rings.sleep();
            if poller.wait(Some(until))? == 0 || poller.readiness(event).readable {
                return Ok(None);
            }
        }
    }
}
