//! Advisory file locks: flock(2).

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Takes an exclusive advisory lock on an open file, held until the file is closed. Returns false if another open file
/// description holds it. Succeeds on file systems without flock(2).
pub fn try_lock_exclusive(file: &impl AsFd) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::INVAL) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_second_lock_is_refused_until_the_first_file_is_closed() {
        let path = std::env::temp_dir().join(format!("ferroce-lock-{}", std::process::id()));
        let (first, second) = (File::create(&path).unwrap(), File::open(&path).unwrap());
        assert!(try_lock_exclusive(&first).unwrap() && try_lock_exclusive(&first).unwrap());
        assert!(!try_lock_exclusive(&second).unwrap());
        drop(first);
        assert!(try_lock_exclusive(&second).unwrap());
        std::fs::remove_file(path).unwrap();
    }
}
