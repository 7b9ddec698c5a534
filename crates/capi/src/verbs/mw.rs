//! Memory windows.

use std::ffi::c_int;

use ferroce::{
    AccessFlags, Data, MemoryWindow, Operation, RKey, SendRequest, VirtualAddress, WindowKind,
    WorkId,
};

use crate::abi::constants::send;
use crate::abi::objects::{ibv_mw, ibv_pd, ibv_qp};
use crate::abi::work::{ibv_mw_bind, ibv_mw_bind_info};
use crate::entry::{self, Result};
use crate::handle::pd::PdHandle;
use crate::handle::qp::QpHandle;
use crate::handle::{Handle, Shown, handle};
use crate::reason::invalid;
use crate::verbs::mr::key_of;

#[repr(C)]
pub(crate) struct MwHandle {
    shown: Shown<ibv_mw>,
    window: MemoryWindow,
}

handle!(MwHandle, shown, ibv_mw);

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    entry::pointer(|| {
        // SAFETY: the program's PD.
        let domain = &unsafe { PdHandle::of(pd) }?.domain;
        let window = domain.window(match kind {
            1 => WindowKind::Type1,
            2 => WindowKind::Type2,
            unknown => {
                return Err(invalid(format_args!("memory window type {unknown}: 1 and 2 exist")));
            }
        })?;
        // SAFETY: as above.
        let context = unsafe { (*pd).context };
        let shown = ibv_mw { context, pd, rkey: window.key().0, handle: 0, kind };
        Ok(MwHandle { shown: Shown::new(shown), window }.give())
    })
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    entry::number(|| {
        // SAFETY: the program's window.
        unsafe { MwHandle::of(mw) }?;
        // SAFETY: as above, and it is not used again.
        drop(unsafe { MwHandle::take(mw) });
        Ok(())
    })
}

/// The operation that binds an MW with this R_Key.
///
/// # Safety
/// MW and MR are the program's.
pub(crate) unsafe fn bind(mw: *mut ibv_mw, key: u32, info: &ibv_mw_bind_info) -> Result<Operation> {
    // SAFETY: as the caller promises.
    let handle = unsafe { MwHandle::of(mw) }?;
    let region = if info.length == 0 && info.mr.is_null() {
        ferroce::LKey(0)
    } else {
        // SAFETY: as the caller promises.
        unsafe { key_of(info.mr) }?
    };
    // An MW grants remote access only; local access is the MR's, but programs pass the flag here, too.
    let access =
        AccessFlags::from_bits_retain(info.mw_access_flags).difference(AccessFlags::LOCAL_WRITE);
    let address = VirtualAddress(info.addr);
    let operation = handle.window.bind_as(RKey(key), region, address, info.length, access);
    handle.shown.change(|shown| shown.rkey = key);
    Ok(operation)
}

/// Binds a type 1 MW by a WR.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    what: *mut ibv_mw_bind,
) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue pair, window and structure.
        let (qp, handle, what) =
            unsafe { (QpHandle::of(qp.cast())?, MwHandle::of(mw)?, entry::read(what)?) };
        let old = handle.window.key().0;
        // IBA 10.6.7.2.1: the tag changes, so that the old key is refused.
        let key = old & !0xff | (old.wrapping_add(1) & 0xff);
        // SAFETY: as above.
        let operation = unsafe { bind(mw, key, &what.bind_info) }?;
        let request = SendRequest {
            signaled: what.send_flags & send::SIGNALED != 0,
            fence: what.send_flags & send::FENCE != 0,
            ..SendRequest::new(WorkId(what.wr_id), operation, Data::NONE)
        };
        Ok(qp.queue_pair.post_send(request)?)
    })
}
