//! Blocking on sockets.
//!
//! A thread blocks on the completion channels of the sockets that it waits for, and on an eventfd of its own. A thread
//! that takes completions or an event from a socket signals the eventfds of all threads that wait there: they check
//! again, and arm the CQ again.
//!
//! The condition is the state of a stream or datagram socket behind its lock: [`Pollable`].

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ferroce::{CompletionChannel, Context};
use ferroce_sys::poll::{PollEntry, poll_numbers};

use crate::completions::Completions;
use crate::error::{Errno, Result};
use crate::sync::lock;

/// How long a thread polls before it blocks: long enough for a peer that responds immediately. rdma-core spins for 10
/// µs, for faster devices.
pub(crate) const SPIN_TIME: Duration = Duration::from_micros(30);

/// Wakes one thread.
pub(crate) struct Waker {
    event: ferroce_sys::Event,
    process: u32,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Waker>>> = const { RefCell::new(None) };
}

impl Waker {
    fn new() -> Result<Self> {
        Ok(Self { event: ferroce_sys::Event::new()?, process: std::process::id() })
    }

    /// Returns the waker of the calling thread.
    pub(crate) fn current() -> Result<Arc<Self>> {
        let process = std::process::id();
        let known = CURRENT.try_with(|current| {
            let mut current = current.borrow_mut();
            match &*current {
                // A forked child would share its parent's eventfd.
                Some(known) if known.process == process => Ok(Arc::clone(known)),
                _ => Ok(Arc::clone(current.insert(Arc::new(Self::new()?)))),
            }
        });
        // A thread that is ending has lost its thread-local storage.
        known.unwrap_or_else(|_| Ok(Arc::new(Self::new()?)))
    }

    pub(crate) fn wake(&self) {
        let _ = self.event.signal();
    }

