//! Formatting of calls: one line each.

use std::cell::RefCell;
use std::ffi::{CStr, c_int};
use std::fmt::Write;

use super::{names, output};
use crate::reason;

/// An argument or result, as it was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    Nothing,
    Signed(i64),
    Unsigned(u64),
    Pointer(usize),
}

/// An argument: its name, and how it is formatted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    /// The formatting function, if it is not formatted as the number or pointer that it is.
    pub(crate) show: Option<Show>,
}

/// Writes an argument to a line.
///
/// # Safety
/// The arguments are those of a call that just returned: they point to the program's values of the types of the call.
pub(crate) type Show = unsafe fn(&mut String, &Finished<'_>);

/// The description of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [Argument],
    /// The result for "nothing found". Programs repeat such a call in a loop, so it is only counted.
    pub(crate) empty_result: Option<c_int>,
}

/// A finished call, positioned at one of its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished<'a> {
    pub(crate) arguments: &'a [Raw],
    pub(crate) result: Raw,
    pub(crate) at: usize,
}

impl Finished<'_> {
    /// The value of an argument as a number; `offset` counts from the current one.
    pub(crate) fn number(&self, offset: usize) -> u64 {
        match self.arguments.get(self.at + offset) {
            Some(Raw::Signed(number)) => *number as u64,
            Some(Raw::Unsigned(number)) => *number,
            Some(Raw::Pointer(address)) => *address as u64,
            _ => 0,
        }
    }

    /// The value that this argument points to.
    ///
    /// # Safety
    /// As for [`Show`].
    pub(crate) unsafe fn target<T>(&self) -> Option<&T> {
        let address = self.number(0) as usize;
        // SAFETY: null, or the program's, as the caller promises.
        unsafe { std::ptr::with_exposed_provenance::<T>(address).as_ref() }
    }
}

/// Measures the duration of a call, and keeps `errno`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: u64,
    errno: c_int,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    /// When the call began, by the monotonic clock.
    started: u64,
    nanoseconds: u64,
    /// The error that the call set, or 0.
    error: c_int,
    /// The value that the program is to see.
    errno: c_int,
}

fn errno() -> *mut c_int {
    // SAFETY: the C library's variable of this thread.
    unsafe { libc::__errno_location() }
}

impl Clock {
    pub(crate) fn start() -> Self {
        let errno = errno();
        // SAFETY: of this thread. Set to 0, so that a value set by the call is recognised.
        let before = unsafe { errno.replace(0) };
        Self { started: ferroce::clock::now(), errno: before }
    }

    pub(crate) fn stop(self) -> Took {
        let nanoseconds = ferroce::clock::now() - self.started;
        // SAFETY: of this thread.
        let error = unsafe { errno().read() };
        let errno = if error == 0 { self.errno } else { error };
        Took { started: self.started, nanoseconds, error, errno }
    }
}

/// Consecutive calls that found nothing.
#[derive(Clone, Copy, Debug)]
struct Idle {
    name: &'static str,
    /// The first argument: the CQ.
    first: Raw,
    /// When the first one began.
    started: u64,
    count: u64,
    nanoseconds: u64,
}

/// The state of a thread between its calls.
#[derive(Debug, Default)]
struct Thread {
    line: String,
    idle: Option<Idle>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.write_idle();
    }
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// Records a call.
pub(crate) fn record(about: &About, arguments: &[Raw], result: Raw, took: Took) {
    // A thread that is ending has lost its thread-local storage. Formatting makes no traced calls.
    let _ = THREAD.try_with(|thread| {
        if let Ok(mut thread) = thread.try_borrow_mut() {
            thread.record(about, arguments, result, took);
        }
    });
    // SAFETY: of this thread.
    unsafe { errno().write(took.errno) };
}

/// Writes what the adapter refused, dropped or ended, and why, on whichever thread finds out.
pub(crate) fn note(text: &str) {
    let mut line = String::new();
    output::begin(&mut line, ferroce::clock::now());
    line.push_str("-- ");
    line.push_str(text);
    output::end(&mut line);
}

