//! Opening devices, and the function tables of a context.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use ferroce::{Context, Options};

use crate::abi::Abi;
use crate::abi::context::{ibv_context, ibv_context_ops, verbs_context};
use crate::abi::device::ibv_device;
use crate::calls;
use crate::entry::{self, Result};
use crate::fd::make_blocking;
use crate::handle::Shown;
use crate::handle::context::{ContextHandle, OpenDevice};
use crate::verbs::device::device_of;
use crate::verbs::{cq, cq_ex, dm, import, mr, mw, pd, post, qp, query, srq, xrc};

fn operations() -> ibv_context_ops {
    ibv_context_ops {
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(mw::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        post_srq_recv: Some(srq::post_srq_recv),
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        ..Abi::zeroed()
    }
}

fn table(device: *mut ibv_device, context: &Context, cmd_fd: c_int) -> Result<verbs_context> {
    let async_fd = make_blocking(context.event_fd())?;
    Ok(verbs_context {
        query_port: Some(query::query_port_sized),
        advise_mr: Some(mr::advise_mr),
        alloc_null_mr: Some(mr::alloc_null_mr),
        reg_dm_mr: Some(dm::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        dealloc_td: Some(pd::dealloc_td),
        alloc_td: Some(pd::alloc_td),
        query_rt_values: Some(query::query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        query_device_ex: Some(query::query_device_ex),
        open_qp: Some(qp::open_qp),
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        sz: size_of::<verbs_context>(),
        context: ibv_context {
            device,
            ops: operations(),
            cmd_fd,
            async_fd,
            num_comp_vectors: cq::vectors() as c_int,
            // Marks a context with the extended table in front of it.
            abi_compat: usize::MAX as *mut c_void,
            ..Abi::zeroed()
        },
        ..Abi::zeroed()
    })
}

pub(crate) unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    entry::pointer(|| {
        // SAFETY: the program's device, or null.
        let which = unsafe { device_of(device) }?;
        let context = Context::open(which, &Options::from_env()?).inspect_err(|error| {
            // `errno` cannot carry the remedy.
            eprintln!("ferroce: {}: {error}", which.name());
        })?;
        let commands = import::descriptor()?;
        let open = Arc::new(OpenDevice::new(context, device.expose_provenance()));
        import::register(&commands, &open)?;
        give(open, commands)
    })
}

/// Allocates the handle of an open device for the program.
fn give(open: Arc<OpenDevice>, commands: OwnedFd) -> Result<*mut ibv_context> {
    let device = ptr::with_exposed_provenance_mut(open.device);
    let mut table = table(device, &open.context, commands.as_raw_fd())?;
    calls::context(&mut table);
    let shown = Shown::new(table);
    let handle = Box::into_raw(Box::new(ContextHandle { shown, open, commands }));
    // SAFETY: the handle is new, and its first field is the table.
    Ok(unsafe { &raw mut (*handle.cast::<verbs_context>()).context })
}

pub(crate) unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    entry::count(|| {
        // SAFETY: the program's context, which it does not use again.
        let handle = unsafe { ContextHandle::of(context) }?;
        // SAFETY: it was allocated as a box.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(handle).cast_mut()) });
        Ok(0)
    })
}

/// Takes ownership of the descriptor: closing the context closes it (ibv_import_device(3)). If the call fails, the
/// program keeps it.
pub(crate) unsafe extern "C" fn import_device(cmd_fd: c_int) -> *mut ibv_context {
    entry::pointer(|| {
        let open = import::find(cmd_fd)?;
        // SAFETY: the program passes its ownership.
        give(open, unsafe { OwnedFd::from_raw_fd(cmd_fd) })
    })
}
