//! Names of flags, states and errors.

use std::ffi::c_int;
use std::fmt::Write;

/// Writes the name of a number, or the number.
pub(super) fn one(line: &mut String, names: &[(u32, &str)], number: u32) {
    let _ = match names.iter().find(|(value, _)| *value == number) {
        Some((_, name)) => write!(line, "{name}"),
        None => write!(line, "{number}"),
    };
}

/// Writes the names of bits, joined by `|`.
pub(super) fn bits(line: &mut String, names: &[(u32, &str)], number: u32) {
    let mut rest = number;
    let mut first = true;
    for (value, name) in names.iter().filter(|(value, _)| *value != 0 && number & value == *value) {
        line.push_str(if first { "" } else { "|" });
        line.push_str(name);
        rest &= !value;
        first = false;
    }
    if rest != 0 || first {
        let _ = match rest {
            0 => write!(line, "0"),
            rest => write!(line, "{}{rest:#x}", if first { "" } else { "|" }),
        };
    }
}

macro_rules! errors {
    ($($name:ident)+) => {
        /// The errors that calls of these libraries fail with, and related ones.
        const ERRORS: &[(c_int, &str)] = &[$( (libc::$name, stringify!($name)) ),+];
    };
}

errors! {
    EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENODEV EINVAL ENFILE EMFILE
    ENOSPC EPIPE ERANGE ENOSYS ENODATA ETIME EPROTO EOVERFLOW ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE EOPNOTSUPP
    EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN
    ETIMEDOUT ECONNREFUSED EHOSTUNREACH EALREADY EINPROGRESS ECANCELED
}

pub(super) fn error(number: c_int) -> Option<&'static str> {
    ERRORS.iter().find(|(value, _)| *value == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::{access, wr};

    #[test]
    fn bits_without_a_name_are_shown() {
        let shown = |number| {
            let mut line = String::new();
            bits(&mut line, access::NAMES, number);
            line
        };
        assert_eq!(shown(0), "0");
        assert_eq!(shown(3), "LOCAL_WRITE|REMOTE_WRITE");
        assert_eq!(shown(1 | 1 << 30), "LOCAL_WRITE|0x40000000");
        assert_eq!(shown(1 << 30), "0x40000000");
    }

    #[test]
    fn numbers_without_a_name_are_shown() {
        let mut line = String::new();
        one(&mut line, wr::NAMES, 4);
        one(&mut line, wr::NAMES, 77);
        assert_eq!(line, "RDMA_READ77");
    }
}
