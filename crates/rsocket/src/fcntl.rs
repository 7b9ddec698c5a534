//! The flags of fcntl(2), kept for the program.

use std::ffi::c_int;

use crate::error::{Errno, Result};

/// The flags of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileFlags {
    pub(crate) nonblocking: bool,
    status: c_int,
    descriptor: c_int,
}

impl FileFlags {
    pub(crate) fn new(nonblocking: bool) -> Self {
        Self { nonblocking, ..Self::default() }
    }

    /// Performs a command of fcntl(2).
    pub(crate) fn control(&mut self, command: c_int, argument: c_int) -> Result<c_int> {
        Ok(match command {
            libc::F_GETFL => {
                let nonblocking = if self.nonblocking { libc::O_NONBLOCK } else { 0 };
                self.status | nonblocking | libc::O_RDWR
            }
            libc::F_SETFL => {
                self.nonblocking = argument & libc::O_NONBLOCK != 0;
                self.status = argument & !(libc::O_NONBLOCK | libc::O_ACCMODE);
                0
            }
            libc::F_GETFD => self.descriptor,
            libc::F_SETFD => {
                self.descriptor = argument;
                0
            }
            _ => return Err(Errno(libc::ENOTSUP)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_flags_are_kept_and_always_read_write() {
        let mut flags = FileFlags::new(true);
        assert_eq!(flags.control(libc::F_GETFL, 0), Ok(libc::O_RDWR | libc::O_NONBLOCK));
        assert_eq!(flags.control(libc::F_SETFL, libc::O_ASYNC | libc::O_WRONLY), Ok(0));
        assert!(!flags.nonblocking);
        assert_eq!(flags.control(libc::F_GETFL, 0), Ok(libc::O_RDWR | libc::O_ASYNC));
    }

    #[test]
    fn descriptor_flags_are_kept_apart() {
        let mut flags = FileFlags::new(false);
        assert_eq!(flags.control(libc::F_SETFD, libc::FD_CLOEXEC), Ok(0));
        assert_eq!(flags.control(libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
        assert_eq!(flags.control(libc::F_GETFL, 0), Ok(libc::O_RDWR));
    }

    #[test]
    fn other_commands_are_unsupported() {
        let mut flags = FileFlags::default();
        assert_eq!(flags.control(libc::F_SETLK, 0), Err(Errno(libc::ENOTSUP)));
    }
}
