//! Protection domains, thread domains and parent domains.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce::ProtectionDomain;

use crate::abi::attributes::ibv_parent_domain_init_attr;
use crate::abi::context::ibv_context;
use crate::abi::objects::{ibv_pd, ibv_td};
use crate::context::{ContextHandle, Open, lock};
use crate::entry::{self, Errno, Result};
use crate::handle::{Handle, Shown, handle};

#[repr(C)]
pub(crate) struct PdHandle {
    shown: Shown<ibv_pd>,
    pub(crate) domain: ProtectionDomain,
    /// It is another name for a domain, which does not end with it.
    parent: bool,
    open: Arc<Open>,
}

handle!(PdHandle, shown, ibv_pd);

#[repr(C)]
pub(crate) struct ThreadDomain {
    shown: Shown<ibv_td>,
}

handle!(ThreadDomain, shown, ibv_td);

/// Gives a domain to the program.
///
/// # Safety
/// The context is the program's.
unsafe fn give(
    context: *mut ibv_context,
    domain: ProtectionDomain,
    number: Option<u32>,
    parent: bool,
) -> Result<*mut ibv_pd> {
    // SAFETY: as the caller says.
    let open = Arc::clone(&unsafe { ContextHandle::of(context) }?.open);
    let handle = number.unwrap_or_else(|| lock(&open.objects).add_pd(&domain));
    let shown = Shown::new(ibv_pd { context, handle });
    Ok(PdHandle { shown, domain, parent, open }.give())
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
        // SAFETY: the program's domain.
        let handle = unsafe { PdHandle::of(pd) }?;
        if !handle.parent && handle.domain.users() > 0 {
            return Err(Errno::BUSY);
        }
        // SAFETY: as above.
        lock(&handle.open.objects).remove_pd(unsafe { (*pd).handle });
        // SAFETY: as above, and it is not used again.
        drop(unsafe { PdHandle::take(pd) });
        Ok(())
    })
}

/// Our locks are cheap when one thread alone takes them: a thread domain changes nothing.
pub(crate) unsafe extern "C" fn alloc_td(context: *mut ibv_context, attr: *mut u32) -> *mut ibv_td {
    entry::pointer(|| {
        // SAFETY: the program's structure, which starts with the mask of extensions, of which there are none.
        if *unsafe { entry::read(attr) }? != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        Ok(ThreadDomain { shown: Shown::new(ibv_td { context }) }.give())
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    entry::number(|| {
        // SAFETY: the program's thread domain.
        unsafe { ThreadDomain::of(td) }?;
        // SAFETY: as above, and it is not used again.
        drop(unsafe { ThreadDomain::take(td) });
        Ok(())
    })
}

/// A parent domain is the domain that it is made of. Its allocators are not asked: our queues are no buffers that
/// hardware would have to reach.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    /// Allocators, their context, and leave to allocate memory that a confidential guest shares with its host.
    const KNOWN: u32 = 7;
    entry::pointer(|| {
        // SAFETY: the program's structure.
        let attr = unsafe { entry::read(attr) }?;
        if attr.comp_mask & !KNOWN != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program's domain.
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

/// Only this handle ends.
pub(crate) unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) {
    entry::nothing(|| {
        // SAFETY: the program's domain.
        unsafe { PdHandle::of(pd) }?;
        // SAFETY: as above, and it is not used again.
        drop(unsafe { PdHandle::take(pd) });
        Ok(())
    });
}
