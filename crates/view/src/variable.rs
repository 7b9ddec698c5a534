//! Copies of environment variables, taken when the library is loaded.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::path::MAX_PATH;

/// The longest value. A longer root directory would leave no space for the paths in it.
const CAPACITY: usize = MAX_PATH / 2;

const UNREAD: u8 = 0;
const READING: u8 = 1;
const UNSET: u8 = 2;
const SET: u8 = 3;

/// A copy of a variable that holds an absolute path. A copy, because the program may change its environment at any time, and
/// reading the environment during a change is undefined behaviour.
pub(crate) struct Variable {
    name: &'static CStr,
    state: AtomicU8,
    value: UnsafeCell<([u8; CAPACITY], usize)>,
}

// SAFETY: only the thread that changed the state from UNREAD to READING writes the value, and it is read only after the state
// is SET.
unsafe impl Sync for Variable {}

impl Variable {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        let (state, value) = (AtomicU8::new(UNREAD), UnsafeCell::new(([0; CAPACITY], 0)));
        Self { name, state, value }
    }

    /// Reads the variable once: when the library is loaded, or in an earlier call.
    pub(crate) fn read(&self) {
        let claim =
            self.state.compare_exchange(UNREAD, READING, Ordering::Acquire, Ordering::Acquire);
        if claim.is_err() {
            return;
        }
        // SAFETY: the name is NUL-terminated. The environment does not change before the program's main.
        let value = unsafe { libc::getenv(self.name.as_ptr()) };
        // A set-user-ID program must not use paths chosen by its caller.
        // SAFETY: the call takes no pointers.
        let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        let mut state = UNSET;
        if !value.is_null() && !privileged {
            // SAFETY: the value is NUL-terminated.
            let value = unsafe { CStr::from_ptr(value) }.to_bytes_with_nul();
            // SAFETY: this thread changed the state to READING.
            let (copy, length) = unsafe { &mut *self.value.get() };
            if let (true, Some(copy)) = (value.starts_with(b"/"), copy.get_mut(..value.len())) {
                copy.copy_from_slice(value);
                *length = value.len();
                state = SET;
            }
        }
        self.state.store(state, Ordering::Release);
    }

    /// Returns the path, if the variable holds one.
    pub(crate) fn get(&self) -> Option<&CStr> {
        if self.state.load(Ordering::Acquire) == UNREAD {
            self.read();
        }
        if self.state.load(Ordering::Acquire) != SET {
            return None;
        }
        // SAFETY: the state is SET, so the value is not written any more.
        let (value, length) = unsafe { &*self.value.get() };
        value.get(..*length).and_then(|value| CStr::from_bytes_with_nul(value).ok())
    }
}
