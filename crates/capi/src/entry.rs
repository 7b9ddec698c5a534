//! The boundary to C: results become numbers, `errno` and null pointers, and panics are caught.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Once;

use ferroce::{Leading, Uncancellable};

use crate::reason;

/// A number of `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

pub(crate) type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const NO_MEMORY: Self = Self(libc::ENOMEM);

    /// The error of the C call that just failed.
    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    pub(crate) fn set(self) {
        // SAFETY: the C library's variable of this thread.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

impl From<ferroce_rsocket::Errno> for Errno {
    fn from(error: ferroce_rsocket::Errno) -> Self {
        Self(error.0)
    }
}

macro_rules! from_errors {
    ($($type:ty),+ $(,)?) => {$(
        impl From<$type> for Errno {
            fn from(error: $type) -> Self {
                let error = ferroce::Error::from(error);
                report_environment(&error);
                reason::of_library(&error)
            }
        }
    )+};
}

/// Writes an error about a `FERROCE_*` variable to standard error, once. The call fails with `EINVAL`, which does not tell
/// the user of an unmodified program which variable to correct; ignoring the value would run a test without its faults.
fn report_environment(error: &ferroce::Error) {
    static REPORTED: Once = Once::new();
    if let Some(error) = error.environment() {
        REPORTED.call_once(|| eprintln!("ferroce: {error}"));
    }
}

from_errors! {
    ferroce::CreateError,
    ferroce::EnvironmentError,
    ferroce::Error,
    ferroce::MemoryError,
    ferroce::ModifyError,
    ferroce::MulticastError,
    ferroce::OpenError,
    ferroce::PostError,
    ferroce::ResizeError,
    ferroce::SystemError,
    ferroce::WaitError,
    ferroce::cm::Error,
}

/// Runs the body of an exported function. A panic becomes an I/O error: it must not reach C.
///
/// The thread cannot be cancelled meanwhile: glibc cancels by unwinding, which must not pass `catch_unwind` and which
/// the destructors on the stack do not expect. Calls that are cancellation points [wait](waiting) outside.
#[inline]
pub(crate) fn run<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    let _guard = Uncancellable::new();
    run_without_cancellation_points(body)
}

/// As [`run`], for a body that contains no cancellation point: whatever posts to connected queue pairs and polls. Where
/// that does more than to move packets through shared memory, it defers cancellation itself.
#[inline]
pub(crate) fn run_without_cancellation_points<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno(libc::EIO)))
}

// These unwind when the thread is cancelled, so their ABI is `C-unwind`.
unsafe extern "C-unwind" {
    fn pthread_testcancel();
    fn pause() -> c_int;
    fn poll(list: *mut libc::pollfd, length: libc::nfds_t, timeout: c_int) -> c_int;
}

/// The next step of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Return 0.
    Done,
    /// Repeat the attempt when the descriptor is readable.
    Readable(c_int),
    /// Repeat the attempt when the descriptor or one of the sockets is readable, or when the lease of the sockets ends.
    AnyReadable(c_int, Leading),
    /// Repeat the attempt after a signal: nothing else will happen.
    Signal,
}

/// Runs a call that waits for an event, and returns 0, or −1 with `errno`. The thread can be cancelled while it waits,
/// as in rdma-core while it reads, but not during an attempt.
///
/// The caller is a function of the ABI `C-unwind` with nothing to drop: cancellation unwinds it. The closure is `Copy`
/// because it must have nothing to drop either.
#[inline]
pub(crate) fn waiting(attempt: impl Fn() -> Result<Next> + Copy) -> c_int {
    // SAFETY: no frame from here to the C caller has anything to drop.
    unsafe { pthread_testcancel() };
    loop {
        let failed = match run(attempt) {
            Ok(Next::Done) => return 0,
            Ok(Next::Readable(fd)) => {
                let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one local entry; as above.
                (unsafe { poll(&raw mut one, 1, -1) } < 0).then(Errno::last)
            }
            Ok(Next::AnyReadable(fd, leading)) => {
                let sockets = leading.sockets();
                let mut list =
                    [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }; 1 + Leading::MAX];
                for (entry, &socket) in list[1..].iter_mut().zip(sockets) {
                    entry.fd = socket;
                }
                let length = 1 + sockets.len() as libc::nfds_t;
                // SAFETY: so many local entries; as above.
                (unsafe { poll(list.as_mut_ptr(), length, leading.milliseconds()) } < 0)
                    .then(Errno::last)
            }
            Ok(Next::Signal) => {
                // SAFETY: the call takes no arguments; as above.
                unsafe { pause() };
                None
            }
            Err(error) => Some(error),
        };
        if let Some(error) = failed {
            error.set();
            return -1;
        }
    }
}

