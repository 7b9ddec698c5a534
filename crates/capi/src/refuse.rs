//! Entries that must be there for programs to start, and do nothing.
//!
//! They serve functions with any arguments: in C's calling convention the caller cleans up.

use std::ffi::{c_char, c_int, c_void};

use crate::entry::Errno;

/// For functions that return the error's number.
pub(crate) unsafe extern "C" fn number() -> c_int {
    Errno::UNSUPPORTED.set();
    libc::EOPNOTSUPP
}

/// For functions that return NULL and `errno`.
pub(crate) unsafe extern "C" fn null() -> *mut c_void {
    Errno::UNSUPPORTED.set();
    std::ptr::null_mut()
}

/// For functions that return −1 and `errno`: of librdmacm, which is to come.
pub(crate) unsafe extern "C" fn minus_one() -> isize {
    Errno(libc::ENOSYS).set();
    -1
}

/// For functions of librdmacm that return NULL and `errno`.
pub(crate) unsafe extern "C" fn null_yet() -> *mut c_void {
    Errno(libc::ENOSYS).set();
    std::ptr::null_mut()
}

/// For functions that return nothing.
pub(crate) unsafe extern "C" fn nothing() {}

/// For functions whose 0 is success, or no port or count.
pub(crate) unsafe extern "C" fn zero() -> isize {
    0
}

/// `ibv_is_fork_initialized`: a child opens its devices anew, so there is nothing to do for it.
pub(crate) unsafe extern "C" fn fork_unneeded() -> c_int {
    2
}

/// `rdma_event_str`.
pub(crate) unsafe extern "C" fn unknown_event() -> *const c_char {
    c"UNKNOWN EVENT".as_ptr()
}
