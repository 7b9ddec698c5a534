//! Files that one process writes.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::system::{check, errno};

/// Takes a file for whoever opened it, until it is closed: flock(2). Says whether nobody else has it. A file system that
/// knows no such thing has nobody.
pub fn is_mine(file: &impl AsFd) -> io::Result<bool> {
    // SAFETY: the call takes no pointers.
    let taken = unsafe { libc::flock(file.as_fd().as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    match check(taken) {
        Ok(_) => Ok(true),
        Err(error) if errno(&error) == libc::EWOULDBLOCK => Ok(false),
        Err(error) if [libc::ENOLCK, libc::EOPNOTSUPP, libc::EINVAL].contains(&errno(&error)) => {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn the_second_is_told_until_the_first_has_closed() {
        let path = std::env::temp_dir().join(format!("ferroce-lock-{}", std::process::id()));
        let (first, second) = (File::create(&path).unwrap(), File::open(&path).unwrap());
        assert!(is_mine(&first).unwrap() && is_mine(&first).unwrap());
        assert!(!is_mine(&second).unwrap());
        drop(first);
        assert!(is_mine(&second).unwrap());
        std::fs::remove_file(path).unwrap();
    }
}
