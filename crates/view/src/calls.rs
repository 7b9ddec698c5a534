//! The functions of the C library that take a path, each of them before the one of its name.
//!
//! All are made by one macro. `@path` stands for the path, whichever argument it is.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use libc::{ENAMETOOLONG, ENOSYS, mode_t, size_t, ssize_t};

use crate::next::{Next, set_errno};
use crate::path::LONGEST;
use crate::root::{concerns, place};

macro_rules! calls {
    ($(
        fn $name:ident($($before:ident: $before_type:ty,)* @path $(, $after:ident: $after_type:ty)*)
            -> $result:ty, failing with $failed:expr;
    )*) => {
        /// The functions that come next.
        #[allow(non_upper_case_globals, reason = "each has the name of its function")]
        pub(crate) mod next {
            use super::Next;
            $(pub(crate) static $name: Next =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => Next::new(name),
                    Err(_) => panic!("a name without a zero in it"),
                };)*
        }

        /// All of them.
        static ALL: &[&Next] = &[$(&next::$name),*];

        $(
            // SAFETY: it has the arguments of the function whose name it takes, and does what that does.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name(
                $($before: $before_type,)*
                path: *const c_char
                $(, $after: $after_type)*
            ) -> $result {
                type Function = unsafe extern "C" fn(
                    $($before_type,)* *const c_char $(, $after_type)*
                ) -> $result;

                // Apart, so that calls which are not for the view need no room on the stack for a path: signal
                // handlers make some, on small stacks.
                #[cold]
                #[inline(never)]
                unsafe fn in_view(
                    next: Function,
                    $($before: $before_type,)*
                    path: *const c_char
                    $(, $after: $after_type)*
                ) -> $result {
                    let mut buffer = [0; LONGEST];
                    // SAFETY: the path was looked at before.
                    let Some(path) = (unsafe { place(path, &mut buffer) }) else {
                        set_errno(ENAMETOOLONG);
                        return $failed;
                    };
                    // SAFETY: the caller's arguments, and a path that lives through the call.
                    unsafe { next($($before,)* path $(, $after)*) }
                }

                let next = next::$name.find();
                if next.is_null() {
                    set_errno(ENOSYS);
                    return $failed;
                }
                // SAFETY: the C library's function of this name has this type.
                let next = unsafe { transmute::<*mut c_void, Function>(next) };
                // SAFETY: the path is one that the next function would read as well, and the arguments are the
                // caller's.
                unsafe {
                    if concerns(path) {
                        in_view(next, $($before,)* path $(, $after)*)
                    } else {
                        next($($before,)* path $(, $after)*)
                    }
                }
            }
        )*
    };
}

// `open` and its likes are variadic in C: the mode is there only when a file may be made. Here it is always there. On
// x86-64 and AArch64 Linux a variadic integer is passed in the register of a fixed one, so taking it when the caller gave
// none takes whatever that register has, and the next function looks at it only when the flags say that it was given.
// Called that way a variadic function finds it, too: on AArch64 nothing differs, and what x86-64 asks for in addition, an
// upper bound of the floating-point registers in use (AL), only has it save registers that nobody reads. Other
// architectures have not been looked at:
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "whether open's mode is passed like a fixed argument here has to be found out first"
);

