//! inotify(7): waits for a file to be written to.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::{Errno, read, retry_on_intr};

use crate::error::Error;

/// A descriptor that becomes readable when an open file was written to, truncated or deleted.
///
/// Not every file system reports changes: writes by another host to a network file system are missed. Wait with a
/// deadline, and look at the file then.
#[derive(Debug)]
pub struct FileWatch {
    fd: OwnedFd,
}

impl FileWatch {
    /// Watches an open file.
    ///
    /// # Errors
    ///
    /// If the user has too many watches already, or the process no descriptor left.
    pub fn new(file: &impl AsFd) -> Result<Self, Error> {
        let system = |error| Error::system("watch a file", error);
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(system)?;
        // The link leads to the open file, even if another file has its name by now.
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let changes = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF;
        inotify::add_watch(&fd, path, changes).map_err(system)?;
        Ok(Self { fd })
    }

    /// Takes the changes reported so far, and returns whether there were any.
    pub fn take(&self) -> Result<bool, Error> {
        let mut found = false;
        // Events of one file are 16 bytes each; what they say is not needed.
        let mut events = [0; 1024];
        loop {
            match retry_on_intr(|| read(&self.fd, &mut events)) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(found),
                Ok(_) => found = true,
                Err(error) => return Err(Error::system("watch a file", error)),
            }
        }
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;
    use crate::{Interest, Poller, clock};

    #[test]
    fn a_write_makes_it_readable() {
        let path = std::env::temp_dir().join(format!("ferroce-watch-{}", std::process::id()));
        let mut writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        let watch = FileWatch::new(&reader).unwrap();
        let mut poller = Poller::new();
        let index = poller.watch(&watch, Interest::Read);
        assert_eq!(poller.wait(Some(clock::now())).unwrap(), 0);
        assert!(!watch.take().unwrap());
        writer.write_all(b"x").unwrap();
        assert_eq!(poller.wait(None).unwrap(), 1);
        assert!(poller.readiness(index).readable);
        assert!(watch.take().unwrap());
        std::fs::remove_file(&path).unwrap();
        // The file is deleted once nothing has it open any more; the link count changes at once.
        assert_eq!(poller.wait(None).unwrap(), 1);
    }
}
