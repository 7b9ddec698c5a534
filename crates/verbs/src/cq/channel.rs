//! The events of completion queues, behind a file descriptor.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ferroce_sys::{Event, Interest, Poller, clock};

use crate::drive::Spin;
use crate::engine::{Adapter, Leading, ShardSet};
use crate::error::{SystemError, WaitError};
use crate::sync::lock;
use crate::time::nanos;

thread_local! {
    /// The channel whose events this thread takes itself, after the pass that it makes.
    static SERVED: Cell<*const Channel> = const { Cell::new(ptr::null()) };
}

/// Events of completion queues, behind one file descriptor.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) event: Event,
    raised: Mutex<Raised>,
    /// The last wait for its events made passes itself.
    served: AtomicBool,
    /// Whether such a wait spins.
    spin: Spin,
    /// The shards of the queue pairs whose CQs raise events here.
    pub(crate) shards: ShardSet,
}

#[derive(Debug, Default)]
struct Raised {
    /// The IDs of the CQs that raised events. Holding the CQs instead would be a reference cycle, since a CQ holds its
    /// channel.
    queues: VecDeque<u64>,
    /// How many of them are not counted by the eventfd: the thread that raised them takes them.
    unsignaled: usize,
}

impl Channel {
    pub(crate) fn new() -> Result<Self, SystemError> {
        Ok(Self {
            event: Event::counting()?,
            raised: Mutex::default(),
            served: AtomicBool::new(false),
            spin: Spin::default(),
            shards: ShardSet::default(),
        })
    }

    pub(crate) fn raise(&self, queue: u64) {
        let mut raised = lock(&self.raised);
        raised.queues.push_back(queue);
        if ptr::eq(SERVED.get(), self) {
            raised.unsignaled += 1;
            return;
        }
        // The eventfd counts the entries of the queue, and is only touched under its lock: a read never blocks, even if
        // the program has cleared O_NONBLOCK. The counter cannot overflow before memory does.
        let _ = self.event.signal();
    }

    pub(crate) fn take(&self) -> Result<Option<u64>, WaitError> {
        let mut raised = lock(&self.raised);
        if raised.queues.is_empty() {
            return Ok(None);
        }
        self.uncount(&mut raised, 1)?;
        Ok(raised.queues.pop_front())
    }

    /// Removes the events of a CQ.
    pub(crate) fn forget(&self, id: u64) {
        let mut raised = lock(&self.raised);
        let before = raised.queues.len();
        raised.queues.retain(|queue| *queue != id);
        let removed = before - raised.queues.len();
        let _ = self.uncount(&mut raised, removed);
    }

    /// Adjusts the counts for events that leave the queue.
    fn uncount(&self, raised: &mut Raised, count: usize) -> Result<(), WaitError> {
        let unsignaled = count.min(raised.unsignaled);
        raised.unsignaled -= unsignaled;
        for _ in unsignaled..count {
            self.event.take()?;
        }
        Ok(())
    }

    /// Whether the program waits in this library rather than for the descriptor, so that the device thread does not
    /// have to be told when a CQ is armed.
    pub(crate) fn is_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    pub(crate) fn set_served(&self, served: bool) {
        self.served.store(served, Ordering::Relaxed);
    }

    /// Makes a pass, whose events raise no descriptor, and takes the first event. Makes more if an event will come soon.
    pub(crate) fn serve(&self, adapter: &Adapter) -> Result<Option<u64>, WaitError> {
        SERVED.set(self);
        let mut left = adapter.make_pass();
        while lock(&self.raised).queues.is_empty() && (left || self.spins()) {
            left = adapter.spin_pass();
        }
        SERVED.set(ptr::null());
        let taken = self.take();
        if let Ok(Some(_)) = taken {
            self.spin.end(clock::now(), adapter.socket_bytes());
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
            if adapter.has_failed() {
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
        self.0.stop_leading();
    }
}
