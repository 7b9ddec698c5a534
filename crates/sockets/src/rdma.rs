//! rsockets: the functions of `librdmacm.so.1`.

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

use libc::{
    msghdr, nfds_t, pollfd, pthread_attr_t, pthread_t, size_t, sockaddr, socklen_t, ssize_t,
};

use crate::next::{self, Start};

macro_rules! functions {
    ($( fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty; )*) => {
        /// The library's functions.
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> $result,)*
        }

        fn load() -> Option<Functions> {
            let _inside = Inside::enter();
            // SAFETY: a NUL-terminated name. The library stays loaded: it has threads.
            let library = unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW) };
            if library.is_null() {
                return None;
            }
            raise_limit();
            Some(Functions {
                $($name: {
                    let name = concat!(stringify!($name), "\0");
                    let address = next::symbol(library, name.as_ptr().cast())?;
                    // SAFETY: the function of this name has this type (rdma/rsocket.h).
                    unsafe { transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(address) }
                },)*
            })
        }

        $(
            /// Calls the function of this name (rsocket(7)), or fails with `ENOSYS` if the library is missing.
            ///
            /// # Safety
            /// As for the function itself.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                let Some(functions) = functions() else {
                    next::set_errno(libc::ENOSYS);
                    return -1;
                };
                let _inside = Inside::enter();
                // SAFETY: as the caller promises.
                unsafe { (functions.$name)($($argument),*) }
            }
        )*
    };
}

functions! {
    fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn rbind(rsocket: c_int, to: *const sockaddr, length: socklen_t) -> c_int;
    fn rlisten(rsocket: c_int, backlog: c_int) -> c_int;
    fn raccept(rsocket: c_int, from: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn rconnect(rsocket: c_int, to: *const sockaddr, length: socklen_t) -> c_int;
    fn rshutdown(rsocket: c_int, how: c_int) -> c_int;
    fn rclose(rsocket: c_int) -> c_int;
    fn rrecv(rsocket: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    fn rrecvmsg(rsocket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn rsend(rsocket: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    fn rsendmsg(rsocket: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn rpoll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn rgetpeername(rsocket: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn rgetsockname(rsocket: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn rsetsockopt(rsocket: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    fn rgetsockopt(rsocket: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    fn rfcntl(rsocket: c_int, command: c_int, argument: c_long) -> c_int;
}

/// Raises the soft limit of descriptors to the hard limit. librdmacm uses about five descriptors for a connection
/// beside the program's own, and the program expects the limit to apply to its own.
fn raise_limit() {
    const FACTOR: u64 = 8;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: local structures.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_cur.saturating_mul(FACTOR).min(limit.rlim_max);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Whether half of the descriptors are in use, judged by the number of one just opened. The rest is for the program.
pub(crate) fn is_short_of_descriptors(newest: c_int) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a local structure.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    told && u64::try_from(newest).is_ok_and(|newest| newest >= limit.rlim_cur / 2)
}

thread_local! {
    /// The depth of librdmacm calls in this thread. Calls that the library makes are passed through.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is in a call of librdmacm.
pub(crate) fn is_inside() -> bool {
    INSIDE.get() > 0
}

struct Inside;

impl Inside {
    fn enter() -> Self {
        INSIDE.set(INSIDE.get() + 1);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref()
}

/// Whether rsockets are available. Loads the library.
pub(crate) fn is_there() -> bool {
    functions().is_some()
}

/// Creates a thread for librdmacm. All calls of that thread are passed through.
///
/// # Safety
/// As pthread_create(3).
pub(crate) unsafe fn create_thread(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    struct Thread(Start, *mut c_void);

    extern "C-unwind" fn run(thread: *mut c_void) -> *mut c_void {
        // SAFETY: allocated below, for this thread only.
        let Thread(start, argument) = *unsafe { Box::from_raw(thread.cast::<Thread>()) };
        INSIDE.set(1);
        start(argument)
    }

    let thread_of_ours = Box::into_raw(Box::new(Thread(start, argument)));
    // SAFETY: as the caller promises.
    let result = unsafe { next::pthread_create(thread, attributes, run, thread_of_ours.cast()) };
    if result != 0 {
        // SAFETY: no thread was started with it.
        drop(unsafe { Box::from_raw(thread_of_ours) });
    }
    result
}

/// Makes an rsocket blocking or not.
pub(crate) fn set_nonblocking(rsocket: c_int, nonblocking: bool) {
    let flags = if nonblocking { libc::O_NONBLOCK } else { 0 };
    // SAFETY: the call takes no pointers.
    unsafe { rfcntl(rsocket, libc::F_SETFL, flags.into()) };
}

/// Waits for an rsocket for at most this many milliseconds, −1 for no limit, and returns the ready events.
pub(crate) fn wait(rsocket: c_int, events: i16, timeout: c_int) -> Result<i16, c_int> {
    let mut one = [pollfd { fd: rsocket, events, revents: 0 }];
    match poll(&mut one, timeout) {
        0.. => Ok(one[0].revents),
        _ => Err(next::errno()),
    }
}

/// poll(2) of rsockets and other descriptors together.
pub(crate) fn poll(list: &mut [pollfd], timeout: c_int) -> c_int {
    let (first, count) = (list.as_mut_ptr(), list.len() as nfds_t);
    // SAFETY: a local list.
    unsafe {
        if is_there() { rpoll(first, count, timeout) } else { next::poll(first, count, timeout) }
    }
}
