//! The call tracer, `ferroce run --trace`: one line for each library call, with arguments, result and duration, as
//! strace(1) does for system calls.
//!
//! | file | role |
//! |---|---|
//! | `function` | wraps a function of any signature |
//! | `tables` | installs traced functions in the tables that programs call through |
//! | `record` | formats a call |
//! | `show` | formats arguments that are more than a number |
//! | `names` | names of flags, states and errors |
//! | `output` | the output file; time, process and thread of a line |
//!
//! It costs nothing when off: programs reach functions by a jump through a slot or by a function table, and both hold
//! the plain functions. If `FERROCE_TRACE` is set when the library is loaded, they are replaced by traced ones. An
//! exported function is traced if its entry in the list of exports names its arguments.

mod function;
mod names;
mod output;
mod record;
pub(crate) mod show;
mod tables;

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub(crate) use function::{Call, Function};
pub(crate) use record::{About, Argument};
pub(crate) use tables::{completion_queue, context, queue_pair};

/// `Some` of an optional macro argument.
macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

pub(crate) use optional;

/// Whether calls are traced. Set when the library is loaded, and constant from then on.
static ON: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Starts tracing if `FERROCE_TRACE` asks for it. `install` replaces the exported functions by traced ones.
pub(crate) fn start(install: impl FnOnce() + std::panic::UnwindSafe) {
    // A panic must not reach the loader.
    let _ = std::panic::catch_unwind(|| {
        if output::open() {
            ON.store(true, Ordering::Relaxed);
            ferroce::report::listen(record::note);
            install();
        }
    });
}

/// Stores the traced function for one of this type in a slot.
pub(crate) fn install<C: Call, F: Function>(slot: &AtomicPtr<()>, _plain: F) {
    slot.store(F::traced::<C>().address(), Ordering::Relaxed);
}
