//! Signals as something to wait for: how a program that runs another stays between it and who ends it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;

use libc::c_int;

use crate::error::Error;
use crate::syscall::{check, check_length, errno, zeroed};

/// The signals that somebody sends to a program to be passed on, and the one that says that a child ended.
const WAITED_FOR: [c_int; 7] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCHLD,
];

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A child ended, or stopped.
    Child,
    /// The terminal sent it, and not to us alone: all processes in the foreground got it.
    Terminal(c_int),
    /// A process sent it, to us.
    Process(c_int),
}

/// Signals that wait to be read instead of ending this program (`signalfd`).
pub struct Signals {
    fd: OwnedFd,
    /// What was blocked before.
    before: libc::sigset_t,
}

impl Signals {
    /// From here on they wait: those that are sent to this thread, and to threads that it starts.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: a set of signals is numbers.
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) =
            unsafe { (zeroed(), zeroed()) };
        // SAFETY: the sets are locals, and all numbers are those of signals. Whoever started us may have us ignore
        // SIGCHLD, and then the system would forget how a child ended.
        let fd = check(unsafe {
            libc::sigemptyset(&raw mut set);
            for signal in WAITED_FOR {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC)
        })
        .map_err(|error| Error::system("wait for signals", error))?;
        // SAFETY: the descriptor is new, so nobody else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, before })
    }

    /// Has a command start with the signals blocked that were before. Without it, it would have those blocked that wait
    /// here.
    pub fn leave_out<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let before = self.before;
        let restore = move || {
            // SAFETY: the set is a copy of one that the system gave.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
            Ok(())
        };
        // SAFETY: between fork and exec it makes one call, which POSIX lists as safe there.
        unsafe { command.pre_exec(restore) }
    }

    /// Waits for the next one.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn wait(&self) -> Result<Signal, Error> {
        // SAFETY: the structure is numbers.
        let mut info: libc::signalfd_siginfo = unsafe { zeroed() };
        loop {
            // SAFETY: a local of the size that is said.
            let read = check_length(unsafe {
                libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size_of_val(&info))
            });
            match read {
                Ok(_) => break,
                Err(error) if errno(&error) == libc::EINTR => {}
                Err(error) => return Err(Error::system("wait for signals", error)),
            }
        }
        let number = info.ssi_signo as c_int;
        Ok(match number {
            libc::SIGCHLD => Signal::Child,
            _ if info.ssi_code == libc::SI_KERNEL => Signal::Terminal(number),
            _ => Signal::Process(number),
        })
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// Signals that a thread raises itself by a fault: blocked, they would end the process without asking its handlers.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Does something with all signals blocked but those of faults. A thread that is started meanwhile has them blocked for
/// ever: signals are for the program's own threads, which may have blocked them to wait for them.
pub fn blocked<T>(body: impl FnOnce() -> T) -> T {
    /// Sets the mask from before, also when there is a panic.
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set is a copy of one that the system gave.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
        }
    }
    // SAFETY: a set of signals is numbers.
    let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { (zeroed(), zeroed()) };
    // SAFETY: the sets are locals, and all numbers are those of signals.
    unsafe {
        libc::sigfillset(&raw mut set);
        for signal in FAULTS {
            libc::sigdelset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
    }
    let _restore = Restore(before);
    body()
}

/// Sends a signal to a process. One that is gone gets none, and that is no error.
///
/// Only for children that were not waited for yet: their numbers are theirs until then.
pub fn send(process: u32, signal: c_int) {
    if let Ok(process @ 1..) = libc::pid_t::try_from(process) {
        // SAFETY: the call takes no pointers, and a positive number is one process.
        unsafe { libc::kill(process, signal) };
    }
}
