//! The one context of each device that all ids of a process share, with a protection domain and an XRC domain: they are
//! made when first needed, and stay.

use std::ffi::c_int;
use std::sync::Mutex;

use ferroce::Device;

use crate::abi::attributes::ibv_xrcd_init_attr;
use crate::abi::context::ibv_context;
use crate::abi::device::ibv_device;
use crate::abi::objects::{ibv_pd, ibv_xrcd};
use crate::context::{ContextHandle, lock, open_device};
use crate::device;
use crate::entry::{self, Errno, Result};
use crate::pd::alloc_pd;
use crate::rdmacm::made;
use crate::xrc::open_xrcd;

/// A device that is open for ids. Pointers that never lead nowhere, because nothing of this is ever closed.
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

/// The device, opened for ids.
pub(super) fn open(device: &Device) -> Result<Opened> {
    let process = std::process::id();
    let mut opened = lock(&OPENED);
    // By its name, for programs compare the contexts of ids: a device that has got an address since is the same one.
    let is_it = |one: &Opened| {
        // SAFETY: a device of the list, which stays.
        let known = unsafe { device::device_of(one.device) };
        known.is_ok_and(|known| known.name() == device.name())
    };
    // What a parent had open is the parent's.
    if let Some(found) = opened.iter().find(|one| one.process == process && is_it(one)) {
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

/// The XRC domain of the device that is open by this context.
pub(super) fn xrc_domain(verbs: *mut ibv_context) -> Result<*mut ibv_xrcd> {
    let mut opened = lock(&OPENED);
    let one = opened.iter_mut().find(|one| one.verbs == verbs).ok_or(Errno::INVALID)?;
    if one.xrcd.is_null() {
        let mut attr = ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT };
        // SAFETY: a context of ours, and a structure of ours.
        one.xrcd = made(unsafe { open_xrcd(verbs, &raw mut attr) })?;
    }
    Ok(one.xrcd)
}

/// This thread goes to sleep: packets are left to the devices' own threads.
pub(super) fn rest() {
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
        // One that cannot be opened is not among them.
        let found: Vec<_> =
            ferroce::devices()?.iter().filter_map(|device| open(device).ok()).collect();
        // SAFETY: the call takes no pointers; its memory is all zeroes, which ends the list.
        let list = unsafe { libc::calloc(found.len() + 1, size_of::<*mut ibv_context>()) };
        let list = list.cast::<*mut ibv_context>();
        if list.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        for (index, one) in found.iter().enumerate() {
            // SAFETY: there is room for all of them.
            unsafe { *list.add(index) = one.verbs };
        }
        // SAFETY: null, or where the program wants it.
        if let Some(number) = unsafe { number.as_mut() } {
            *number = found.len() as c_int;
        }
        Ok(list)
    })
}

pub(crate) unsafe extern "C" fn free_devices(list: *mut *mut ibv_context) {
    // SAFETY: it is of `calloc`, or null.
    unsafe { libc::free(list.cast()) };
}