/// Runs a call that returns 0 or the error's number.
#[inline]
pub(crate) fn number<F: FnOnce() -> Result<()>>(body: F) -> c_int {
    number_of::<F>(run(body))
}

/// As [`number`], for a body that contains no cancellation point.
#[inline]
pub(crate) fn number_without_cancellation_points<F: FnOnce() -> Result<()>>(body: F) -> c_int {
    number_of::<F>(run_without_cancellation_points(body))
}

#[inline]
fn number_of<F>(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            reason::report::<F>(error);
            error.set();
            error.0
        }
    }
}

/// Runs a call that returns a count or an index, or −1 with `errno`.
#[inline]
pub(crate) fn count<F: FnOnce() -> Result<c_int>>(body: F) -> c_int {
    run(body).unwrap_or_else(|error| {
        reason::report::<F>(error);
        error.set();
        -1
    })
}

/// Runs a call that returns a pointer, or NULL with `errno`.
#[inline]
pub(crate) fn pointer<T, F: FnOnce() -> Result<*mut T>>(body: F) -> *mut T {
    run(body).unwrap_or_else(|error| {
        reason::report::<F>(error);
        error.set();
        ptr::null_mut()
    })
}

/// Runs a call that returns nothing.
#[inline]
pub(crate) fn nothing(body: impl FnOnce() -> Result<()>) {
    let _ = run(body);
}

/// Dereferences a program's pointer to read, or fails with `EINVAL` if it is null.
///
/// # Safety
/// It is null, or points to a value that does not change meanwhile.
#[inline]
pub(crate) unsafe fn read<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or(Errno::INVALID)
}

/// Dereferences a program's pointer to write, or fails with `EINVAL` if it is null.
///
/// # Safety
/// It is null, or points to a value that is not used elsewhere meanwhile.
#[inline]
pub(crate) unsafe fn write<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_mut() }.ok_or(Errno::INVALID)
}

/// A program's array as a slice, or `EINVAL` for null with a length.
///
/// # Safety
/// The array has this length.
#[inline]
pub(crate) unsafe fn list<'a, T>(pointer: *const T, length: usize) -> Result<&'a [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> c_int {
        Errno::last().0
    }

    #[test]
    fn each_kind_of_call_reports_an_error_in_its_way() {
        let fail = Errno(libc::EBUSY);
        assert_eq!((number(|| Err(fail)), errno()), (libc::EBUSY, libc::EBUSY));
        Errno(0).set();
        assert_eq!((count(|| Err(fail)), errno()), (-1, libc::EBUSY));
        Errno(0).set();
        assert!(pointer::<u8, _>(|| Err(fail)).is_null());
        assert_eq!(errno(), libc::EBUSY);
    }

    #[test]
    fn success_leaves_errno_alone() {
        Errno(libc::E2BIG).set();
        assert_eq!((number(|| Ok(())), count(|| Ok(7))), (0, 7));
        assert_eq!(errno(), libc::E2BIG);
    }

    #[test]
    fn a_panic_becomes_an_io_error() {
        assert_eq!(count(|| panic!("a bug")), -1);
        assert_eq!(errno(), libc::EIO);
        nothing(|| panic!("a bug"));
    }

    #[test]
    fn null_pointers_are_refused_unless_the_list_is_empty() {
        let (null, mutable) = (ptr::null::<u32>(), ptr::null_mut::<u32>());
        // SAFETY: null.
        unsafe {
            assert_eq!(read(null), Err(Errno::INVALID));
            assert_eq!(write(mutable), Err(Errno::INVALID));
            assert_eq!(list(null, 1), Err(Errno::INVALID));
            assert_eq!(list(null, 0), Ok(&[][..]));
        }
    }

    #[test]
    fn a_wait_repeats_the_attempt_until_it_is_done() {
        let attempts = std::cell::Cell::new(0);
        let mut pipe = [0; 2];
        // SAFETY: a local array for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let [reader, writer] = pipe;
        // SAFETY: one byte into the pipe, which makes it readable.
        assert_eq!(unsafe { libc::write(writer, c"x".as_ptr().cast(), 1) }, 1);
        let done = waiting(|| {
            attempts.set(attempts.get() + 1);
            Ok(if attempts.get() < 3 { Next::Readable(reader) } else { Next::Done })
        });
        assert_eq!((done, attempts.get()), (0, 3));
        assert_eq!(waiting(|| Err(Errno(libc::EAGAIN))), -1);
    }
}
