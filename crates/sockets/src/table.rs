//! The managed descriptors: connections and listeners with an rsocket, and epoll sets.
//!
//! The lookup of a descriptor that is not managed is two loads, without a lock or an allocation: allocators read files.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use crate::closer;
use crate::connect::{self, Connection};
use crate::epoll::{self, Set};
use crate::listen::Listener;
use crate::lock::Spin;
use crate::rdma;

/// The object behind a managed descriptor. Copies made by dup(2) share it.
#[derive(Clone)]
pub(crate) enum Entry {
    Connection(Arc<Connection>),
    Listener(Arc<Listener>),
    Set(Arc<Set>),
}

const SLOTS: usize = 1024;
/// Enough for the kernel's default of `fs.nr_open`, 2^20.
const CHUNKS: usize = 1024;

#[derive(Default)]
struct Slot {
    occupied: AtomicBool,
    entry: Spin<Option<Entry>>,
}

static TABLE: [AtomicPtr<[Slot; SLOTS]>; CHUNKS] = [const { AtomicPtr::new(null_mut()) }; CHUNKS];

/// Held while the table changes and during fork, so that a child never inherits a slot in the middle of a change.
static CHANGES: Spin<()> = Spin::new(());

/// The process that the table belongs to. A child of vfork(2) shares the memory under another process id: descriptors
/// that it closes stay open here.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn slot(fd: c_int) -> Option<&'static Slot> {
    let index = usize::try_from(fd).ok()?;
    let chunk = TABLE.get(index / SLOTS)?.load(Ordering::Acquire);
    // SAFETY: chunks are never freed.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[index % SLOTS])
}

fn slot_or_new(fd: c_int) -> Option<&'static Slot> {
    let place = TABLE.get(usize::try_from(fd).ok()? / SLOTS)?;
    if place.load(Ordering::Acquire).is_null() {
        let slots: Box<[Slot]> = (0..SLOTS).map(|_| Slot::default()).collect();
        let chunk: *mut [Slot; SLOTS] = Box::into_raw(slots).cast();
        let installed =
            place.compare_exchange(null_mut(), chunk, Ordering::AcqRel, Ordering::Acquire);
        if installed.is_err() {
            // SAFETY: allocated above, and not shared.
            drop(unsafe { Box::from_raw(chunk) });
        }
    }
    slot(fd)
}

/// Whether a descriptor is managed. To librdmacm, none is.
#[inline]
pub(crate) fn is_managed(fd: c_int) -> bool {
    slot(fd).is_some_and(|slot| slot.occupied.load(Ordering::Relaxed)) && !rdma::is_inside()
}

pub(crate) fn get(fd: c_int) -> Option<Entry> {
    if !is_managed(fd) {
        return None;
    }
    slot(fd)?.entry.with(|entry| entry.clone())
}

pub(crate) fn connection(fd: c_int) -> Option<Arc<Connection>> {
    match get(fd)? {
        Entry::Connection(connection) => Some(connection),
        _ => None,
    }
}

/// Replaces the object behind a descriptor, and returns the previous one.
pub(crate) fn set(fd: c_int, new: Option<Entry>) -> Option<Entry> {
    let slot = if new.is_some() { slot_or_new(fd)? } else { slot(fd)? };
    CHANGES.with(|()| {
        slot.occupied.store(new.is_some(), Ordering::Relaxed);
        slot.entry.with(|entry| std::mem::replace(entry, new))
    })
}

/// The managed descriptors of a range.
pub(crate) fn managed(first: usize, last: usize) -> impl Iterator<Item = c_int> {
    let chunks = TABLE.iter().enumerate().filter(move |&(number, place)| {
        let within = (number + 1) * SLOTS > first && number * SLOTS <= last;
        within && !place.load(Ordering::Acquire).is_null()
    });
    let all = chunks.flat_map(|(number, _)| number * SLOTS..(number + 1) * SLOTS);
    let all = all.filter(move |fd| (first..=last).contains(fd)).map(|fd| fd as c_int);
    all.filter(|&fd| is_managed(fd))
}

/// False in a child of vfork(2).
pub(crate) fn is_this_process() -> bool {
    // SAFETY: the call takes no arguments.
    PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

unsafe extern "C" {
    /// pthread_atfork(3), which the `libc` crate does not have for Linux.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

extern "C" fn before_fork() {
    CHANGES.acquire();
    epoll::SETS.acquire();
    connect::SILENT.acquire();
}

extern "C" fn in_parent() {
    connect::SILENT.release();
    epoll::SETS.release();
    CHANGES.release();
}

/// A child inherits the kernel's descriptors only: the parent keeps the rsockets, their threads and the sets.
/// Connections become unconnected TCP sockets here, and listeners may open an rsocket of their own.
extern "C" fn in_child() {
    // SAFETY: the call takes no arguments.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    closer::forget();
    connect::SILENT.release();
    epoll::SETS.release();
    epoll::SETS.with(|sets| std::mem::forget(std::mem::take(sets)));
    for fd in managed(0, SLOTS * CHUNKS) {
        let Some(slot) = slot(fd) else { continue };
        // A thread of the parent may have held it.
        slot.entry.release();
        slot.entry.with(|entry| {
            let inherited = match &*entry {
                Some(Entry::Listener(listener)) => Some(Entry::Listener(listener.inherited())),
                _ => None,
            };
            slot.occupied.store(inherited.is_some(), Ordering::Relaxed);
            // Threads of the parent may hold locks of these objects, so they are leaked.
            std::mem::forget(std::mem::replace(entry, inherited));
        });
    }
    CHANGES.release();
}

/// Called when the library is loaded.
pub(crate) fn at_load() {
    // SAFETY: the call takes no arguments.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    // SAFETY: the handlers live as long as the program.
    unsafe { pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}
