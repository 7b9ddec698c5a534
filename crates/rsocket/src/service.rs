//! The service thread: handles the connection manager events of all streams, so that connections are set up, accepted
//! and ended even while the program makes no call; probes silent peers; and receives from the UDP sockets of datagram
//! sockets.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferroce_sys::{Epoll, EpollEvent, signal};

use crate::error::{Errno, Result};
use crate::sync::lock;

/// How long a connection may be silent before its peer is probed. A peer that was killed does not announce its end, and
/// a program that only reads would wait for it indefinitely; the device detects whether the probe is acknowledged.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);

/// A socket that the service thread handles.
pub(crate) trait Served: Send + Sync {
    /// The descriptor that is readable when there is something to handle.
    fn descriptor(&self) -> RawFd;

    /// Handles what the descriptor reports.
    fn handle_ready(self: Arc<Self>);

    /// Called at least once per [`KEEPALIVE_INTERVAL`].
    fn tick(&self) {}
}

struct Service {
    process: u32,
    epoll: Epoll,
    sockets: Mutex<HashMap<RawFd, Arc<dyn Served>>>,
    /// Held by the thread while it handles sockets.
    busy: Mutex<()>,
}

static SERVICE: Mutex<Option<Arc<Service>>> = Mutex::new(None);

/// Returns the service of this process, if it was started.
fn running() -> Option<Arc<Service>> {
    let known = lock(&SERVICE).as_ref().map(Arc::clone);
    known.filter(|known| known.process == std::process::id())
}

/// Returns the service of this process, and starts it first if necessary.
fn service() -> Result<Arc<Service>> {
    let mut current = lock(&SERVICE);
    let process = std::process::id();
    if let Some(known) = current.as_ref().filter(|known| known.process == process) {
        return Ok(Arc::clone(known));
    }
    let epoll = Epoll::new(true)?;
    let (sockets, busy) = (Mutex::default(), Mutex::default());
    let service = Arc::new(Service { process, epoll, sockets, busy });
    let worker = Arc::clone(&service);
    let thread = std::thread::Builder::new().name("rsocket".into());
    // Signals are for the program's own threads.
    let started = signal::with_signals_blocked(|| thread.spawn(move || worker.run()));
    started.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
    *current = Some(Arc::clone(&service));
    Ok(service)
}

/// Registers a socket with the service thread.
pub(crate) fn add<S: Served + 'static>(socket: &Arc<S>) -> Result<()> {
    let service = service()?;
    let fd = socket.descriptor();
    lock(&service.sockets).insert(fd, Arc::clone(socket) as Arc<dyn Served>);
    match service.epoll.add(fd, libc::EPOLLIN as u32, fd as u64) {
        // It was registered before.
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
            lock(&service.sockets).remove(&fd);
            Err(error.into())
        }
        _ => Ok(()),
    }
}

/// Waits until the thread has finished its current pass. After that it holds no reference to a socket that was removed
/// before. Must not be called by the thread itself.
pub(crate) fn wait_for_pass() {
    if let Some(service) = running() {
        drop(lock(&service.busy));
    }
}

/// Unregisters a socket.
pub(crate) fn remove(socket: &impl Served) {
    if let Some(service) = running() {
        let fd = socket.descriptor();
        // It may not have been registered.
        let _ = service.epoll.remove(fd);
        let removed = lock(&service.sockets).remove(&fd);
        drop(removed);
    }
}

/// Runs a handler. A panic in one socket must not end the service of the others.
fn guarded(handler: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(handler));
}

impl Service {
    fn run(&self) {
        loop {
            let mut events = [EpollEvent { events: 0, u64: 0 }; 16];
            let any = !lock(&self.sockets).is_empty();
            let timeout = any.then_some(KEEPALIVE_INTERVAL);
            let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
            let _busy = lock(&self.busy);
            for event in &events[..count] {
                let socket = lock(&self.sockets).get(&(event.u64 as RawFd)).cloned();
                if let Some(socket) = socket {
                    guarded(|| socket.handle_ready());
                }
            }
            let all: Vec<_> = lock(&self.sockets).values().cloned().collect();
            for socket in all {
                guarded(|| socket.tick());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct Probe {
        event: ferroce_sys::Event,
        handled: AtomicU32,
        ticks: AtomicU32,
        panics: bool,
    }

    impl Probe {
        fn new(panics: bool) -> Arc<Self> {
            let event = ferroce_sys::Event::new().unwrap();
            let (handled, ticks) = (AtomicU32::new(0), AtomicU32::new(0));
            Arc::new(Self { event, handled, ticks, panics })
        }

        fn wait_for(&self, handled: u32) {
            while self.handled.load(Ordering::SeqCst) < handled {
                std::thread::yield_now();
            }
        }
    }

    impl Served for Probe {
        fn descriptor(&self) -> RawFd {
            self.event.as_raw_fd()
        }

        fn handle_ready(self: Arc<Self>) {
            self.event.take().unwrap();
            self.handled.fetch_add(1, Ordering::SeqCst);
            assert!(!self.panics, "a handler that fails");
        }

        fn tick(&self) {
            self.ticks.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_ready_socket_is_handled_and_ticked_until_it_is_removed() {
        let probe = Probe::new(false);
        add(&probe).unwrap();
        // Registering twice is not an error.
        add(&probe).unwrap();
        for round in 1..=3 {
            probe.event.signal().unwrap();
            probe.wait_for(round);
        }
        wait_for_pass();
        assert!(probe.ticks.load(Ordering::SeqCst) >= 2);
        remove(&*probe);
        wait_for_pass();
        let handled = probe.handled.load(Ordering::SeqCst);
        probe.event.signal().unwrap();
        assert_eq!(probe.handled.load(Ordering::SeqCst), handled);
    }

    #[test]
    fn a_panic_in_one_socket_does_not_stop_the_others() {
        let (bad, good) = (Probe::new(true), Probe::new(false));
        add(&bad).unwrap();
        add(&good).unwrap();
        bad.event.signal().unwrap();
        bad.wait_for(1);
        good.event.signal().unwrap();
        good.wait_for(1);
        remove(&*bad);
        remove(&*good);
    }

    #[test]
    fn no_reference_to_a_removed_socket_remains_after_a_pass() {
        let probe = Probe::new(false);
        add(&probe).unwrap();
        probe.event.signal().unwrap();
        probe.wait_for(1);
        remove(&*probe);
        wait_for_pass();
        assert_eq!(Arc::strong_count(&probe), 1);
    }

    #[test]
    fn removing_a_socket_that_was_never_added_does_nothing() {
        remove(&*Probe::new(false));
    }
}
