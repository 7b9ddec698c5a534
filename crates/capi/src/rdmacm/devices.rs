//! The context of each device that all ids of a process share, with a PD and an XRC domain: created when first needed,
//! and never closed.

use std::ffi::c_int;
use std::sync::Mutex;

use ferroce::Device;

use crate::abi::attributes::ibv_xrcd_init_attr;
use crate::abi::context::ibv_context;
use crate::abi::device::ibv_device;
use crate::abi::objects::{ibv_pd, ibv_xrcd};
use crate::entry::{self, Errno, Result};
use crate::handle::context::ContextHandle;
use crate::rdmacm::made;
use crate::sync::lock;
use crate::verbs::context::open_device;
use crate::verbs::device;
use crate::verbs::pd::alloc_pd;
use crate::verbs::xrc::open_xrcd;

/// A device that is open for ids. The pointers never dangle: these objects are never closed.
#[derive(Clone, Copy)]
pub(super) struct Opened {
    process: u32,
    device: *mut ibv_device,
    pub(super) verbs: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    xrcd: *mut ibv_xrcd,
}

// SAFETY: the objects behind these pointers may be used by any thread.
unsafe impl Send for Opened {}

static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

/// Opens a device for ids.
pub(super) fn open(device: &Device) -> Result<Opened> {
    let process = std::process::id();
    let mut opened = lock(&OPENED);
    // Devices are compared by name: programs compare the contexts of ids, and a device that got an address is the same
    // one.
    let is_same = |one: &Opened| {
        // SAFETY: a device of the list, which stays.
        let known = unsafe { device::device_of(one.device) };
        known.is_ok_and(|known| known.name() == device.name())
    };
    // A forked child opens devices of its own.
    if let Some(found) = opened.iter().find(|one| one.process == process && is_same(one)) {
        return Ok(*found);
    }
    let device = device::pointer_of(device);
    // SAFETY: a device of the list, which stays.
    let verbs = made(unsafe { open_device(device) })?;
    // SAFETY: it was just opened.
    let pd = made(unsafe { alloc_pd(verbs) })?;
    let one = Opened { process, device, verbs, pd, xrcd: std::ptr::null_mut() };
    opened.push(one);
    Ok(one)
}

/// The XRC domain of the device with this context.
pub(super) fn xrc_domain(verbs: *mut ibv_context) -> Result<*mut ibv_xrcd> {
    let mut opened = lock(&OPENED);
    let one = opened.iter_mut().find(|one| one.verbs == verbs).ok_or(Errno::INVALID)?;
    if one.xrcd.is_null() {
        let mut attr = ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT };
        // SAFETY: a shared context, and a local structure.
        one.xrcd = made(unsafe { open_xrcd(verbs, &raw mut attr) })?;
    }
    Ok(one.xrcd)
}

/// Leaves packet processing to the device threads: the calling thread is about to block.
pub(super) fn stop_polling() {
    let process = std::process::id();
    for one in lock(&OPENED).iter().filter(|one| one.process == process) {
        // SAFETY: it is never closed.
        if let Ok(context) = unsafe { ContextHandle::of(one.verbs) } {
            context.open.context.stop_polling();
        }
    }
}

pub(crate) unsafe extern "C" fn get_devices(number: *mut c_int) -> *mut *mut ibv_context {
    entry::pointer(|| {
        // Devices that cannot be opened are left out.
        let found: Vec<_> =
            ferroce::devices()?.iter().filter_map(|device| open(device).ok()).collect();
        // SAFETY: the call takes no pointers; the memory is zeroed, which terminates the list.
        let list = unsafe { libc::calloc(found.len() + 1, size_of::<*mut ibv_context>()) };
        let list = list.cast::<*mut ibv_context>();
        if list.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        for (index, one) in found.iter().enumerate() {
            // SAFETY: within the allocated list.
            unsafe { *list.add(index) = one.verbs };
        }
        // SAFETY: the program's pointer, or null.
        if let Some(number) = unsafe { number.as_mut() } {
            *number = found.len() as c_int;
        }
        Ok(list)
    })
}

pub(crate) unsafe extern "C" fn free_devices(list: *mut *mut ibv_context) {
    // SAFETY: allocated by `calloc`, or null.
    unsafe { libc::free(list.cast()) };
}
