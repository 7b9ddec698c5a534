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
        name_failed();
        // The program does not know of its capture.
        for (path, status) in ferroce::captures() {
            if let Some(complaint) = status.complaint() {
                eprintln!("ferroce: {}: {complaint}", path.display());
            }
        }
        Ok(())
    });
}

/// Queue pairs that are named at the end.
const MAX_NAMED: usize = 3;

/// Writes to standard error which queue pairs ended in error, and why, if the program was started by `ferroce run`, which
/// sets this variable: most programs print the status at best.
fn name_failed() {
    if std::env::var_os("FERROCE_VIEW").is_none() {
        return;
    }
    let ended = ferroce::report::ended();
    for one in ended.iter().take(MAX_NAMED) {
        let (text, number) = (&one.text, one.number);
        eprintln!("ferroce: {text}; see `ferroce explain vendor_err {number}`");
    }
    if let Some(more) = ended.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        eprintln!("ferroce: {more} more queue pairs ended in error");
    }
}
