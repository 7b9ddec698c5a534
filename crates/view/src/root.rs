//! The view's folder, from the environment.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::path::{LONGEST, is_in_view, moved};

/// Room for the folder's name. A longer one leaves no room for what is in it.
const ROOM: usize = LONGEST / 2;

const UNREAD: u8 = 0;
const READING: u8 = 1;
const NONE: u8 = 2;
const SOME: u8 = 3;

/// A copy of the variable: a program may change its environment, and reading that while it does is not allowed.
struct Root {
    state: AtomicU8,
    name: UnsafeCell<([u8; ROOM], usize)>,
}

// SAFETY: the name is written by the one thread that moved the state from UNREAD to READING, and read only after the
// state was seen to be SOME.
unsafe impl Sync for Root {}

static ROOT: Root = Root { state: AtomicU8::new(UNREAD), name: UnsafeCell::new(([0; ROOM], 0)) };

/// Reads the variable, once: when the library is loaded, or in a call that comes before.
pub(crate) fn read() {
    let claim = ROOT.state.compare_exchange(UNREAD, READING, Ordering::Acquire, Ordering::Acquire);
    if claim.is_err() {
        return;
    }
    // SAFETY: the name ends with a zero. Before a program's main nobody changes its environment.
    let value = unsafe { libc::getenv(c"FERROCE_VIEW".as_ptr()) };
    // A set-user-ID program does not see files where its caller wants.
    // SAFETY: the call takes no pointers.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let mut state = NONE;
    if !value.is_null() && !privileged {
        // SAFETY: a variable's value ends with a zero.
        let value = unsafe { CStr::from_ptr(value) }.to_bytes();
        // SAFETY: the state is READING, and we made it so.
        let (room, length) = unsafe { &mut *ROOT.name.get() };
        if let (true, Some(room)) = (value.starts_with(b"/"), room.get_mut(..value.len())) {
            room.copy_from_slice(value);
            *length = value.len();
            state = SOME;
        }
    }
    ROOT.state.store(state, Ordering::Release);
}

/// The view's folder, if there is a view.
fn root() -> Option<&'static [u8]> {
    if ROOT.state.load(Ordering::Acquire) == UNREAD {
        read();
    }
    if ROOT.state.load(Ordering::Acquire) != SOME {
        return None;
    }
    // SAFETY: the state is SOME, so nobody writes any more.
    let (name, length) = unsafe { &*ROOT.name.get() };
    name.get(..*length)
}

/// Whether a call with this path is for the view.
///
/// # Safety
/// The path must be null, or end with a zero.
#[inline]
pub(crate) unsafe fn concerns(path: *const c_char) -> bool {
    // SAFETY: the caller's promise; the first byte is there even if it is the last.
    if path.is_null() || unsafe { *path } != b'/' as c_char {
        return false;
    }
    // SAFETY: the caller's promise.
    is_in_view(unsafe { CStr::from_ptr(path) }.to_bytes()) && root().is_some()
}

/// The view's path for one that [`concerns`] it; `None` when it is too long.
///
/// # Safety
/// The path must end with a zero.
pub(crate) unsafe fn place(
    path: *const c_char,
    buffer: &mut [u8; LONGEST],
) -> Option<*const c_char> {
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    moved(root()?, path, buffer).map(|moved| moved.as_ptr().cast())
}
