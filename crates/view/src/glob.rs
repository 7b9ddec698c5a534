//! `glob`, which reads directories without calling the interposed functions.
//!
//! `GLOB_ALTDIRFUNC` makes it use the functions of this library; the names it returns keep the original path.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;

use libc::{ENOSYS, GLOB_NOSPACE, size_t};

use crate::calls;
use crate::next::{NextFunction, set_errno};
use crate::root::is_redirected;

/// Flag of `glob.h`: use the directory functions in the `glob_t`.
const GLOB_ALTDIRFUNC: c_int = 1 << 9;

/// `glob_t` and `glob64_t`, which are identical on 64-bit machines.
#[repr(C)]
struct Glob {
    count: size_t,
    names: *mut *mut c_char,
    reserved: size_t,
    flags: c_int,
    closedir: Option<unsafe extern "C" fn(*mut c_void)>,
    readdir: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    opendir: Option<unsafe extern "C" fn(*const c_char) -> *mut c_void>,
    lstat: Option<unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int>,
    stat: Option<unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int>,
}

const _: () = assert!(size_of::<Glob>() == size_of::<libc::glob_t>());

type Function = unsafe extern "C" fn(*const c_char, c_int, *const c_void, *mut Glob) -> c_int;

static GLOB: NextFunction = NextFunction::new(c"glob");
static GLOB64: NextFunction = NextFunction::new(c"glob64");

pub(crate) fn at_load() {
    GLOB.resolve();
    GLOB64.resolve();
}

// SAFETY: it has the signature and the behaviour of the C function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn glob(
    pattern: *const c_char,
    flags: c_int,
    on_error: *const c_void,
    found: *mut Glob,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { search(&GLOB, pattern, flags, on_error, found) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn glob64(
    pattern: *const c_char,
    flags: c_int,
    on_error: *const c_void,
    found: *mut Glob,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { search(&GLOB64, pattern, flags, on_error, found) }
}

unsafe fn search(
    next: &NextFunction,
    pattern: *const c_char,
    flags: c_int,
    on_error: *const c_void,
    found: *mut Glob,
) -> c_int {
    let next = next.address();
    if next.is_null() {
        set_errno(ENOSYS);
        return GLOB_NOSPACE;
    }
    // SAFETY: both functions of the C library have this type.
    let next = unsafe { transmute::<*mut c_void, Function>(next) };
    // A caller that sets its own directory functions is passed through.
    // SAFETY: the next function would read the pattern as well.
    if flags & GLOB_ALTDIRFUNC != 0 || !unsafe { is_redirected(pattern) } {
        // SAFETY: the caller's arguments.
        return unsafe { next(pattern, flags, on_error, found) };
    }
    // SAFETY: the caller's structure always has these fields.
    unsafe {
        (*found).closedir = Some(closedir);
        (*found).readdir = Some(readdir);
        (*found).opendir = Some(calls::opendir);
        (*found).lstat = Some(calls::lstat);
        (*found).stat = Some(calls::stat);
        let result = next(pattern, flags | GLOB_ALTDIRFUNC, on_error, found);
        (*found).flags &= !GLOB_ALTDIRFUNC;
        result
    }
}

unsafe extern "C" fn closedir(stream: *mut c_void) {
    // SAFETY: a stream returned by `opendir`.
    unsafe { libc::closedir(stream.cast()) };
}

unsafe extern "C" fn readdir(stream: *mut c_void) -> *mut c_void {
    // SAFETY: a stream returned by `opendir`.
    unsafe { libc::readdir64(stream.cast()).cast() }
}
