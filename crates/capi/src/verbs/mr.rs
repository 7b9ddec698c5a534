//! Memory regions.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use ferroce::{AccessFlags, AddressRange, Change, DeregisterFailure, MemoryRegion, VirtualAddress};

use crate::abi::objects::{ibv_mr, ibv_pd};
use crate::abi::work::ibv_sge;
use crate::entry::{self, Errno, Result};
use crate::handle::context::{ContextHandle, OpenDevice};
use crate::handle::objects::SharedRegion;
use crate::handle::pd::PdHandle;
use crate::handle::{Handle, Shown, handle};
use crate::reason::invalid;
use crate::sync::lock;

#[repr(C)]
pub(crate) struct MrHandle {
    shown: Shown<ibv_mr>,
    region: SharedRegion,
    open: Arc<OpenDevice>,
}

handle!(MrHandle, shown, ibv_mr);

/// Allocates the handle of an MR for the program.
///
/// # Safety
/// The PD is the program's.
pub(crate) unsafe fn give(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    region: MemoryRegion,
) -> Result<*mut ibv_mr> {
    // SAFETY: as the caller promises.
    let context = unsafe { (*pd).context };
    // SAFETY: the context of the PD.
    let open = Arc::clone(&unsafe { ContextHandle::of(context) }?.open);
    let (lkey, rkey) = (region.lkey().0, region.rkey().0);
    let region = Arc::new(Mutex::new(Some(region)));
    let handle = lock(&open.objects).add_region(&region);
    let shown = Shown::new(ibv_mr { context, pd, addr, length, handle, lkey, rkey });
    Ok(MrHandle { shown, region, open }.give())
}

/// The program's memory as an address range.
fn range(addr: *mut c_void, length: usize, access: AccessFlags) -> AddressRange {
    // MRs hold addresses, not pointers.
    let address = addr.expose_provenance();
    if address == 0 && length == usize::MAX && access.contains(AccessFlags::ON_DEMAND) {
        // SAFETY: as below.
        return unsafe { AddressRange::everything() };
    }
    // SAFETY: by registering memory, the program promises to keep it until it is deregistered, and that peers may write
    // to it.
    unsafe { AddressRange::new(address, length) }
}

pub(crate) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    entry::pointer(|| {
        // SAFETY: the program's PD.
        let domain = &unsafe { PdHandle::of(pd) }?.domain;
        let access = AccessFlags::from_bits_retain(access);
        let region = domain.register(range(addr, length, access), VirtualAddress(iova), access)?;
        // SAFETY: as above.
        unsafe { give(pd, addr, length, region) }
    })
}

pub(crate) unsafe extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program's arguments.
    unsafe { reg_mr_iova2(pd, addr, length, iova, access as c_uint) }
}

pub(crate) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program's arguments.
    unsafe { reg_mr_iova2(pd, addr, length, addr.addr() as u64, access as c_uint) }
}

pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    entry::pointer(|| {
        // SAFETY: the program's PD.
        let region = unsafe { PdHandle::of(pd) }?.domain.null_region()?;
        // SAFETY: as above.
        unsafe { give(pd, ptr::null_mut(), usize::MAX, region) }
    })
}

pub(crate) unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    entry::number(|| {
        // SAFETY: the program's region.
        let handle = unsafe { MrHandle::of(mr) }?;
        let mut place = lock(&handle.region);
        if let Some(region) = place.take() {
            if let Err(DeregisterFailure { region, error, .. }) = region.deregister() {
                *place = Some(region);
                return Err(error.into());
            }
        }
        drop(place);
        // SAFETY: as above.
        lock(&handle.open.objects).remove_region(unsafe { (*mr).handle });
        // SAFETY: as above, and it is not used again.
        drop(unsafe { MrHandle::take(mr) });
        Ok(())
    })
}

/// The result of `ibv_rereg_mr` if the MR is unchanged.
const ERR_INPUT: c_int = -1;
const CHANGE_TRANSLATION: c_int = 1;
const CHANGE_PD: c_int = 1 << 1;
const CHANGE_ACCESS: c_int = 1 << 2;

