//! Variables of the environment, as they were when the library was loaded.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::path::LONGEST;

/// Room for a path. A longer one would leave no room for what is in it.
const ROOM: usize = LONGEST / 2;

const UNREAD: u8 = 0;
const READING: u8 = 1;
const NONE: u8 = 2;
const SOME: u8 = 3;

/// A copy of a variable that names an absolute path: a program may change its environment, and reading that while it does is
/// not allowed.
pub(crate) struct Variable {
    name: &'static CStr,
    state: AtomicU8,
    value: UnsafeCell<([u8; ROOM], usize)>,
}

// SAFETY: the value is written by the one thread that moved the state from UNREAD to READING, and read only after the
// state was seen to be SOME.
unsafe impl Sync for Variable {}

impl Variable {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        let (state, value) = (AtomicU8::new(UNREAD), UnsafeCell::new(([0; ROOM], 0)));
        Self { name, state, value }
    }

    /// Reads it, once: when the library is loaded, or in a call that comes before.
    pub(crate) fn read(&self) {
        let claim =
            self.state.compare_exchange(UNREAD, READING, Ordering::Acquire, Ordering::Acquire);
        if claim.is_err() {
            return;
        }
        // SAFETY: the name ends with a zero. Before a program's main nobody changes its environment.
        let value = unsafe { libc::getenv(self.name.as_ptr()) };
        // A set-user-ID program takes nothing from where its caller wants.
        // SAFETY: the call takes no pointers.
        let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        let mut state = NONE;
        if !value.is_null() && !privileged {
            // SAFETY: a variable's value ends with a zero.
            let value = unsafe { CStr::from_ptr(value) }.to_bytes_with_nul();
            // SAFETY: the state is READING, and we made it so.
            let (room, length) = unsafe { &mut *self.value.get() };
            if let (true, Some(room)) = (value.starts_with(b"/"), room.get_mut(..value.len())) {
                room.copy_from_slice(value);
                *length = value.len();
                state = SOME;
            }
        }
        self.state.store(state, Ordering::Release);
    }

    /// The path, if there is one.
    pub(crate) fn get(&self) -> Option<&CStr> {
        if self.state.load(Ordering::Acquire) == UNREAD {
            self.read();
        }
        if self.state.load(Ordering::Acquire) != SOME {
            return None;
        }
        // SAFETY: the state is SOME, so nobody writes any more.
        let (value, length) = unsafe { &*self.value.get() };
        value.get(..*length).and_then(|value| CStr::from_bytes_with_nul(value).ok())
    }
}