impl Thread {
    fn record(&mut self, about: &About, arguments: &[Raw], result: Raw, took: Took) {
        let first = arguments.first().copied().unwrap_or(Raw::Nothing);
        let same = |idle: &Idle| idle.first == first;
        if about.empty_result.is_some_and(|code| result == Raw::Signed(code.into())) {
            if !self.idle.as_ref().is_some_and(same) {
                self.write_idle();
            }
            let (name, started) = (about.name, took.started);
            let none = Idle { name, first, started, count: 0, nanoseconds: 0 };
            let idle = self.idle.get_or_insert(none);
            idle.count += 1;
            idle.nanoseconds += took.nanoseconds;
            return;
        }
        // Empty calls before one that found something are reported with it.
        let before =
            if about.empty_result.is_some() { self.idle.take_if(|idle| same(idle)) } else { None };
        self.write_idle();
        let line = &mut self.line;
        output::begin(line, took.started);
        line.push_str(about.name);
        line.push('(');
        for (at, (argument, raw)) in about.arguments.iter().zip(arguments).enumerate() {
            line.push_str(if at == 0 { "" } else { ", " });
            line.push_str(argument.name);
            line.push('=');
            match argument.show {
                // SAFETY: the call has just returned.
                Some(show) => unsafe { show(line, &Finished { arguments, result, at }) },
                None => plain(line, *raw),
            }
        }
        line.push(')');
        outcome(line, result, took.error);
        if let Some(why) = reason::take_traced() {
            let _ = write!(line, ": {why}");
        }
        duration(line, took.nanoseconds);
        if let Some(idle) = before {
            let _ = write!(line, " after {} empty", idle.count);
            duration(line, idle.nanoseconds);
        }
        output::end(line);
    }

    fn write_idle(&mut self) {
        let Some(idle) = self.idle.take() else { return };
        let line = &mut self.line;
        output::begin(line, idle.started);
        line.push_str(idle.name);
        line.push('(');
        plain(line, idle.first);
        let _ = write!(line, ", …) found nothing {}", times(idle.count));
        duration(line, idle.nanoseconds);
        output::end(line);
    }
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

pub(crate) fn plain(line: &mut String, raw: Raw) {
    let _ = match raw {
        Raw::Nothing => Ok(()),
        Raw::Signed(number) => write!(line, "{number}"),
        Raw::Unsigned(number) => write!(line, "{number}"),
        Raw::Pointer(0) => write!(line, "NULL"),
        Raw::Pointer(address) => write!(line, "{address:#x}"),
    };
}

fn outcome(line: &mut String, result: Raw, error: c_int) {
    if result == Raw::Nothing {
        return;
    }
    line.push_str(" = ");
    plain(line, result);
    // On failure, functions return the error's number, its negative, −1 or NULL.
    let failed = match result {
        Raw::Pointer(0) | Raw::Signed(-1) => error,
        Raw::Signed(number) if error != 0 && number == i64::from(error) => error,
        Raw::Signed(number) if number < 0 => c_int::try_from(-number).unwrap_or(0),
        _ => 0,
    };
    if failed != 0 {
        let _ = match names::error(failed) {
            Some(name) => write!(line, " {name}"),
            None => write!(line, " errno {failed}"),
        };
        // SAFETY: a string of the C library, copied before the next call of this thread.
        let text = unsafe { CStr::from_ptr(libc::strerror(failed)) };
        let _ = write!(line, " ({})", text.to_string_lossy());
    }
}

fn duration(line: &mut String, nanoseconds: u64) {
    let number = nanoseconds as f64;
    let _ = match nanoseconds {
        0..1_000_000 => write!(line, " <{:.1} µs>", number / 1e3),
        1_000_000..1_000_000_000 => write!(line, " <{:.1} ms>", number / 1e6),
        _ => write!(line, " <{:.1} s>", number / 1e9),
    };
}
