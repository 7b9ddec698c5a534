//! Termination signals.

use std::thread;

use ferroce_sys::signal::{Signal, Signals};

/// Handles termination signals: closes the devices, so that peers learn of it and captures are complete, calls `report`
/// and exits. Must be called before the first thread is started.
pub(super) fn handle(report: impl FnOnce() + Send + 'static) {
    // Without a free descriptor, signals terminate the process as usual.
    let Ok(signals) = Signals::new() else { return };
    thread::spawn(move || {
        loop {
            match signals.wait() {
                Ok(Signal::Terminal(signal) | Signal::Process(signal)) => {
                    ferroce::exit::shut_down();
                    report();
                    std::process::exit(128 + signal);
                }
                Ok(Signal::Child) => {}
                Err(_) => return,
            }
        }
    });
}
