//! What the lock-free part of this crate (`hazard`, `watch`, `table`) synchronizes with: the standard library, or loom in its
//! models.

#[cfg(not(ferroce_loom))]
mod imp {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
    pub(crate) use std::sync::{MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub(crate) use std::thread::yield_now;

    pub(crate) use ferroce_sync::asymmetric_fence::{heavy, light};
    pub(crate) use ferroce_sys::forks;
    pub(crate) use ferroce_sys::thread::id as thread_id;
}

#[cfg(ferroce_loom)]
mod imp {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
    pub(crate) use loom::sync::{MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub(crate) use loom::thread::yield_now;

    use loom::sync::atomic::{Ordering, fence};

    pub(crate) fn light() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn forks() -> u32 {
        0
    }

    /// A number of the calling thread of the model: never 0.
    pub(crate) fn thread_id() -> u32 {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        loom::thread_local! {
            static ID: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        ID.with(|id| *id)
    }
}

pub(crate) use imp::*;