    /// Resets the eventfd.
    pub(crate) fn clear(&self) {
        let _ = self.event.take();
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

pub(crate) fn poll_entry(fd: RawFd, events: i16) -> PollEntry {
    PollEntry { fd, events, revents: 0 }
}

/// Blocks until one of the descriptors is ready or the deadline passes. A signal handler ends it with `EINTR`.
fn block(list: &mut [PollEntry], deadline: Option<Instant>) -> Result<()> {
    let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    poll_numbers(list, timeout)?;
    Ok(())
}

/// Blocks until a descriptor is ready for these events.
pub(crate) fn block_on(fd: RawFd, events: i16) -> Result<()> {
    block(&mut [poll_entry(fd, events)], None)
}

/// The threads that wait for a socket, and a count of the wakeups they were due.
#[derive(Default)]
pub(crate) struct Waiters {
    threads: Vec<Arc<Waker>>,
    wakeups: Cell<u64>,
}

impl Waiters {
    pub(crate) fn add(&mut self, waker: &Arc<Waker>) {
        self.threads.push(Arc::clone(waker));
    }

    pub(crate) fn remove(&mut self, waker: &Arc<Waker>) {
        if let Some(index) = self.threads.iter().position(|known| Arc::ptr_eq(known, waker)) {
            self.threads.swap_remove(index);
        }
    }

    pub(crate) fn wake(&self) {
        self.wakeups.set(self.wakeups.get().wrapping_add(1));
        self.threads.iter().for_each(|waiter| waiter.wake());
    }

    pub(crate) fn wakeups(&self) -> u64 {
        self.wakeups.get()
    }
}

/// What a thread blocks on: descriptors, and the completion channels among them.
pub(crate) struct WaitSet {
    list: Vec<PollEntry>,
    channels: Vec<(CompletionChannel, Context)>,
}

impl WaitSet {
    /// Starts with descriptors of the kernel.
    pub(crate) fn new(list: Vec<PollEntry>) -> Self {
        Self { list, channels: Vec::new() }
    }

    /// Adds the completion channel of a CQ.
    pub(crate) fn add(&mut self, completions: &Completions) {
        self.list.push(poll_entry(completions.event_fd(), libc::POLLIN));
        self.channels.push((completions.channel().clone(), completions.context().clone()));
    }

    /// Blocks until one of the descriptors is ready. The thread receives packets itself meanwhile: otherwise they would
    /// wake the device thread, which would then wake this one. It cannot do so for several devices.
    pub(crate) fn block(&mut self, deadline: Option<Instant>) -> Result<()> {
        let Self { list, channels } = self;
        let count = list.len();
        let channel_list = || channels.iter().map(|(channel, context)| (channel, context));
        while let Some(leading) = CompletionChannel::lead(channel_list()) {
            let sockets = leading.sockets().iter().map(|&fd| poll_entry(fd, libc::POLLIN));
            list.extend(sockets);
            let until = Instant::now() + Duration::from_millis(leading.milliseconds() as u64);
            let blocked = block(list, Some(deadline.map_or(until, |end| end.min(until))));
            let packets = list.drain(count..).any(|socket| socket.revents != 0);
            let ready = list.iter().any(|entry| entry.revents != 0);
            if let Some((channel, context)) = channels.first() {
                if packets && !ready {
                    channel.drive(context);
                }
                channel.stop_leading(context, &leading);
            }
            let ended = ready || deadline.is_some_and(|deadline| deadline <= Instant::now());
            if blocked.is_err() || ended || poll_numbers(list, Some(Duration::ZERO))? > 0 {
                return blocked;
            }
        }
        channels.iter().for_each(|(_, context)| context.stop_polling());
        block(list, deadline)
    }
}

/// The state of a socket, as seen by threads that wait for it.
pub(crate) trait Pollable {
    /// Polls the CQs and processes their completions.
    fn process_completions(&mut self);

    /// The events of poll(2) for the present state.
    fn readiness(&mut self) -> i16;

    /// A count of changes that may have changed the readiness: completions, connections that came or ended.
    fn change_count(&self) -> u64;

    /// Whether a completion may arrive at any moment, so that spinning before blocking is worthwhile.
    fn expects_completions(&self) -> bool;

    /// Requests events for the next completions. Returns true if that is new: the caller has to check once more.
    fn arm(&mut self) -> bool;

    /// Registers a thread that is about to block, and adds the descriptors for it to block on.
    fn add_waiter(&mut self, waker: &Arc<Waker>, set: &mut WaitSet);

    /// Removes the thread after it blocked.
    fn remove_waiter(&mut self, waker: &Arc<Waker>);
}

/// Waits until `test` returns a result. Fails with `EAGAIN` if `wait` is false and there is none, and with `ETIMEDOUT`
/// after the deadline.
pub(crate) fn wait_until<S: Pollable, T>(
    state: &Mutex<S>,
    wait: bool,
    deadline: Option<Instant>,
    mut test: impl FnMut(&mut S) -> Option<T>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let mut guard = lock(state);
        guard.process_completions();
        if let Some(result) = test(&mut guard) {
            return Ok(result);
        }
        if !wait {
            return Err(Errno(libc::EAGAIN));
        }
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Err(Errno(libc::ETIMEDOUT));
        }
        if guard.expects_completions() && now < start + SPIN_TIME {
            drop(guard);
            std::thread::yield_now();
            continue;
        }
        if guard.arm() {
            continue;
        }
        let waker = Waker::current()?;
        let mut set = WaitSet::new(vec![poll_entry(waker.fd(), libc::POLLIN)]);
        guard.add_waiter(&waker, &mut set);
        drop(guard);
        // A signal handler does not end the call: programs that want that use `rpoll`.
        let _ = set.block(deadline);
        lock(state).remove_waiter(&waker);
        waker.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state without completions: a number that other threads change.
    #[derive(Default)]
    struct Counter {
        value: u32,
        armed: u32,
        waiters: Waiters,
    }

    impl Pollable for Counter {
        fn process_completions(&mut self) {}

        fn readiness(&mut self) -> i16 {
            0
        }

        fn change_count(&self) -> u64 {
            self.waiters.wakeups()
        }

        fn expects_completions(&self) -> bool {
            false
        }

        fn arm(&mut self) -> bool {
            self.armed += 1;
            self.armed == 1
        }

        fn add_waiter(&mut self, waker: &Arc<Waker>, _: &mut WaitSet) {
            self.waiters.add(waker);
        }

        fn remove_waiter(&mut self, waker: &Arc<Waker>) {
            self.waiters.remove(waker);
        }
    }

    #[test]
    fn a_call_that_may_not_wait_fails_with_eagain() {
        let state = Mutex::new(Counter::default());
        let result = wait_until(&state, false, None, |_| None::<()>);
        assert_eq!(result, Err(Errno(libc::EAGAIN)));
        assert_eq!(lock(&state).armed, 0);
    }

    #[test]
    fn a_deadline_ends_the_wait_with_etimedout() {
        let state = Mutex::new(Counter::default());
        let start = Instant::now();
        let deadline = Some(start + Duration::from_millis(5));
        assert_eq!(wait_until(&state, true, deadline, |_| None::<()>), Err(Errno(libc::ETIMEDOUT)));
        assert!(start.elapsed() >= Duration::from_millis(5));
        assert!(lock(&state).waiters.threads.is_empty());
    }

    #[test]
    fn the_condition_is_tested_again_after_arming() {
        let state = Mutex::new(Counter::default());
        let result = wait_until(&state, true, None, |state| (state.armed == 1).then_some(7));
        assert_eq!(result, Ok(7));
        assert!(lock(&state).waiters.threads.is_empty());
    }

    #[test]
    fn a_change_by_another_thread_wakes_the_waiter() {
        let state = Mutex::new(Counter::default());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                wait_until(&state, true, None, |state| (state.value == 3).then_some(state.value))
            });
            for value in 1..=3 {
                while lock(&state).waiters.threads.is_empty() {
                    std::thread::yield_now();
                }
                let mut guard = lock(&state);
                guard.value = value;
                guard.waiters.wake();
            }
            assert_eq!(waiter.join().unwrap(), Ok(3));
        });
        assert_eq!(lock(&state).change_count(), 3);
    }

    #[test]
    fn a_thread_keeps_its_waker() {
        let first = Waker::current().unwrap();
        assert!(Arc::ptr_eq(&first, &Waker::current().unwrap()));
        let other = std::thread::spawn(|| Waker::current().unwrap().fd()).join().unwrap();
        assert_ne!(first.fd(), other);
    }

    #[test]
    fn a_waker_that_was_cleared_does_not_wake() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        let readable = |waker: &Waker| {
            let mut list = [poll_entry(waker.fd(), libc::POLLIN)];
            poll_numbers(&mut list, Some(Duration::ZERO)).unwrap()
        };
        assert_eq!(readable(&waker), 1);
        waker.clear();
        assert_eq!(readable(&waker), 0);
    }
}
