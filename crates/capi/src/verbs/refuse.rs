//! Functions that programs need to be linked with, and that do nothing.
//!
//! They take any arguments: in the C calling convention the caller removes them. The line "Matrix" of each is the entry
//! of `docs/compatibility.md` for the symbols that use it; a test calls all of them.

use std::ffi::{c_int, c_void};

use crate::abi::Abi;
use crate::abi::attributes::ibv_ece;
use crate::abi::objects::ibv_qp;
use crate::entry::Errno;

/// For functions that return an error number.
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

/// For functions that return −1 and `errno`, called by vendor drivers.
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

/// For functions for which 0 is success, no port or no count.
///
/// Matrix: returns 0, there is nothing to do
pub(crate) unsafe extern "C" fn zero() -> isize {
    0
}

/// `ibv_is_fork_initialized`: a forked child opens its devices again, so no preparation is needed.
///
/// Matrix: returns IBV_FORK_UNNEEDED
pub(crate) unsafe extern "C" fn fork_unneeded() -> c_int {
    2
}

/// Enhanced connection establishment (ECE) negotiates vendor features, of which there are none. The structure is zeroed
/// for programs that read it in spite of the error.
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
