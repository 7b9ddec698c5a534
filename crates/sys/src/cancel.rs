//! Cancellation of threads by `pthread_cancel`.
//!
//! glibc cancels a thread by unwinding its stack from a cancellation point: many of the C library's functions that make a
//! system call are such points, also where Rust's standard library calls them. Rust code does not expect that, so functions
//! for C programs defer cancellation until they return.
//!
//! Deferring takes 4 % of the time of a message through shared memory. So calls that post and poll do it only where they do
//! more than that: around packets from sockets, timers, and the system calls that are made through libc. rustix makes its
//! own without the C library.

use std::ffi::c_int;
use std::ptr;

/// Defers `pthread_cancel` of this thread while it exists. No system call: glibc sets a field of the thread.
#[derive(Debug)]
pub struct Uncancellable(c_int);

/// `PTHREAD_CANCEL_DISABLE` of `pthread.h`.
const CANCEL_DISABLE: c_int = 1;

// It may unwind when the thread is cancelled, so its ABI is `C-unwind`.
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

impl Uncancellable {
    /// Defers cancellation.
    #[inline]
    #[allow(clippy::new_without_default)] // It has an effect.
    #[must_use]
    pub fn new() -> Self {
        let mut old = 0;
        // SAFETY: a local variable.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut old) };
        Self(old)
    }
}

impl Drop for Uncancellable {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the previous value.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}
