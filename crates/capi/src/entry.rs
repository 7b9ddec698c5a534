//! The way in from C and out again: results become numbers, `errno` and null pointers, and no panic gets through.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// A number of `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

pub(crate) type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const NO_MEMORY: Self = Self(libc::ENOMEM);

    /// That of the call that just failed.
    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    pub(crate) fn set(self) {
        // SAFETY: the C library's own, of this thread.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

impl From<ferroce::Error> for Errno {
    fn from(error: ferroce::Error) -> Self {
        Self(error.errno())
    }
}

/// Runs what an entry does. A panic is our own fault, and must not reach C: it becomes an I/O error.
#[inline]
pub(crate) fn run<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno(libc::EIO)))
}

/// For calls that return 0, or the error's number.
#[inline]
pub(crate) fn number(body: impl FnOnce() -> Result<()>) -> c_int {
    match run(body) {
        Ok(()) => 0,
        Err(error) => {
            error.set();
            error.0
        }
    }
}

/// For calls that return a count or index, or −1 with `errno`.
#[inline]
pub(crate) fn count(body: impl FnOnce() -> Result<c_int>) -> c_int {
    run(body).unwrap_or_else(|error| {
        error.set();
        -1
    })
}

/// For calls that return a pointer, or NULL with `errno`.
#[inline]
pub(crate) fn pointer<T>(body: impl FnOnce() -> Result<*mut T>) -> *mut T {
    run(body).unwrap_or_else(|error| {
        error.set();
        ptr::null_mut()
    })
}

/// For calls that return nothing.
#[inline]
pub(crate) fn nothing(body: impl FnOnce() -> Result<()>) {
    let _ = run(body);
}

/// What a pointer of the program's leads to, if it leads anywhere.
///
/// # Safety
/// It is null, or leads to a value that nobody changes meanwhile.
#[inline]
pub(crate) unsafe fn read<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_ref() }.ok_or(Errno::INVALID)
}

/// What a pointer of the program's leads to, to be written.
///
/// # Safety
/// It is null, or leads to a value that nobody else uses meanwhile.
#[inline]
pub(crate) unsafe fn write<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_mut() }.ok_or(Errno::INVALID)
}

/// A list of the program's.
///
/// # Safety
/// It has so many entries, unless there are none.
#[inline]
pub(crate) unsafe fn list<'a, T>(pointer: *const T, length: usize) -> Result<&'a [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller says.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}
