//! The root directory of the view, from the environment.

use std::ffi::{CStr, c_char};

use crate::path::{MAX_PATH, is_in_view, redirected};
use crate::variable::Variable;

pub(crate) static ROOT: Variable = Variable::new(c"FERROCE_VIEW");

/// Returns the root directory of the view, if there is one.
fn root() -> Option<&'static [u8]> {
    ROOT.get().map(CStr::to_bytes)
}

/// Whether this path is redirected to the view.
///
/// # Safety
/// The path must be null or NUL-terminated.
#[inline]
pub(crate) unsafe fn is_redirected(path: *const c_char) -> bool {
    // SAFETY: the caller guarantees a NUL-terminated path, which has at least one byte.
    if path.is_null() || unsafe { *path } != b'/' as c_char {
        return false;
    }
    // SAFETY: the caller guarantees a NUL-terminated path.
    is_in_view(unsafe { CStr::from_ptr(path) }.to_bytes()) && root().is_some()
}

/// Returns the target of a path that [`is_redirected`]; `None` if it is too long.
///
/// # Safety
/// The path must be NUL-terminated.
pub(crate) unsafe fn redirect(
    path: *const c_char,
    buffer: &mut [u8; MAX_PATH],
) -> Option<*const c_char> {
    // SAFETY: the caller guarantees a NUL-terminated path.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    redirected(root()?, path, buffer).map(|target| target.as_ptr().cast())
}
