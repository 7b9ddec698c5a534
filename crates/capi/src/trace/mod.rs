//! Every call of the libraries on a line of its own, with arguments, result and duration, as strace(1) does it for the
//! kernel: `ferroce run --trace`.
//!
//! | file | role |
//! |---|---|
//! | `function` | a function of any signature becomes one that tells of each call |
//! | `tables` | the tables that programs call through, with those in place of ours |
//! | `record` | one call becomes a line |
//! | `show` | arguments that are more than a number |
//! | `names` | names of flags, states and errors |
//! | `output` | where lines go, and whose they are |
//!
//! Nothing of it is in the way of a program that is not traced: what it calls is reached by a jump through a slot, or by
//! a table that it was given, and both lead to the plain functions. When the library is loaded and `FERROCE_TRACE` is
//! set, others are put in their place. To be traced, an entry of the list of exports has only to name its arguments.

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

/// What may stand in a list, or not.
macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

pub(crate) use optional;

/// Whether calls are traced: known when the library is loaded, and the same from then on.
static ON: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Before the program can call anything: no call is missed, and no other thread of it is there yet that could be
/// calling.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // A panic must not reach the loader.
    let _ = std::panic::catch_unwind(|| {
        if output::open() {
            ON.store(true, Ordering::Relaxed);
            crate::export::install_traced();
        }
    });
}

/// Puts the telling function in the place of one of this type.
pub(crate) fn install<C: Call, F: Function>(slot: &AtomicPtr<()>, _plain: F) {
    slot.store(F::telling::<C>().address(), Ordering::Relaxed);
}
