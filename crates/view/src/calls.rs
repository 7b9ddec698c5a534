//! Interposed functions of the C library that take a path.
//!
//! One macro defines them all; `@path` marks the position of the path argument.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use libc::{ENAMETOOLONG, ENOSYS, mode_t, size_t, ssize_t};

use crate::next::{NextFunction, set_errno};
use crate::path::MAX_PATH;
use crate::root::{is_redirected, redirect};

macro_rules! calls {
    ($(
        fn $name:ident($($before:ident: $before_type:ty,)* @path $(, $after:ident: $after_type:ty)*)
            -> $result:ty, failing with $failed:expr;
    )*) => {
        /// The interposed functions.
        #[allow(non_upper_case_globals, reason = "each has the name of its C function")]
        pub(crate) mod next {
            use super::NextFunction;
            $(pub(crate) static $name: NextFunction =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => NextFunction::new(name),
                    Err(_) => panic!("a name contains a NUL"),
                };)*
        }

        static ALL: &[&NextFunction] = &[$(&next::$name),*];

        $(
            // SAFETY: it has the signature and the behaviour of the C function of this name.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(
                $($before: $before_type,)*
                path: *const c_char
                $(, $after: $after_type)*
            ) -> $result {
                type Function = unsafe extern "C" fn(
                    $($before_type,)* *const c_char $(, $after_type)*
                ) -> $result;

                // Not inlined, so that calls outside the view need no stack space for a path: signal handlers may run on
                // small stacks.
                #[cold]
                #[inline(never)]
                unsafe fn call_redirected(
                    next: Function,
                    $($before: $before_type,)*
                    path: *const c_char
                    $(, $after: $after_type)*
                ) -> $result {
                    let mut buffer = [0; MAX_PATH];
                    // SAFETY: `is_redirected` has read the path.
                    let Some(path) = (unsafe { redirect(path, &mut buffer) }) else {
                        set_errno(ENAMETOOLONG);
                        return $failed;
                    };
                    // SAFETY: the caller's arguments, and a path that outlives the call.
                    unsafe { next($($before,)* path $(, $after)*) }
                }

                let next = next::$name.address();
                if next.is_null() {
                    set_errno(ENOSYS);
                    return $failed;
                }
                // SAFETY: the C library's function of this name has this type.
                let next = unsafe { transmute::<*mut c_void, Function>(next) };
                // SAFETY: the caller's arguments; the next function would read the path as well.
                unsafe {
                    if is_redirected(path) {
                        call_redirected(next, $($before,)* path $(, $after)*)
                    } else {
                        next($($before,)* path $(, $after)*)
                    }
                }
            }
        )*
    };
}

// `open` and its variants are variadic in C: the caller passes a mode only if the call may create a file. Here the mode is a
// fixed argument. On x86-64 and AArch64 Linux a variadic integer is passed in the same register as a fixed one. Without a
// mode that register holds an arbitrary value, which the next function reads only if the flags require a mode. Calling the
// variadic next function through this type works as well: AArch64 makes no difference, and on x86-64 an arbitrary AL (upper
// bound of the vector registers used) only makes it save registers that it does not read. Other architectures have not been
// checked:
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "not checked on this architecture: whether the mode of open is passed like a fixed argument"
);

