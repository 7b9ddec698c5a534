//! Events that are written to a channel: `rdma_write_cm_event`, and those of `rdma_resolve_addrinfo`.

use std::ffi::{c_char, c_int};
use std::ptr;

use ferroce::cm::UserEvent;

use crate::abi::rdmacm::{cm_event, rdma_addrinfo, rdma_cm_id};
use crate::entry::{self, Errno};
use crate::handle::Handle;
use crate::rdmacm::channel;
use crate::rdmacm::id::IdHandle;
use crate::rdmacm::information::{Failure, freeaddrinfo, look_up};
use crate::sync::lock;

/// The result of `rdma_resolve_addrinfo`.
#[derive(Default)]
pub(super) enum Resolution {
    #[default]
    None,
    /// Resolved; the program has not taken the list.
    Resolved(AddressList),
}

/// The list of addresses.
pub(super) struct AddressList(*mut rdma_addrinfo);

// SAFETY: the list is reachable only through this until the program takes it.
unsafe impl Send for AddressList {}

impl Drop for AddressList {
    fn drop(&mut self) {
        // SAFETY: from `look_up`, and not taken by the program.
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

/// rdma_resolve_addrinfo(3). As in rdma-core, the calling thread resolves the name, and an event reports the result.
pub(crate) unsafe extern "C" fn resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        if matches!(lock(&handle.details).resolution, Resolution::Resolved(_)) {
            return Err(Errno::BUSY);
        }
        // SAFETY: the program's strings and hints.
        let (kind, status) = match unsafe { look_up(node, service, hints) } {
            Ok(found) => {
                lock(&handle.details).resolution = Resolution::Resolved(AddressList(found));
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

/// Converts a number of the resolver to `errno`.
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
        let Resolution::Resolved(mut list) = std::mem::take(&mut lock(&handle.details).resolution)
        else {
            return Err(Errno(libc::ENOENT));
        };
        *out = std::mem::replace(&mut list.0, ptr::null_mut());
        Ok(0)
    })
}
