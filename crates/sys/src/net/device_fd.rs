//! Device sockets, which a forked child loses.
//!
//! A forked child shares its parent's sockets: while it lives, the UDP port, slot and services of the parent stay in use,
//! though no thread of the child reads them. So every socket of a device is a [`DeviceFd`], and a pthread_atfork(3)
//! handler replaces all of them in the child by one unconnected socket. They are replaced, not closed: objects that the
//! child inherited still refer to the numbers, which must not become other files.
//!
//! Memory that is published for other processes to read ([`crate::PublishedMemory`]) becomes private memory in the child.
//!
//! Only fork(3) runs these handlers. Children of posix_spawn(3) and vfork(2) call exec immediately, which closes the
//! sockets; a raw clone(2) without exec keeps them.
//!
//! libc: fork handlers and the mutex that they lock are the C library's.

use std::cell::UnsafeCell;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libc::c_int;
use rustix::io::{DupFlags, dup3};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{AddressFamily, Protocol, SocketType};

use crate::syscall::socket;

unsafe extern "C" {
    /// pthread_atfork(3), which the `libc` crate does not declare for Linux.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// Only descriptors below this number are registered: the kernel's default for `fs.nr_open`.
const MAX_FDS: usize = 1 << 20;

/// A bit for each registered descriptor. Atomics, because the child of a multi-threaded program must not take any lock
/// except [`CHANGES`].
static REGISTERED: [AtomicU64; MAX_FDS / 64] = [const { AtomicU64::new(0) }; MAX_FDS / 64];
/// No word from this index on has a bit set.
static END: AtomicUsize = AtomicUsize::new(0);

/// The address and length of each mapping that a child gets private memory for; an address of 0 is a free entry. A
/// process has one, and those that it inherited.
static MAPPINGS: [(AtomicUsize, AtomicUsize); 8] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 8];

/// How many processes there are from the first one that opened a device to this one, each forked from the one before.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A number that differs in a forked child, from the first socket of a device on.
#[inline]
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Held while a descriptor is created and registered, or closed, and during fork, so that no child is created in
/// between. A mutex of the C library, because the handler that unlocks it is not the one that locked it.
static CHANGES: Changes = Changes(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

struct Changes(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex may be shared between threads.
unsafe impl Sync for Changes {}

extern "C" fn lock() {
    // SAFETY: the mutex is initialised and never moves.
    unsafe { libc::pthread_mutex_lock(CHANGES.0.get()) };
}

extern "C" fn unlock() {
    // SAFETY: locked by this thread, or by the thread that this one was forked from.
    unsafe { libc::pthread_mutex_unlock(CHANGES.0.get()) };
}

/// Runs in the child: makes system calls only, and allocates nothing.
extern "C" fn replace_all() {
    // Nothing arrives at a Unix socket without a name, and sends to IP addresses fail on it.
    let dead = socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok();
    for (index, word) in REGISTERED.iter().enumerate().take(END.load(Ordering::Relaxed)) {
        let mut bits = word.load(Ordering::Relaxed);
        while bits != 0 {
            let fd = (index * 64) as c_int + bits.trailing_zeros() as c_int;
            // SAFETY: a registered descriptor, which this does not close.
            let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
            let replaced = dead
                .as_ref()
                .is_some_and(|dead| dup3(dead, &mut target, DupFlags::CLOEXEC).is_ok());
            if !replaced {
                // SAFETY: the parent's socket, which no thread of the child uses.
                unsafe { rustix::io::close(fd) };
            }
            bits &= bits - 1;
        }
    }
    drop(dead);
    for (address, length) in &MAPPINGS {
        let (address, length) = (address.load(Ordering::Relaxed), length.load(Ordering::Relaxed));
        if address != 0 {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
            let address = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: replaces a registered mapping of atomics, for which zero is valid. If it fails, the mapping stays.
            let _ = unsafe { rustix::mm::mmap_anonymous(address, length, protection, flags) };
        }
    }
    FORKS.fetch_add(1, Ordering::Relaxed);
    unlock();
}

/// Registers a mapping that a forked child gets private, zeroed memory for. Without a free entry, the child shares it.
pub(crate) fn add_mapping(address: usize, length: usize) {
    lock();
    if let Some(entry) = MAPPINGS.iter().find(|entry| entry.0.load(Ordering::Relaxed) == 0) {
        entry.1.store(length, Ordering::Relaxed);
        entry.0.store(address, Ordering::Relaxed);
    }
    unlock();
}

/// Reverses [`add_mapping`].
pub(crate) fn remove_mapping(address: usize) {
    lock();
    for entry in MAPPINGS.iter().filter(|entry| entry.0.load(Ordering::Relaxed) == address) {
        entry.0.store(0, Ordering::Relaxed);
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
    pub(crate) fn socket(
        family: AddressFamily,
        kind: SocketType,
        protocol: Option<Protocol>,
    ) -> io::Result<Self> {
        Self::open(|| socket(family, kind, protocol))
    }

    /// Registers the descriptor that `open` returns. The process cannot fork during the call, so `open` must not block.
    pub(crate) fn open(open: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<Self> {
        static HANDLERS: Once = Once::new();
        HANDLERS.call_once(|| {
            // SAFETY: the handlers are functions of the program. If memory for them is missing, children keep the sockets.
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
        // SAFETY: it is not used after this.
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
