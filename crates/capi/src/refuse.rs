//! Entries that must be there for programs to start, and do nothing.
//!
//! They serve functions with any arguments: in C's calling convention the caller cleans up. The line "Matrix" of each is
//! what `docs/compatibility.md` says of the symbols that lead to it; a test calls them all.

use std::ffi::{c_int, c_void};

use crate::abi::Abi;
use crate::abi::attributes::ibv_ece;
use crate::abi::objects::ibv_qp;
use crate::entry::Errno;

/// For functions that return the error's number.
///
/// Matrix: returns EOPNOTSUPP
pub(crate) unsafe extern "C" fn number() -> c_int {
    Errno::UNSUPPORTED.set();
    libc::EOPNOTSUPP
}

/// For functions that return NULL and `errno`.
///
/// Matrix: NULL, errno EOPNOTSUPP
pub(crate) unsafe extern "C" fn null() -> *mut c_void {
    Errno::UNSUPPORTED.set();
    std::ptr::null_mut()
}

/// For functions that return −1 and `errno`: what drivers of vendors call.
///
/// Matrix: -1, errno ENOSYS
pub(crate) unsafe extern "C" fn minus_one() -> isize {
    Errno(libc::ENOSYS).set();
    -1
}

/// For functions that return a descriptor, or −1 and `errno`.
///
/// Matrix: -1, errno EOPNOTSUPP
pub(crate) unsafe extern "C" fn no_descriptor() -> isize {
    Errno::UNSUPPORTED.set();
    -1
}

/// For functions that return nothing.
///
/// Matrix: does nothing
pub(crate) unsafe extern "C" fn nothing() {}

/// For functions whose 0 is success, or no port or count.
///
/// Matrix: returns 0, there is nothing to do
pub(crate) unsafe extern "C" fn zero() -> isize {
    0
}

/// `ibv_is_fork_initialized`: a child opens its devices anew, so there is nothing to do for it.
///
/// Matrix: returns IBV_FORK_UNNEEDED
pub(crate) unsafe extern "C" fn fork_unneeded() -> c_int {
    2
}

/// Enhanced connection establishment: vendors agree on what only their devices do, and we have nothing of the kind.
/// Programs that look at the answer in spite of the error find none.
///
/// Matrix: returns EOPNOTSUPP
pub(crate) unsafe extern "C" fn query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the program's structure, or null.
    if let Some(ece) = unsafe { ece.as_mut() } {
        *ece = Abi::zeroed();
    }
    Errno::UNSUPPORTED.set();
    libc::EOPNOTSUPP
}
