//! Device descriptors do not survive a fork in the child.
//!
//! A child shares its parent's sockets: while it lives, the parent's UDP port, slot and services stay taken, though no
//! thread of the child reads them. So every socket of a device is a [`DeviceFd`], and `pthread_atfork` replaces all of
//! them in the child by one dead socket. They are replaced and not closed: objects that the child inherited still refer to
//! the numbers, which must not become other files.
//!
//! Only fork(3) runs these handlers. Children of posix_spawn(3) and vfork(2) call exec at once, which closes the sockets;
//! a raw clone(2) without exec keeps them.

use std::cell::UnsafeCell;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use libc::c_int;

use crate::syscall::socket;

unsafe extern "C" {
    /// pthread_atfork(3), which the `libc` crate does not have for Linux.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// Descriptors up to this one can be registered: the kernel's default for `fs.nr_open`.
const MOST: usize = 1 << 20;

/// A bit for each registered descriptor. Atomics, because the child of a program with threads may take no lock that is not
/// [`CHANGES`].
static REGISTERED: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];
/// No word from this one on has a bit set.
static END: AtomicUsize = AtomicUsize::new(0);

/// Held while a descriptor is created and registered, or closed, and during fork: a child is never made in between.
/// One of the C library's, because the handler that unlocks it is not the one that locked it.
static CHANGES: Changes = Changes(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

struct Changes(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is made to be shared.
unsafe impl Sync for Changes {}

extern "C" fn lock() {
    // SAFETY: the mutex is initialised and never moves.
    unsafe { libc::pthread_mutex_lock(CHANGES.0.get()) };
}

extern "C" fn unlock() {
    // SAFETY: this thread, or the one that it was forked from, has locked it.
    unsafe { libc::pthread_mutex_unlock(CHANGES.0.get()) };
}

/// Runs in the child, and makes only calls that POSIX allows there.
extern "C" fn replace_all() {
    // Nothing arrives at a Unix socket without a name, and what is sent from it to an IP address is refused.
    // SAFETY: the calls take no pointers.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let dead = libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0) as c_int;
        for (index, word) in REGISTERED.iter().enumerate().take(END.load(Ordering::Relaxed)) {
            let mut bits = word.load(Ordering::Relaxed);
            while bits != 0 {
                let fd = (index * 64) as c_int + bits.trailing_zeros() as c_int;
                if dead < 0 || libc::dup3(dead, fd, libc::O_CLOEXEC) < 0 {
                    libc::close(fd);
                }
                bits &= bits - 1;
            }
        }
        libc::close(dead);
    }
    unlock();
}

fn register(fd: RawFd, registered: bool) {
    let Some(word) = REGISTERED.get(fd as usize / 64) else { return };
    let bit = 1 << (fd as usize % 64);
    if registered {
        END.fetch_max(fd as usize / 64 + 1, Ordering::Relaxed);
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// A socket of a device, which a forked child loses.
#[derive(Debug)]
pub(crate) struct DeviceFd(ManuallyDrop<OwnedFd>);

impl DeviceFd {
    /// As [`socket`].
    pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<Self> {
        Self::open(|| socket(family, kind, protocol))
    }

    /// What `open` opens. No child is forked meanwhile, so `open` must not wait.
    pub(crate) fn open(open: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<Self> {
        static HANDLERS: Once = Once::new();
        HANDLERS.call_once(|| {
            // SAFETY: the handlers live as long as the program. Where there is no memory for them, children keep the sockets.
            unsafe { pthread_atfork(Some(lock), Some(unlock), Some(replace_all)) };
        });
        lock();
        let opened = open();
        if let Ok(fd) = &opened {
            register(fd.as_raw_fd(), true);
        }
        unlock();
        opened.map(|fd| Self(ManuallyDrop::new(fd)))
    }
}

impl Drop for DeviceFd {
    fn drop(&mut self) {
        lock();
        register(self.0.as_raw_fd(), false);
        // SAFETY: nobody uses it after this.
        drop(unsafe { ManuallyDrop::take(&mut self.0) });
        unlock();
    }
}

impl AsFd for DeviceFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for DeviceFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
