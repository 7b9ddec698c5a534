//! The view's folder, from the environment.

use std::ffi::{CStr, c_char};

use crate::path::{LONGEST, is_in_view, moved};
use crate::variable::Variable;

pub(crate) static ROOT: Variable = Variable::new(c"FERROCE_VIEW");

/// The view's folder, if there is a view.
fn root() -> Option<&'static [u8]> {
    ROOT.get().map(CStr::to_bytes)
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
