//! Whether the environment of this process can be trusted.

/// Whether the process got privileges from its file (set-user-ID, set-group-ID, file capabilities), while its environment
/// is that of whoever started it: secure_getenv(3) looks at the same.
pub fn is_secure() -> bool {
    // SAFETY: the call takes no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