// Pointers to structures are `c_void`: they are passed through and never dereferenced.
calls! {
    fn open(@path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn open64(@path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn __open(@path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn __open64(@path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn openat(dirfd: c_int, @path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn openat64(dirfd: c_int, @path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn creat(@path, mode: mode_t) -> c_int, failing with -1;
    fn creat64(@path, mode: mode_t) -> c_int, failing with -1;
    // Used by code compiled with _FORTIFY_SOURCE.
    fn __open_2(@path, flags: c_int) -> c_int, failing with -1;
    fn __open64_2(@path, flags: c_int) -> c_int, failing with -1;
    fn __openat_2(dirfd: c_int, @path, flags: c_int) -> c_int, failing with -1;
    fn __openat64_2(dirfd: c_int, @path, flags: c_int) -> c_int, failing with -1;

    fn fopen(@path, mode: *const c_char) -> *mut c_void, failing with null_mut();
    fn fopen64(@path, mode: *const c_char) -> *mut c_void, failing with null_mut();
    fn freopen(@path, mode: *const c_char, stream: *mut c_void) -> *mut c_void, failing with null_mut();
    fn freopen64(@path, mode: *const c_char, stream: *mut c_void) -> *mut c_void, failing with null_mut();

    fn opendir(@path) -> *mut c_void, failing with null_mut();
    fn scandir(@path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, failing with -1;
    fn scandir64(@path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, failing with -1;
    fn scandirat(dirfd: c_int, @path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, failing with -1;
    fn scandirat64(dirfd: c_int, @path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, failing with -1;

    fn stat(@path, buf: *mut c_void) -> c_int, failing with -1;
    fn stat64(@path, buf: *mut c_void) -> c_int, failing with -1;
    fn lstat(@path, buf: *mut c_void) -> c_int, failing with -1;
    fn lstat64(@path, buf: *mut c_void) -> c_int, failing with -1;
    fn fstatat(dirfd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, failing with -1;
    fn fstatat64(dirfd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, failing with -1;
    fn statx(dirfd: c_int, @path, flags: c_int, mask: c_uint, buf: *mut c_void) -> c_int, failing with -1;
    // Used by programs linked with glibc before 2.33.
    fn __xstat(version: c_int, @path, buf: *mut c_void) -> c_int, failing with -1;
    fn __xstat64(version: c_int, @path, buf: *mut c_void) -> c_int, failing with -1;
    fn __lxstat(version: c_int, @path, buf: *mut c_void) -> c_int, failing with -1;
    fn __lxstat64(version: c_int, @path, buf: *mut c_void) -> c_int, failing with -1;
    fn __fxstatat(version: c_int, dirfd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, failing with -1;
    fn __fxstatat64(version: c_int, dirfd: c_int, @path, buf: *mut c_void, flags: c_int) -> c_int, failing with -1;

    fn access(@path, mode: c_int) -> c_int, failing with -1;
    fn eaccess(@path, mode: c_int) -> c_int, failing with -1;
    fn euidaccess(@path, mode: c_int) -> c_int, failing with -1;
    fn faccessat(dirfd: c_int, @path, mode: c_int, flags: c_int) -> c_int, failing with -1;
    fn chdir(@path) -> c_int, failing with -1;
    fn pathconf(@path, name: c_int) -> c_long, failing with -1;
    fn statfs(@path, buf: *mut c_void) -> c_int, failing with -1;
    fn statfs64(@path, buf: *mut c_void) -> c_int, failing with -1;
    // `ls -l` reads the extended attributes of each file and prints an error if the file does not exist.
    fn getxattr(@path, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t, failing with -1;
    fn lgetxattr(@path, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t, failing with -1;
    fn listxattr(@path, list: *mut c_char, size: size_t) -> ssize_t, failing with -1;
    fn llistxattr(@path, list: *mut c_char, size: size_t) -> ssize_t, failing with -1;

    fn readlink(@path, buf: *mut c_char, size: size_t) -> ssize_t, failing with -1;
    fn readlinkat(dirfd: c_int, @path, buf: *mut c_char, size: size_t) -> ssize_t, failing with -1;
    fn __readlink_chk(@path, buf: *mut c_char, size: size_t, buflen: size_t) -> ssize_t, failing with -1;
    fn __readlinkat_chk(dirfd: c_int, @path, buf: *mut c_char, size: size_t, buflen: size_t) -> ssize_t, failing with -1;
    fn realpath(@path, buf: *mut c_char) -> *mut c_char, failing with null_mut();
    fn __realpath_chk(@path, buf: *mut c_char, buflen: size_t) -> *mut c_char, failing with null_mut();
    fn canonicalize_file_name(@path) -> *mut c_char, failing with null_mut();
}

/// Makes the dynamic linker run [`at_load`] when it loads this library.
// SAFETY: this section holds pointers to functions that may ignore their arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    crate::root::ROOT.read();
    crate::forward::VERBS.read();
    for next in ALL {
        next.resolve();
    }
    crate::glob::at_load();
}
