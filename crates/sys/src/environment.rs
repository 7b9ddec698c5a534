//! Environment variables, which a set-user-ID program does not take from whoever started it.

use std::ffi::OsString;

/// The value of a variable. `None` where it is not set, or the program runs with more privilege than the user who set
/// it: as secure_getenv(3).
pub fn var_os(name: &str) -> Option<OsString> {
    if is_privileged() { None } else { std::env::var_os(name) }
}

/// Whether this program is set-user-ID, set-group-ID, or has got capabilities by being started: `AT_SECURE`.
pub fn is_privileged() -> bool {
    // SAFETY: the call takes no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
