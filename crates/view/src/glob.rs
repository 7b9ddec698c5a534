//! `glob`, which reads folders by itself. It can be told to do so by functions of ours, and then the names that it finds
//! are those that were asked for.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;

use libc::{ENOSYS, GLOB_NOSPACE, size_t};

use crate::calls;
use crate::next::{Next, set_errno};
use crate::root::concerns;

/// Use the functions in the structure: `GLOB_ALTDIRFUNC` of `glob.h`.
const WITH_FUNCTIONS: c_int = 1 << 9;

/// `glob_t` and `glob64_t`, which are the same on 64-bit machines.
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

static GLOB: Next = Next::new(c"glob");
static GLOB64: Next = Next::new(c"glob64");

pub(crate) fn at_load() {
    GLOB.look_up();
    GLOB64.look_up();
}

// SAFETY: it has the arguments of the function whose name it takes, and does what that does.
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
    next: &Next,
    pattern: *const c_char,
    flags: c_int,
    on_error: *const c_void,
    found: *mut Glob,
) -> c_int {
    let next = next.find();
    if next.is_null() {
        set_errno(ENOSYS);
        return GLOB_NOSPACE;
    }
    // SAFETY: both functions of the C library have this type.
    let next = unsafe { transmute::<*mut c_void, Function>(next) };
    // SAFETY: the pattern is one that the next function would read as well. A caller with functions of its own knows
    // what it reads.
    if flags & WITH_FUNCTIONS != 0 || !unsafe { concerns(pattern) } {
        // SAFETY: the caller's arguments.
        return unsafe { next(pattern, flags, on_error, found) };
    }
    // SAFETY: the caller's structure, which has room for these whether or not it uses them.
    unsafe {
        (*found).closedir = Some(closedir);
        (*found).readdir = Some(readdir);
        (*found).opendir = Some(calls::opendir);
        (*found).lstat = Some(calls::lstat);
        (*found).stat = Some(calls::stat);
        let result = next(pattern, flags | WITH_FUNCTIONS, on_error, found);
        (*found).flags &= !WITH_FUNCTIONS;
        result
    }
}

unsafe extern "C" fn closedir(folder: *mut c_void) {
    // SAFETY: what `opendir` gave.
    unsafe { libc::closedir(folder.cast()) };
}

unsafe extern "C" fn readdir(folder: *mut c_void) -> *mut c_void {
    // SAFETY: what `opendir` gave.
    unsafe { libc::readdir64(folder.cast()).cast() }
}
