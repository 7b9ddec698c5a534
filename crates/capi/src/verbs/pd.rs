//! Protection domains, thread domains and parent domains.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce::ProtectionDomain;

use crate::abi::attributes::ibv_parent_domain_init_attr;
use crate::abi::context::ibv_context;
use crate::abi::objects::{ibv_pd, ibv_td};
use crate::entry::{self, Errno, Result};
use crate::handle::context::ContextHandle;
use crate::handle::pd::PdHandle;
use crate::handle::{Handle, Shown, handle};
use crate::sync::lock;

#[repr(C)]
pub(crate) struct TdHandle {
    shown: Shown<ibv_td>,
}

handle!(TdHandle, shown, ibv_td);

/// Allocates the handle of a PD for the program.
///
/// # Safety
/// The context is the program's.
unsafe fn give(
    context: *mut ibv_context,
    domain: ProtectionDomain,
    number: Option<u32>,
    is_parent: bool,
) -> Result<*mut ibv_pd> {
    // SAFETY: as the caller promises.
    let open = Arc::clone(&unsafe { ContextHandle::of(context) }?.open);
    let handle = number.unwrap_or_else(|| lock(&open.objects).add_pd(&domain));
    let shown = Shown::new(ibv_pd { context, handle });
    Ok(PdHandle { shown, domain, is_parent, open }.give())
}

pub(crate) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    entry::pointer(|| {
        // SAFETY: the program's context.
        let domain = unsafe { ContextHandle::of(context) }?.open.context.protection_domain();
        // SAFETY: as above.
        unsafe { give(context, domain, None, false) }
    })
}

pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    entry::number(|| {
        // SAFETY: the program's PD.
        let handle = unsafe { PdHandle::of(pd) }?;
        if !handle.is_parent && handle.domain.users() > 0 {
            return Err(Errno::BUSY);
        }
        // SAFETY: as above.
        lock(&handle.open.objects).remove_pd(unsafe { (*pd).handle });
        // SAFETY: as above, and it is not used again.
        drop(unsafe { PdHandle::take(pd) });
        Ok(())
    })
}

/// A thread domain has no effect: uncontended locks are cheap.
pub(crate) unsafe extern "C" fn alloc_td(context: *mut ibv_context, attr: *mut u32) -> *mut ibv_td {
    entry::pointer(|| {
        // SAFETY: the program's structure, which starts with the mask of extensions, of which there are none.
        if *unsafe { entry::read(attr) }? != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        Ok(TdHandle { shown: Shown::new(ibv_td { context }) }.give())
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    entry::number(|| {
        // SAFETY: the program's thread domain.
        unsafe { TdHandle::of(td) }?;
        // SAFETY: as above, and it is not used again.
        drop(unsafe { TdHandle::take(td) });
        Ok(())
    })
}

/// A parent domain is an alias of its PD. Its allocators are not called: queues are not accessed by hardware.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    /// Allocators, their context, and permission to allocate memory that a confidential guest shares with its host.
    const KNOWN: u32 = 7;
    entry::pointer(|| {
        // SAFETY: the program's structure.
        let attr = unsafe { entry::read(attr) }?;
        if attr.comp_mask & !KNOWN != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program's PD.
        let domain = unsafe { PdHandle::of(attr.pd) }?.domain.clone();
        // SAFETY: the program's context.
        unsafe { give(context, domain, None, true) }
    })
}

pub(crate) unsafe extern "C" fn import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    entry::pointer(|| {
        // SAFETY: the program's context.
        let domain = lock(&unsafe { ContextHandle::of(context) }?.open.objects).domain(handle)?;
        // SAFETY: as above.
        unsafe { give(context, domain, Some(handle), false) }
    })
}

/// Frees this handle only.
pub(crate) unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) {
    entry::nothing(|| {
        // SAFETY: the program's PD.
        unsafe { PdHandle::of(pd) }?;
        // SAFETY: as above, and it is not used again.
        drop(unsafe { PdHandle::take(pd) });
        Ok(())
    });
}
