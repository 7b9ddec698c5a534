//! epoll(7) instances over descriptors that the caller knows by number.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

/// An event that [`Epoll::wait`] reports: `struct epoll_event`.
pub type EpollEvent = libc::epoll_event;

// The two types describe one structure of the kernel's interface.
const _: () = assert!(
    size_of::<EpollEvent>() == size_of::<epoll::Event>()
        && align_of::<EpollEvent>() == align_of::<epoll::Event>()
);

/// An epoll instance.
///
/// Event masks are `EPOLLIN` and so on, passed to the kernel unchanged.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// Creates an instance. Programs that this one executes inherit it unless `close_on_exec` is set.
    pub fn new(close_on_exec: bool) -> io::Result<Self> {
        let flags =
            if close_on_exec { epoll::CreateFlags::CLOEXEC } else { epoll::CreateFlags::empty() };
        Ok(Self { fd: epoll::create(flags)? })
    }

    /// Adds a descriptor. `EEXIST` if it is in the instance already, `EPERM` if it cannot be polled.
    pub fn add(&self, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        let (data, flags) = (epoll::EventData::new_u64(data), flags(events));
        Ok(epoll::add(&self.fd, borrow(&fd)?, data, flags)?)
    }

    /// Replaces the event mask and data of a descriptor. `ENOENT` if it is not in the instance.
    pub fn modify(&self, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        let (data, flags) = (epoll::EventData::new_u64(data), flags(events));
        Ok(epoll::modify(&self.fd, borrow(&fd)?, data, flags)?)
    }

    /// Removes a descriptor. `ENOENT` if it is not in the instance.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, borrow(&fd)?)?)
    }

    /// Waits for events and returns how many it wrote to the start of `events`. `None` waits without a timeout, zero
    /// does not wait. A signal handler ends it with `EINTR`. An empty list is `EINVAL`.
    pub fn wait(&self, events: &mut [EpollEvent], timeout: Option<Duration>) -> io::Result<usize> {
        // epoll_pwait(2), which kernels before 5.11 have alone, takes no more milliseconds than an `int` holds.
        const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);
        let timeout = timeout.and_then(|time| Timespec::try_from(time.min(LONGEST)).ok());
        // SAFETY: both types have the layout of the kernel's structure (asserted above) and no invalid values.
        let events = unsafe {
            std::slice::from_raw_parts_mut(events.as_mut_ptr().cast::<epoll::Event>(), events.len())
        };
        Ok(epoll::wait(&self.fd, events, timeout.as_ref())?)
    }
}

fn flags(events: u32) -> epoll::EventFlags {
    epoll::EventFlags::from_bits_retain(events)
}

fn borrow(fd: &RawFd) -> io::Result<BorrowedFd<'_>> {
    if *fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: not -1. The kernel checks the number: `EBADF` if it is not open. epoll neither reads, writes nor closes it.
    Ok(unsafe { BorrowedFd::borrow_raw(*fd) })
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests;
