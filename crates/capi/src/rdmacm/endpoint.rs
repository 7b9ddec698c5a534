//! Ids that are made, resolved and given a queue pair in one call.

use std::ffi::c_int;

use crate::abi::attributes::ibv_qp_init_attr;
use crate::abi::objects::ibv_pd;
use crate::abi::rdmacm::{rai, rdma_addrinfo, rdma_cm_id};
use crate::entry::{self, Errno, Result};
use crate::handle::Handle;
use crate::rdmacm::channel::complete;
use crate::rdmacm::id::{self, IdHandle, destroy_id};
use crate::rdmacm::resolve::{bind_addr, resolve_addr, resolve_route};
use crate::rdmacm::{path, queue_pair};
use crate::sync::lock;

/// How long resolving may take, in milliseconds.
const TIMEOUT: c_int = 2000;

/// The result of a call that returns −1 with `errno`.
fn done(result: c_int) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// # Safety
/// All are the program's; the PD and the attributes may be null.
unsafe fn fill(
    id: *mut rdma_cm_id,
    about: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<()> {
    // SAFETY: just created.
    let handle = unsafe { IdHandle::of(id) }?;
    // SAFETY: as the caller promises.
    let attr = unsafe { attr.as_mut() };
    if about.ai_flags & rai::PASSIVE != 0 {
        // SAFETY: as the caller promises.
        done(unsafe { bind_addr(id, about.ai_src_addr) })?;
        if !pd.is_null() {
            handle.shown.change(|shown| shown.pd = pd);
        }
        // QPs are created for the requests: rdma_get_request(3).
        lock(&handle.details).template =
            attr.map(|attr| ibv_qp_init_attr { qp_type: about.ai_qp_type as u32, ..*attr });
        return Ok(());
    }
    // SAFETY: as the caller promises.
    unsafe {
        done(resolve_addr(id, about.ai_src_addr, about.ai_dst_addr, TIMEOUT))?;
        if about.ai_route_len > 0 {
            path::set(handle, about.ai_route, about.ai_route_len)?;
            complete(id)?;
        } else {
            done(resolve_route(id, TIMEOUT))?;
        }
    }
    if let Some(attr) = attr {
        attr.qp_type = about.ai_qp_type as u32;
        // SAFETY: as the caller promises.
        unsafe { queue_pair::create(id, pd, attr) }?;
    }
    // SAFETY: as the caller promises.
    let data = unsafe { entry::list(about.ai_connect.cast::<u8>(), about.ai_connect_len) }?;
    lock(&handle.details).connect_data = data.to_vec();
    Ok(())
}

pub(crate) unsafe extern "C" fn create_ep(
    out: *mut *mut rdma_cm_id,
    about: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's structure and pointer.
        let (about, out) = unsafe { (entry::read(about)?, entry::write(out)?) };
        let (ps, kind) = (about.ai_port_space as u32, about.ai_qp_type as u32);
        // SAFETY: without a channel, it gets one of its own.
        let id = unsafe { id::create(std::ptr::null_mut(), std::ptr::null_mut(), ps, kind) }?;
        // SAFETY: the program's, and the new id.
        if let Err(error) = unsafe { fill(id, about, pd, attr) } {
            // SAFETY: the program does not have it.
            unsafe { destroy_ep(id) };
            return Err(error);
        }
        *out = id;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn destroy_ep(id: *mut rdma_cm_id) {
    entry::nothing(|| {
        // SAFETY: the program's id.
        let now = unsafe { IdHandle::of(id) }?.fields();
        // SAFETY: the program's id, which is not used again.
        unsafe {
            if !now.qp.is_null() {
                queue_pair::destroy_qp(id);
            }
            if !now.srq.is_null() {
                queue_pair::destroy_srq(id);
            }
            destroy_id(id);
        }
        Ok(())
    });
}
