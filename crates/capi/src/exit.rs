//! The end of a process that has not closed what it has open, as most programs do: a kernel would see to the rest.

use crate::entry;
use crate::rdmacm::id;
use crate::rsocket;

/// Runs when the process ends by `exit` or the return of `main`, after the program's own handlers; or when the library is
/// unloaded.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    entry::nothing(|| {
        rsocket::leave();
        id::leave();
        ferroce::leave();
        // The program knows nothing of its capture.
        for (path, status) in ferroce::captures() {
            if let Some(complaint) = status.complaint() {
                eprintln!("ferroce: {}: {complaint}", path.display());
            }
        }
        Ok(())
    });
}
