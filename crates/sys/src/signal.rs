//! signalfd wrapper, used by `ferroce run` to forward signals to its child; and signal masks of threads.
//!
//! libc: rustix has no signalfd(2), and signal masks only in its experimental `runtime` feature.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;

use libc::c_int;
use rustix::io::{read, retry_on_intr};
use rustix::process::{Pid, kill_process, kill_process_group};

use crate::error::Error;
use crate::syscall::{check, zeroed};

/// The signals that are read from the descriptor: those to forward, and SIGCHLD.
const FORWARDED: [c_int; 7] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCHLD,
];

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A child ended or stopped.
    Child,
    /// The terminal sent it to all processes in the foreground.
    Terminal(c_int),
    /// A process sent it to this process.
    Process(c_int),
}

/// Signals that are read from a descriptor instead of ending the process (`signalfd`).
pub struct Signals {
    fd: OwnedFd,
    /// The signal mask before.
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals for this thread and threads that it starts, and opens the descriptor.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: a signal set is numbers.
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) =
            unsafe { (zeroed(), zeroed()) };
        // SAFETY: the sets are locals, and all numbers are signals. SIGCHLD is reset because the parent may have set it
        // to be ignored, and then the kernel would discard the exit status of a child.
        let fd = check(unsafe {
            libc::sigemptyset(&raw mut set);
            for signal in FORWARDED {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC)
        })
        .map_err(|error| Error::system("wait for signals", error))?;
        // SAFETY: the descriptor is new, so nothing else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, before })
    }

    /// Makes a command start with the signal mask from before [`Signals::new`], which it would otherwise inherit.
    pub fn restore_mask<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let before = self.before;
        let restore = move || {
            // SAFETY: the set is a copy of one that the kernel returned.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
            Ok(())
        };
        // SAFETY: it makes one call between fork and exec, which POSIX lists as async-signal-safe.
        unsafe { command.pre_exec(restore) }
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    ///
    /// If the descriptor cannot be read.
    pub fn wait(&self) -> Result<Signal, Error> {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut bytes = [0; SIZE];
        retry_on_intr(|| read(&self.fd, &mut bytes))
            .map_err(|error| Error::system("wait for signals", error))?;
        // SAFETY: as many bytes as the structure has, which is numbers; alignment is not assumed.
        let info: libc::signalfd_siginfo =
            unsafe { bytes.as_ptr().cast::<libc::signalfd_siginfo>().read_unaligned() };
        let number = info.ssi_signo as c_int;
        Ok(match number {
            libc::SIGCHLD => Signal::Child,
            _ if info.ssi_code == libc::SI_KERNEL => Signal::Terminal(number),
            _ => Signal::Process(number),
        })
    }
}

impl AsFd for Signals {
    /// Readable when a signal has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// Signals that a thread raises by a fault: if they are blocked, the kernel kills the process without calling handlers.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Runs `body` with all signals blocked except those of faults. A thread that `body` starts keeps them blocked: signals
/// are for the program's own threads, which may block them to wait for them.
pub fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: a signal set is numbers.
    let mut set: libc::sigset_t = unsafe { zeroed() };
    // SAFETY: the set is a local, and all numbers are signals.
    unsafe {
        libc::sigfillset(&raw mut set);
        for signal in FAULTS {
            libc::sigdelset(&raw mut set, signal);
        }
    }
    let _restore = Blocked::new(&set);
    body()
}

/// Runs `body`, which makes a file longer. Beyond `RLIMIT_FSIZE` it fails with EFBIG. The kernel also sends SIGXFSZ to the
/// thread, which would end the program: that signal is taken away.
///
/// # Errors
///
/// Those of `body`.
pub fn without_file_size_signal<T>(body: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // SAFETY: a signal set is numbers.
    let (mut set, mut pending): (libc::sigset_t, libc::sigset_t) = unsafe { (zeroed(), zeroed()) };
    // SAFETY: the set is a local, and the number is a signal.
    unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGXFSZ);
    }
    let _restore = Blocked::new(&set);
    // SAFETY: as above. A signal that was pending before is the program's.
    let was_pending = unsafe {
        libc::sigpending(&raw mut pending) == 0
            && libc::sigismember(&raw const pending, libc::SIGXFSZ) == 1
    };
    let result = body();
    let raised = result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EFBIG));
    if raised && !was_pending {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointers are to locals.
        unsafe { libc::sigtimedwait(&raw const set, null_mut(), &raw const now) };
    }
    result
}

/// Signals that are blocked for this thread. Restores the mask when dropped, also after a panic.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn new(set: &libc::sigset_t) -> Self {
        // SAFETY: a signal set is numbers.
        let mut before: libc::sigset_t = unsafe { zeroed() };
        // SAFETY: a reference and a pointer to a local.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, &raw mut before) };
        Self(before)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is a copy of one that the kernel returned.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
    }
}

/// Sends a signal to a process. A process that has ended is not an error.
///
/// Only for children that were not waited for yet: the kernel does not reuse their numbers before.
pub fn send(process: u32, signal: c_int) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let (Some(process), Some(signal)) =
        (process, rustix::process::Signal::from_named_raw(signal))
    {
        let _ = kill_process(process, signal);
    }
}

/// Sends a signal to the process group that a child leads (`CommandExt::process_group(0)`), and so to the processes that
/// it started.
///
/// Only for children that were not waited for yet: the kernel does not reuse their numbers before.
pub fn send_to_group(leader: u32, signal: c_int) {
    let leader = i32::try_from(leader).ok().and_then(Pid::from_raw);
    if let (Some(leader), Some(signal)) = (leader, rustix::process::Signal::from_named_raw(signal))
    {
        let _ = kill_process_group(leader, signal);
    }
}
