//! Sharing the objects of a device between contexts of a process: `ibv_import_device(3)` and related calls.
//!
//! In the kernel, objects belong to the command descriptor of a context, and every holder of a copy can use them. Here
//! the descriptor is an empty file by which the context is found within its process. Another process that gets a copy
//! finds nothing: memory and queues exist in the process that created them.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use crate::entry::{Errno, Result};
use crate::fd::{FileId, file_id};
use crate::handle::context::OpenDevice;
use crate::sync::lock;

/// Open devices by their command descriptors.
static FILES: Mutex<Vec<(FileId, Weak<OpenDevice>)>> = Mutex::new(Vec::new());

/// Creates a command descriptor.
pub(crate) fn descriptor() -> Result<OwnedFd> {
    // SAFETY: a NUL-terminated name.
    let fd = unsafe { libc::memfd_create(c"ferroce".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: just opened, and not owned elsewhere.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers an open device under its command descriptor.
pub(crate) fn register(commands: &OwnedFd, open: &Arc<OpenDevice>) -> Result<()> {
    let file = file_id(commands.as_raw_fd())?;
    let mut files = lock(&FILES);
    files.retain(|(_, open)| open.strong_count() > 0);
    files.push((file, Arc::downgrade(open)));
    Ok(())
}

/// The open device of a command descriptor.
pub(crate) fn find(fd: c_int) -> Result<Arc<OpenDevice>> {
    let file = file_id(fd)?;
    let files = lock(&FILES);
    let found = files.iter().find(|(one, _)| *one == file).and_then(|(_, open)| open.upgrade());
    // The descriptor belongs to another process, or not to a device.
    found.ok_or(Errno::UNSUPPORTED)
}
