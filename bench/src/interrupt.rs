//! SIGINT, SIGTERM, SIGHUP and SIGQUIT: the running sample is killed and changed settings are restored before this
//! program ends.

use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use ferroce_sys::signal::{Signal, Signals};
use rustix::process::{Pid, kill_process_group};

use crate::sysctl;

/// The process group of the running sample; 0 if there is none.
static SAMPLE: AtomicI32 = AtomicI32::new(0);

static SIGNALS: OnceLock<Arc<Signals>> = OnceLock::new();

/// Starts the thread that waits for signals.
pub(crate) fn watch() -> Result<(), String> {
    let signals = Arc::new(Signals::new().map_err(|error| error.to_string())?);
    let waiting = Arc::clone(&signals);
    if SIGNALS.set(signals).is_err() {
        return Ok(());
    }
    thread::spawn(move || {
        loop {
            match waiting.wait() {
                Ok(Signal::Child) => {}
                Ok(Signal::Terminal(number) | Signal::Process(number)) => end(128 + number),
                Err(_) => end(1),
            }
        }
    });
    Ok(())
}

/// Makes a command start with the signal mask from before [`watch`].
pub(crate) fn restore_mask(command: &mut Command) {
    if let Some(signals) = SIGNALS.get() {
        signals.restore_mask(command);
    }
}

/// Sets the process group to kill when a signal arrives.
pub(crate) fn set_sample(group: Option<u32>) {
    SAMPLE.store(group.map_or(0, |group| group as i32), Ordering::SeqCst);
}

/// Kills all processes of a group.
pub(crate) fn kill_group(group: u32) {
    if let Some(group) = Pid::from_raw(group as i32) {
        // It fails if all members have ended.
        let _ = kill_process_group(group, rustix::process::Signal::KILL);
    }
}

fn end(status: i32) -> ! {
    let group = SAMPLE.load(Ordering::SeqCst);
    if group > 0 {
        kill_group(group as u32);
    }
    sysctl::restore_all();
    std::process::exit(status)
}
