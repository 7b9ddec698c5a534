//! The interposed functions of the C library, or of another preloaded library.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    FILE, epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pid_t, pollfd, pthread_attr_t,
    pthread_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};

/// The start function of a thread.
pub(crate) type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// A function's address, looked up once.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// The address, or null if there is no such function.
    #[inline]
    fn find(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.look_up() } else { address }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let before = errno();
        // SAFETY: a NUL-terminated name.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        // Every thread stores the same value, and publishes nothing with it.
        self.address.store(address, Ordering::Relaxed);
        set_errno(before);
        address
    }
}

macro_rules! next {
    ($( fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty; )*) => {
        #[allow(non_upper_case_globals, reason = "each has the name of its function")]
        mod addresses {
            use super::*;
            $(pub(super) static $name: Next = Next {
                name: match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name without a zero in it"),
                },
                address: AtomicPtr::new(null_mut()),
            };)*
        }

        $(
            /// Calls the next function of this name.
            ///
            /// # Safety
            /// As for the function itself.
            #[allow(clippy::too_many_arguments, reason = "it has those of the function")]
            #[inline]
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                let address = addresses::$name.find();
                if address.is_null() {
                    set_errno(libc::ENOSYS);
                    return -1;
                }
                // A thread that is cancelled in it unwinds through this frame.
                type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
                // SAFETY: the function of this name has this type; the arguments are as the caller promises.
                unsafe { transmute::<*mut c_void, Function>(address)($($argument),*) }
            }
        )*

        /// Looks up all functions, so that later calls, also in signal handlers, only load the address.
        pub(crate) fn look_up() {
            $(addresses::$name.look_up();)*
        }
    };
}

next! {
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn accept(fd: c_int, from: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, from: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    fn connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn getsockname(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn getpeername(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;

    fn recv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int, from: *mut sockaddr, from_length: *mut socklen_t) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t;
    fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
    fn __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t) -> ssize_t;
    fn __recv_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t, flags: c_int) -> ssize_t;
    fn __recvfrom_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_length: *mut socklen_t) -> ssize_t;
    fn send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    fn sendto(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int, to: *const sockaddr, to_length: socklen_t) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t;
    fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
    fn sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t;

    fn poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn __poll_chk(list: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    fn __ppoll_chk(list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int;
    fn select(count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set, timeout: *mut timeval) -> c_int;
    fn pselect(count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;

    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(set: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_wait(set: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(set: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    fn epoll_pwait2(set: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;

    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn fclose(stream: *mut FILE) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    fn pthread_create(thread: *mut pthread_t, attributes: *const pthread_attr_t, start: Start, argument: *mut c_void) -> c_int;
    fn fork() -> pid_t;
    fn daemon(no_chdir: c_int, no_close: c_int) -> c_int;
}

/// The address of a function in an opened library.
pub(crate) fn symbol(library: *mut c_void, name: *const c_char) -> Option<*mut c_void> {
    // SAFETY: a library that stays open, and a NUL-terminated name.
    let address = unsafe { libc::dlsym(library, name) };
    (!address.is_null()).then_some(address)
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the variable of this thread.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Fails a call.
pub(crate) fn fail(error: c_int) -> c_int {
    set_errno(error);
    -1
}
