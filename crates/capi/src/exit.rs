//! What runs when the library is loaded and when the process ends.
//!
//! Most programs end without closing their objects; a kernel would clean up for them, and here this library does.

use crate::entry;
use crate::rdmacm::id;

/// Runs when the process ends by `exit` or by returning from `main`, after the program's own handlers, or when the
/// library is unloaded.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// Runs when the library is loaded: [`at_exit`] runs after the program's own handlers, which may use devices.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    entry::nothing(|| {
        ferroce::exit::disable_handler();
        if let Err(error) = ferroce::log_to_stderr() {
            // The program must not fail because of its log.
            eprintln!("ferroce: {error}");
        }
        Ok(())
    });
}

extern "C" fn at_exit() {
    entry::nothing(|| {
        ferroce_rsocket::close_all();
        id::disconnect_all();
        ferroce::exit::shut_down();
        // The program does not know of its capture.
        for (path, status) in ferroce::captures() {
            if let Some(complaint) = status.complaint() {
                eprintln!("ferroce: {}: {complaint}", path.display());
            }
        }
        Ok(())
    });
}
