//! Why a call was refused: `errno` says little.
//!
//! Where a call is refused, a sentence is kept for this thread; the boundary to C ([`crate::entry`]) adds the name of the
//! call and reports it. A call that succeeds pays nothing.

use std::cell::Cell;
use std::fmt;

use crate::calls;
use crate::entry::Errno;

thread_local! {
    /// The error that is on its way to the program, with its sentence.
    static PENDING: Cell<Option<(Errno, String)>> = const { Cell::new(None) };
    /// The sentence of the call that was just refused, for the tracer.
    static TRACED: Cell<Option<String>> = const { Cell::new(None) };
}

/// Keeps the sentence of an error.
#[cold]
pub(crate) fn refused(error: Errno, why: fmt::Arguments<'_>) -> Errno {
    // A thread that is ending has lost its thread-local storage.
    let _ = PENDING.try_with(|pending| pending.set(Some((error, why.to_string()))));
    error
}

/// An invalid argument: `EINVAL`.
#[cold]
pub(crate) fn invalid(why: fmt::Arguments<'_>) -> Errno {
    refused(Errno::INVALID, why)
}

/// Keeps the sentence of an error of the library. A full queue is no error: programs post until it is full.
#[cold]
pub(crate) fn of_library(error: &ferroce::Error) -> Errno {
    let number = Errno(error.errno());
    let is_usual = matches!(number.0, libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT)
        || matches!(
            error,
            ferroce::Error::Post(
                ferroce::PostError::SendQueueFull | ferroce::PostError::ReceiveQueueFull
            )
        );
    if is_usual { number } else { refused(number, format_args!("{error}")) }
}

/// Reports the error that a call returns to the program. `F` is the closure in the function of that call.
#[cold]
pub(crate) fn report<F>(error: Errno) {
    let pending = PENDING.try_with(Cell::take).ok().flatten();
    let Some((_, why)) = pending.filter(|(of, _)| *of == error) else { return };
    // `ferroce_capi::verbs::qp_attributes::modify_qp::{{closure}}`.
    let path = std::any::type_name::<F>();
    let name = path.split("::").filter(|part| !part.starts_with('{')).last().unwrap_or(path);
    let text = format!("{name}: {why}");
    ferroce::report::refuse_call(&text);
    if calls::is_on() {
        let _ = TRACED.try_with(|traced| traced.set(Some(why)));
    }
}

/// The sentence of the call of this thread that was just refused.
pub(crate) fn take_traced() -> Option<String> {
    TRACED.try_with(Cell::take).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_call_is_that_of_its_function() {
        fn modify_qp() -> String {
            fn name<F: FnOnce()>(_: F) -> &'static str {
                std::any::type_name::<F>()
            }
            name(|| ()).to_owned()
        }
        let path = modify_qp();
        let name = path.split("::").filter(|part| !part.starts_with('{')).last();
        assert_eq!(name, Some("modify_qp"), "{path}");
    }

    #[test]
    fn a_sentence_belongs_to_its_error() {
        let error = invalid(format_args!("sgid_index {}", 17));
        assert_eq!(error, Errno::INVALID);
        report::<fn()>(Errno::BUSY);
        assert_eq!(PENDING.take(), None, "another error has no sentence");
    }
}
