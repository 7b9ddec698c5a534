//! Shutting down open devices when the process exits.
//!
//! [`Context::open`](crate::Context::open) registers an `atexit` handler once. The C library has a handler of its own,
//! which runs after those of the program; it disables this one.

use std::panic::catch_unwind;
use std::sync::Once;

pub use crate::engine::shut_down;

/// Completed when the handler is registered, or is not to be.
static REGISTERED: Once = Once::new();

/// Registers the handler, unless it was disabled.
pub(crate) fn register() {
    REGISTERED.call_once(|| ferroce_sys::exit::at_exit(handler));
}

extern "C" fn handler() {
    // A panic must not reach C.
    let _ = catch_unwind(shut_down);
}

/// Disables the handler: the caller calls [`shut_down`] itself.
pub fn disable_handler() {
    REGISTERED.call_once(|| {});
}
