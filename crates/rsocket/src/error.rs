//! Errors: numbers of `errno`, as the socket calls report them.

use std::ffi::c_int;
use std::{fmt, io};

/// A number of `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// The result of a call that fails with a number of `errno`.
pub type Result<T> = std::result::Result<T, Errno>;

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

macro_rules! from_errors {
    ($($type:ty),+ $(,)?) => {$(
        impl From<$type> for Errno {
            fn from(error: $type) -> Self {
                Self(ferroce::Error::from(error).errno())
            }
        }
    )+};
}

from_errors! {
    ferroce::CreateError,
    ferroce::Error,
    ferroce::MemoryError,
    ferroce::PostError,
    ferroce::SystemError,
    ferroce::WaitError,
    ferroce::cm::Error,
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}
