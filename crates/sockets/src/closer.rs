//! Threads that close nonblocking connections.
//!
//! librdmacm's `rclose` and `rshutdown` wait until the peer has acknowledged everything, which takes seconds if it does
//! not respond. An event loop must not block for that long, so a worker thread makes these calls for nonblocking
//! sockets. The end of the process waits for them.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::connect::Connection;
use crate::rdma;

/// Maximum time that the exit of a process waits.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an idle thread waits for another task before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) enum Task {
    Close(Arc<Connection>),
    ShutDown(Arc<Connection>, c_int),
}

impl Task {
    fn run(self) {
        match self {
            Self::Close(connection) => connection.close_rsocket(),
            Self::ShutDown(connection, how) => {
                // SAFETY: the call takes no pointers.
                unsafe { rdma::rshutdown(connection.rsocket, how) };
                connection.end_of_shutdown();
            }
        }
    }
}

#[derive(Default)]
struct Tasks {
    queue: VecDeque<Task>,
    /// Threads that wait for a task, and those that run one.
    idle: usize,
    running: usize,
}

#[derive(Default)]
struct Closer {
    tasks: Mutex<Tasks>,
    submitted: Condvar,
    finished: Condvar,
}

/// The pool of this process. A forked child has none of its parent's threads, and starts with a new pool.
static CLOSER: AtomicPtr<Closer> = AtomicPtr::new(null_mut());

/// Called in a forked child.
pub(crate) fn forget() {
    CLOSER.store(null_mut(), Ordering::Relaxed);
}

fn closer() -> &'static Closer {
    let known = CLOSER.load(Ordering::Acquire);
    // SAFETY: it is never freed.
    if let Some(known) = unsafe { known.as_ref() } {
        return known;
    }
    let new = Box::into_raw(Box::<Closer>::default());
    match CLOSER.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: as above.
        Ok(_) => unsafe { &*new },
        Err(known) => {
            // SAFETY: the new one was not published, and the other is never freed.
            unsafe {
                drop(Box::from_raw(new));
                &*known
            }
        }
    }
}

impl Closer {
    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut tasks = self.tasks();
        loop {
            if let Some(task) = tasks.queue.pop_front() {
                tasks.running += 1;
                drop(tasks);
                task.run();
                tasks = self.tasks();
                tasks.running -= 1;
                self.finished.notify_all();
                continue;
            }
            tasks.idle += 1;
            let waited = self.submitted.wait_timeout(tasks, IDLE_TIMEOUT);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            tasks = woken;
            tasks.idle -= 1;
            if timeout.timed_out() && tasks.queue.is_empty() {
                return;
            }
        }
    }
}

/// Runs a task in another thread, or in this one if none can be started.
pub(crate) fn submit(task: Task) {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        // SAFETY: the handler lives as long as the program. Without it, peers detect the end of the process a little
        // later.
        unsafe { libc::atexit(at_exit) };
    });
    let closer = closer();
    let mut tasks = closer.tasks();
    tasks.queue.push_back(task);
    if tasks.idle >= tasks.queue.len() {
        closer.submitted.notify_one();
        return;
    }
    drop(tasks);
    if !start(closer) {
        // Another thread may have taken it meanwhile.
        let task = closer.tasks().queue.pop_back();
        if let Some(task) = task {
            task.run();
        }
    }
}

fn start(closer: &'static Closer) -> bool {
    // SAFETY: local sets, which the calls fill. Signals are for the program's own threads.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        let started = Builder::new().name("sockets".into()).spawn(|| closer.work());
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
        started.is_ok()
    }
}

/// Waits for the submitted tasks.
extern "C" fn at_exit() {
    // SAFETY: it is never freed.
    let Some(closer) = (unsafe { CLOSER.load(Ordering::Acquire).as_ref() }) else { return };
    let deadline = Instant::now() + EXIT_TIMEOUT;
    let mut tasks = closer.tasks();
    while !tasks.queue.is_empty() || tasks.running > 0 {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let waited = closer.finished.wait_timeout(tasks, left);
        tasks = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}
