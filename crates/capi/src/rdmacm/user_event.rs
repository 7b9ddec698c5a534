//! Events that programs, or the library for them, write to a channel: `rdma_write_cm_event`, and `rdma_resolve_addrinfo` with
//! its answer.

use std::ffi::{c_char, c_int};
use std::ptr;

use ferroce::cm::UserEvent;

use crate::abi::rdmacm::{cm_event, rdma_addrinfo, rdma_cm_id};
use crate::context::lock;
use crate::entry::{self, Errno};
use crate::handle::Handle;
use crate::rdmacm::channel;
use crate::rdmacm::id::IdHandle;
use crate::rdmacm::information::{Failure, freeaddrinfo, look_up};

/// What `rdma_resolve_addrinfo` has come to.
#[derive(Default)]
pub(super) enum Resolution {
    #[default]
    None,
    /// The program has not taken the answer yet.
    Answered(Answer),
}

/// The list that was found.
pub(super) struct Answer(*mut rdma_addrinfo);

// SAFETY: the list is reached by this alone until the program takes it.
unsafe impl Send for Answer {}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: of `look_up`, and nobody has taken it.
        unsafe { freeaddrinfo(self.0) };
    }
}

pub(crate) unsafe extern "C" fn write_cm_event(
    id: *mut rdma_cm_id,
    event: u32,
    status: c_int,
    arg: u64,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        if event != cm_event::USER {
            return Err(Errno::INVALID);
        }
        handle.id.raise_event(UserEvent { kind: event, status, value: arg });
        Ok(0)
    })
}

/// rdma_resolve_addrinfo(3). As in rdma-core, the resolver is asked by the calling thread; how that went is told by an event.
pub(crate) unsafe extern "C" fn resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        if matches!(lock(&handle.details).resolution, Resolution::Answered(_)) {
            return Err(Errno::BUSY);
        }
        // SAFETY: the program's texts and hints.
        let (kind, status) = match unsafe { look_up(node, service, hints) } {
            Ok(found) => {
                lock(&handle.details).resolution = Resolution::Answered(Answer(found));
                (cm_event::ADDRINFO_RESOLVED, 0)
            }
            Err(Failure::Errno(error)) => return Err(error),
            Err(Failure::Resolver(number)) => (cm_event::ADDRINFO_ERROR, -errno_of(number)),
        };
        handle.id.raise_event(UserEvent { kind, status, value: 0 });
        // SAFETY: the program's id.
        unsafe { channel::complete(id) }?;
        Ok(0)
    })
}

/// The resolver's numbers are not those of `errno`.
fn errno_of(resolver: c_int) -> c_int {
    match resolver {
        libc::EAI_SYSTEM => Errno::last().0,
        libc::EAI_MEMORY => libc::ENOMEM,
        libc::EAI_AGAIN => libc::EAGAIN,
        libc::EAI_BADFLAGS | libc::EAI_FAMILY | libc::EAI_SOCKTYPE | libc::EAI_SERVICE => {
            libc::EINVAL
        }
        _ => libc::ENOENT,
    }
}

pub(crate) unsafe extern "C" fn query_addrinfo(
    id: *mut rdma_cm_id,
    out: *mut *mut rdma_addrinfo,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id and pointer.
        let (handle, out) = unsafe { (IdHandle::of(id)?, entry::write(out)?) };
        let Resolution::Answered(mut answer) =
            std::mem::take(&mut lock(&handle.details).resolution)
        else {
            return Err(Errno(libc::ENOENT));
        };
        *out = std::mem::replace(&mut answer.0, ptr::null_mut());
        Ok(0)
    })
}