pub(crate) unsafe extern "C" fn rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let result = entry::run(|| {
        if flags & !(CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS) != 0 || flags == 0 {
            return Err(invalid(format_args!(
                "flags {flags:#x}: 1, 2 and 4 are known, and one is needed"
            )));
        }
        // SAFETY: the program's region.
        let handle = unsafe { MrHandle::of(mr) }?;
        let translates = flags & CHANGE_TRANSLATION != 0;
        if translates && (addr.is_null() || length == 0) {
            return Err(invalid(format_args!("IBV_REREG_MR_CHANGE_TRANSLATION without memory")));
        }
        let rights =
            (flags & CHANGE_ACCESS != 0).then_some(AccessFlags::from_bits_retain(access as u32));
        let place = range(addr, length, rights.unwrap_or_default());
        let translation = translates.then_some((place, VirtualAddress(addr.addr() as u64)));
        let change = Change { pd: None, translation, access: rights };
        let mut region = lock(&handle.region);
        let region = region.as_mut().ok_or(Errno::INVALID)?;
        if flags & CHANGE_PD != 0 {
            // SAFETY: the program's PD.
            region.change_pd(&unsafe { PdHandle::of(pd) }?.domain, change)?;
        } else {
            region.change(change)?;
        }
        handle.shown.change(|shown| {
            if flags & CHANGE_PD != 0 {
                shown.pd = pd;
            }
            if translates {
                (shown.addr, shown.length) = (addr, length);
            }
        });
        Ok(())
    });
    match result {
        Ok(()) => 0,
        Err(error) => {
            error.set();
            ERR_INPUT
        }
    }
}

/// Has no effect: the kernel pages memory in when it is used.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_uint,
    flags: u32,
    list: *mut ibv_sge,
    length: u32,
) -> c_int {
    /// Prefetch for reading, for writing, and without faults.
    const ADVICE: std::ops::RangeInclusive<u32> = 0..=2;
    entry::number(|| {
        // SAFETY: the program's PD.
        unsafe { PdHandle::of(pd) }?;
        if !ADVICE.contains(&advice) || flags & !1 != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        // SAFETY: the program's list.
        let list = unsafe { entry::list(list, length as usize) }?;
        match list.is_empty() {
            true => Err(invalid(format_args!("an empty SG list"))),
            false => Ok(()),
        }
    })
}

/// The address of an imported MR is null (ibv_import_mr(3)).
pub(crate) unsafe extern "C" fn import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    entry::pointer(|| {
        // SAFETY: the program's PD.
        let context = unsafe { entry::read(pd) }?.context;
        // SAFETY: the context of the PD.
        let open = Arc::clone(&unsafe { ContextHandle::of(context) }?.open);
        let region = lock(&open.objects).region(handle)?;
        let about = lock(&region).as_ref().map(|it| (it.lkey().0, it.rkey().0, it.len()));
        let (lkey, rkey, length) = about.ok_or(Errno::INVALID)?;
        let (addr, length) = (ptr::null_mut(), length as usize);
        let shown = Shown::new(ibv_mr { context, pd, addr, length, handle, lkey, rkey });
        Ok(MrHandle { shown, region, open }.give())
    })
}

/// Frees this handle only.
pub(crate) unsafe extern "C" fn unimport_mr(mr: *mut ibv_mr) {
    entry::nothing(|| {
        // SAFETY: the program's region.
        unsafe { MrHandle::of(mr) }?;
        // SAFETY: as above, and it is not used again.
        drop(unsafe { MrHandle::take(mr) });
        Ok(())
    });
}

/// The L_Key of an MR.
///
/// # Safety
/// The pointer is the program's region, or null.
pub(crate) unsafe fn key_of(mr: *mut ibv_mr) -> Result<ferroce::LKey> {
    // SAFETY: as the caller promises.
    Ok(ferroce::LKey(unsafe { entry::read(mr) }?.lkey))
}
