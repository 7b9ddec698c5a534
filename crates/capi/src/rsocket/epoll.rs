//! `repoll_create`, `repoll_ctl` and `repoll_wait`.

use std::ffi::c_int;
use std::time::Duration;

use ferroce_rsocket::epoll;
use libc::epoll_event;

use crate::entry::{self, Errno};

pub(crate) unsafe extern "C" fn repoll_create(flags: c_int) -> c_int {
    entry::count(|| Ok(epoll::create(flags)?))
}

pub(crate) unsafe extern "C" fn repoll_ctl(
    number: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's event, or null; the structure is packed.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        epoll::control(number, operation, fd, event.map(|event| (event.events, event.u64)))?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn repoll_wait(
    number: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    entry::count(|| {
        let max = usize::try_from(max).ok().filter(|&max| max > 0).ok_or(Errno::INVALID)?;
        if events.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the program's list.
        let out = unsafe { std::slice::from_raw_parts_mut(events, max) };
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        Ok(epoll::wait(number, out, timeout)? as c_int)
    })
}