// Structures are pointers to anything: they are passed on and never looked at.
calls! {
    fn open(@path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn open64(@path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn __open(@path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn __open64(@path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn openat(folder: c_int, @path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn openat64(folder: c_int, @path, flags: c_int, mode: mode_t) -> c_int, failing with -1;
    fn creat(@path, mode: mode_t) -> c_int, failing with -1;
    fn creat64(@path, mode: mode_t) -> c_int, failing with -1;
    // What calls become that are compiled with _FORTIFY_SOURCE.
    fn __open_2(@path, flags: c_int) -> c_int, failing with -1;
    fn __open64_2(@path, flags: c_int) -> c_int, failing with -1;
    fn __openat_2(folder: c_int, @path, flags: c_int) -> c_int, failing with -1;
    fn __openat64_2(folder: c_int, @path, flags: c_int) -> c_int, failing with -1;

    fn fopen(@path, mode: *const c_char) -> *mut c_void, failing with null_mut();
    fn fopen64(@path, mode: *const c_char) -> *mut c_void, failing with null_mut();
    fn freopen(@path, mode: *const c_char, stream: *mut c_void) -> *mut c_void, failing with null_mut();
    fn freopen64(@path, mode: *const c_char, stream: *mut c_void) -> *mut c_void, failing with null_mut();

    fn opendir(@path) -> *mut c_void, failing with null_mut();
    fn scandir(@path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, failing with -1;
    fn scandir64(@path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, failing with -1;
    fn scandirat(folder: c_int, @path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, failing with -1;
    fn scandirat64(folder: c_int, @path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, failing with -1;

    fn stat(@path, to: *mut c_void) -> c_int, failing with -1;
    fn stat64(@path, to: *mut c_void) -> c_int, failing with -1;
    fn lstat(@path, to: *mut c_void) -> c_int, failing with -1;
    fn lstat64(@path, to: *mut c_void) -> c_int, failing with -1;
    fn fstatat(folder: c_int, @path, to: *mut c_void, flags: c_int) -> c_int, failing with -1;
    fn fstatat64(folder: c_int, @path, to: *mut c_void, flags: c_int) -> c_int, failing with -1;
    fn statx(folder: c_int, @path, flags: c_int, mask: c_uint, to: *mut c_void) -> c_int, failing with -1;
    // What programs call that were linked before glibc 2.33.
    fn __xstat(version: c_int, @path, to: *mut c_void) -> c_int, failing with -1;
    fn __xstat64(version: c_int, @path, to: *mut c_void) -> c_int, failing with -1;
    fn __lxstat(version: c_int, @path, to: *mut c_void) -> c_int, failing with -1;
    fn __lxstat64(version: c_int, @path, to: *mut c_void) -> c_int, failing with -1;
    fn __fxstatat(version: c_int, folder: c_int, @path, to: *mut c_void, flags: c_int) -> c_int, failing with -1;
    fn __fxstatat64(version: c_int, folder: c_int, @path, to: *mut c_void, flags: c_int) -> c_int, failing with -1;

    fn access(@path, mode: c_int) -> c_int, failing with -1;
    fn eaccess(@path, mode: c_int) -> c_int, failing with -1;
    fn euidaccess(@path, mode: c_int) -> c_int, failing with -1;
    fn faccessat(folder: c_int, @path, mode: c_int, flags: c_int) -> c_int, failing with -1;
    fn chdir(@path) -> c_int, failing with -1;
    fn pathconf(@path, name: c_int) -> c_long, failing with -1;
    fn statfs(@path, to: *mut c_void) -> c_int, failing with -1;
    fn statfs64(@path, to: *mut c_void) -> c_int, failing with -1;
    // `ls -l` asks for these of each file, and says so when it is not there.
    fn getxattr(@path, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t, failing with -1;
    fn lgetxattr(@path, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t, failing with -1;
    fn listxattr(@path, list: *mut c_char, size: size_t) -> ssize_t, failing with -1;
    fn llistxattr(@path, list: *mut c_char, size: size_t) -> ssize_t, failing with -1;

    fn readlink(@path, to: *mut c_char, size: size_t) -> ssize_t, failing with -1;
    fn readlinkat(folder: c_int, @path, to: *mut c_char, size: size_t) -> ssize_t, failing with -1;
    fn __readlink_chk(@path, to: *mut c_char, size: size_t, room: size_t) -> ssize_t, failing with -1;
    fn __readlinkat_chk(folder: c_int, @path, to: *mut c_char, size: size_t, room: size_t) -> ssize_t, failing with -1;
    fn realpath(@path, to: *mut c_char) -> *mut c_char, failing with null_mut();
    fn __realpath_chk(@path, to: *mut c_char, room: size_t) -> *mut c_char, failing with null_mut();
    fn canonicalize_file_name(@path) -> *mut c_char, failing with null_mut();
}

/// What the dynamic linker runs when it has loaded this library.
// SAFETY: entries of this section are functions to be called at that time, with arguments that may be ignored.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    crate::root::ROOT.read();
    crate::forward::VERBS.read();
    for next in ALL {
        next.look_up();
    }
    crate::glob::at_load();
}
