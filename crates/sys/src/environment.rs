//! Environment variables, which a set-user-ID program must not take from its caller.
//!
//! libc: rustix reads `AT_SECURE` only with its experimental `runtime` feature.

use std::ffi::OsString;

/// Returns the value of a variable as secure_getenv(3) does: `None` if it is not set or [`is_privileged`].
pub fn var_os(name: &str) -> Option<OsString> {
    if is_privileged() { None } else { std::env::var_os(name) }
}

/// Whether the process has privileges from its executable (set-user-ID, set-group-ID, file capabilities) that the user
/// who set the environment may not have: `AT_SECURE`.
pub fn is_privileged() -> bool {
    // SAFETY: the call takes no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
