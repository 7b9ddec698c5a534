//! The device list.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use ferroce::Device;

use crate::abi::Abi;
use crate::abi::device::ibv_device;
use crate::convert::text;
use crate::entry::{self, Errno, Result};
use crate::handle::{Handle, Shown, handle};

#[repr(C)]
pub(crate) struct DeviceHandle {
    shown: Shown<ibv_device>,
    /// Vendor libraries look for their driver's mark here, and must find none.
    drivers: [usize; 32],
    pub(crate) device: Device,
}

handle!(DeviceHandle, shown, ibv_device);

/// All devices that were ever listed. They are never freed, so that a device has the same pointer in every list, and a
/// program's pointer to one never dangles.
static KNOWN: Mutex<Vec<&'static DeviceHandle>> = Mutex::new(Vec::new());

fn known(device: Device) -> &'static DeviceHandle {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.iter().find(|one| one.device == device) {
        return found;
    }
    let uverbs = format!("uverbs{}", known.len());
    let shown = ibv_device {
        node_type: 1,
        transport_type: 0,
        name: text(device.name()),
        dev_path: text(&format!("/sys/class/infiniband_verbs/{uverbs}")),
        ibdev_path: text(&format!("/sys/class/infiniband/{}", device.name())),
        dev_name: text(&uverbs),
        ..Abi::zeroed()
    };
    let handle = DeviceHandle { shown: Shown::new(shown), drivers: [0; 32], device };
    debug_assert!(handle.drivers.iter().all(|&word| word == 0));
    let handle = Box::leak(Box::new(handle));
    known.push(handle);
    handle
}

pub(crate) unsafe extern "C" fn get_device_list(number: *mut c_int) -> *mut *mut ibv_device {
    entry::pointer(|| {
        let devices = ferroce::devices()?;
        // SAFETY: the call takes no pointers; the memory is zeroed, which terminates the list.
        let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) };
        let list = list.cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        // SAFETY: the program's pointer, or null.
        if let Some(number) = unsafe { number.as_mut() } {
            *number = devices.len() as c_int;
        }
        for (index, device) in devices.into_iter().enumerate() {
            // SAFETY: within the allocated list.
            unsafe { *list.add(index) = known(device).shown.pointer() };
        }
        Ok(list)
    })
}

pub(crate) unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: allocated by `calloc`, or null.
    unsafe { libc::free(list.cast()) };
}

pub(crate) unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the program's device, or null.
    let name = unsafe { device.as_ref() }.map(|device| device.name.as_ptr());
    name.unwrap_or(ptr::null())
}

pub(crate) unsafe extern "C" fn get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the program's device, or null.
    entry::run(|| Ok(unsafe { DeviceHandle::of(device) }?.device.guid().to_be())).unwrap_or(0)
}

/// Returns -1: the index is the kernel's number of an RDMA device, and the kernel has none of ours. Programs such as UCX
/// ask the kernel about any other value over netlink.
pub(crate) unsafe extern "C" fn get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}

pub(crate) unsafe extern "C" fn get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads the start of a file, without the final newline. Ferroce's devices have no files there unless `view` is
/// preloaded.
pub(crate) unsafe extern "C" fn read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    out: *mut c_char,
    size: usize,
) -> c_int {
    entry::run(|| {
        if directory.is_null() || file.is_null() || out.is_null() || size == 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program's strings.
        let (directory, file) = unsafe { (CStr::from_ptr(directory), CStr::from_ptr(file)) };
        let path = format!("{}/{}", directory.to_string_lossy(), file.to_string_lossy());
        let text = std::fs::read(path).map_err(|_| Errno(libc::ENOENT))?;
        let length = text.len().min(size);
        let ends = length > 0 && text[length - 1] == b'\n';
        let length = length - usize::from(ends);
        // SAFETY: no more than the program's buffer holds.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr().cast(), out, length) };
        if length < size {
            // SAFETY: within the program's buffer.
            unsafe { *out.add(length) = 0 };
        }
        Ok(length as c_int)
    })
    .unwrap_or(-1)
}

/// The program's pointer to a device.
pub(crate) fn pointer_of(device: &Device) -> *mut ibv_device {
    known(device.clone()).shown.pointer()
}

/// The device behind a program's pointer.
///
/// # Safety
/// As [`Handle::of`].
pub(crate) unsafe fn device_of<'a>(pointer: *mut ibv_device) -> Result<&'a Device> {
    // SAFETY: as the caller promises.
    Ok(&unsafe { DeviceHandle::of(pointer) }?.device)
}
