//! `rsetsockopt`, `rgetsockopt`, `rfcntl`.

use std::ffi::{c_int, c_long, c_void};

use ferroce_rsocket::{Socket, table};
use libc::socklen_t;

use super::memory::{input, output};
use crate::entry::{self, Errno, Result};

/// The length of an option's value, which the kernel takes for a signed number.
fn length_of(length: socklen_t) -> Result<usize> {
    c_int::try_from(length).map(|length| length as usize).map_err(|_| Errno::INVALID)
}

pub(crate) unsafe extern "C" fn rsetsockopt(
    number: c_int,
    level: c_int,
    name: c_int,
    data: *const c_void,
    length: socklen_t,
) -> c_int {
    entry::count(|| {
        let socket = table::get(number)?;
        if data.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the program's value.
        let value = unsafe { input(data, length_of(length)?) }?;
        match socket {
            Socket::Stream(socket) => socket.set_option(level, name, value)?,
            Socket::Datagram(socket) => socket.set_option(level, name, value)?,
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rgetsockopt(
    number: c_int,
    level: c_int,
    name: c_int,
    data: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's length.
        let length = unsafe { entry::write(length) }?;
        let socket = table::get(number)?;
        // SAFETY: the program's buffer.
        let out = unsafe { output(data, length_of(*length)?) };
        let written = match socket {
            Socket::Stream(socket) => socket.option(level, name, |value| {
                let out = out?;
                let copied = value.len().min(out.len());
                out[..copied].copy_from_slice(&value[..copied]);
                Ok::<_, Errno>(copied)
            })??,
            Socket::Datagram(socket) => socket.option(level, name, out?)?,
        };
        *length = written as socklen_t;
        Ok(0)
    })
}

/// C passes the third, variable argument where a declared one would be.
pub(crate) unsafe extern "C" fn rfcntl(number: c_int, command: c_int, argument: c_long) -> c_int {
    entry::count(|| {
        let argument = argument as c_int;
        Ok(match table::get(number)? {
            Socket::Stream(socket) => socket.control(command, argument)?,
            Socket::Datagram(socket) => socket.control(command, argument)?,
        })
    })
}
