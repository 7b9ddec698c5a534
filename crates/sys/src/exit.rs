//! Handlers that run when the process exits.
//!
//! libc: `atexit` is a function of the C library, not a system call.

/// Registers a function that runs when the process exits by `exit` or by returning from `main`, before the handlers that
/// were registered earlier; in a shared library, also when that is unloaded. See atexit(3).
pub fn at_exit(handler: extern "C" fn()) {
    // SAFETY: the function is valid for the whole life of the program or library that registers it. Without memory for
    // the registration the handler does not run.
    unsafe { libc::atexit(handler) };
}
