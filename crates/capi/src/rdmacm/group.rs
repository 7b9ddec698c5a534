//! Multicast.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use ferroce::Gid;
use libc::sockaddr;

use crate::abi::rdmacm::{rdma_cm_id, rdma_cm_join_mc_attr_ex};
use crate::acknowledge::Unacknowledged;
use crate::entry::{self, Errno, Result};
use crate::handle::Handle;
use crate::handle::qp::QpHandle;
use crate::rdmacm::channel::complete;
use crate::rdmacm::id::IdHandle;
use crate::socket_address;
use crate::sync::lock;

/// A multicast group that an id has joined or is joining.
pub(super) struct Membership {
    address: SocketAddr,
    gid: Gid,
    /// The program's context pointer.
    context: usize,
    sends_only: bool,
    joined: bool,
    events: Arc<Unacknowledged>,
}

/// The QP of an id, if it has one.
fn queue_pair_of(handle: &IdHandle) -> Option<&QpHandle> {
    // SAFETY: the program's queue pair, or null.
    unsafe { QpHandle::of(handle.fields().qp.cast()) }.ok()
}

/// Completes a join: attaches the id's QP unless it only sends. Returns the program's context pointer, the counter of
/// unacknowledged events, and the result.
pub(super) fn joined(
    handle: &IdHandle,
    gid: Gid,
) -> Option<(usize, Arc<Unacknowledged>, Result<()>)> {
    let mut details = lock(&handle.details);
    let found = details.groups.iter_mut().find(|one| one.gid == gid && !one.joined)?;
    found.joined = true;
    found.events.add();
    let (context, events, sends_only) =
        (found.context, Arc::clone(&found.events), found.sends_only);
    drop(details);
    let attached = match queue_pair_of(handle) {
        Some(queue_pair) if !sends_only => queue_pair.queue_pair.attach(gid),
        _ => Ok(()),
    };
    Some((context, events, attached.map_err(Errno::from)))
}

/// # Safety
/// The program's id and address.
unsafe fn join(
    id: *mut rdma_cm_id,
    address: *const sockaddr,
    context: *mut c_void,
    sends_only: bool,
) -> Result<()> {
    // SAFETY: as the caller promises.
    let (handle, address) = unsafe { (IdHandle::of(id)?, socket_address::read(address)?) };
    let gid = Gid::from_ip(address.ip());
    let membership = Membership {
        address,
        gid,
        context: context.expose_provenance(),
        sends_only,
        joined: false,
        events: Arc::default(),
    };
    lock(&handle.details).groups.push(membership);
    if let Err(error) = handle.id.join_multicast(address.ip()) {
        let groups = &mut lock(&handle.details).groups;
        groups.pop();
        return Err(error.into());
    }
    // SAFETY: as the caller promises.
    unsafe { complete(id) }
}

pub(crate) unsafe extern "C" fn join_multicast(
    id: *mut rdma_cm_id,
    address: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program's id and address.
    entry::count(|| unsafe { join(id, address, context, false) }.map(|()| 0))
}

pub(crate) unsafe extern "C" fn join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    const ADDRESS_AND_FLAGS: u32 = 3;
    const SENDS_ONLY: u32 = 1;
    entry::count(|| {
        // SAFETY: the program's structure.
        let attr = unsafe { entry::read(attr) }?;
        if attr.comp_mask > ADDRESS_AND_FLAGS {
            return Err(Errno::UNSUPPORTED);
        }
        if attr.comp_mask != ADDRESS_AND_FLAGS || attr.join_flags > SENDS_ONLY {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program's id and address.
        unsafe { join(id, attr.addr, context, attr.join_flags == SENDS_ONLY) }?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn leave_multicast(
    id: *mut rdma_cm_id,
    address: *mut sockaddr,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id and address.
        let (handle, address) = unsafe { (IdHandle::of(id)?, socket_address::read(address)?) };
        let found = {
            let groups = &mut lock(&handle.details).groups;
            let index = groups.iter().position(|one| one.address == address);
            index.map(|index| groups.remove(index))
        };
        let found = found.ok_or(Errno(libc::EADDRNOTAVAIL))?;
        if let (Some(queue_pair), false) = (queue_pair_of(handle), found.sends_only) {
            queue_pair.queue_pair.detach(found.gid);
        }
        handle.id.leave_multicast(address.ip());
        // rdma_leave_multicast(3) waits until the events of the group are acknowledged.
        found.events.wait();
        Ok(0)
    })
}
