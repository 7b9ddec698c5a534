//! Device memory: ordinary memory that programs access by copying only.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ferroce::{AccessFlags, Buffer, VirtualAddress};

use crate::abi::attributes::ibv_alloc_dm_attr;
use crate::abi::context::ibv_context;
use crate::abi::objects::{ibv_dm, ibv_mr, ibv_pd};
use crate::entry::{self, Errno, Result};
use crate::handle::context::{ContextHandle, OpenDevice};
use crate::handle::objects::SharedMemory;
use crate::handle::pd::PdHandle;
use crate::handle::{Handle, Shown, handle};
use crate::reason::invalid;
use crate::sync::lock;
use crate::verbs::mr;
use crate::verbs::query::DEVICE_MEMORY;

#[repr(C)]
pub(crate) struct DmHandle {
    shown: Shown<ibv_dm>,
    memory: SharedMemory,
    open: Arc<OpenDevice>,
}

handle!(DmHandle, shown, ibv_dm);

static USED: AtomicU64 = AtomicU64::new(0);

pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    entry::pointer(|| {
        // SAFETY: the program's context and structure.
        let (open, attr) = unsafe { (&ContextHandle::of(context)?.open, entry::read(attr)?) };
        let length = attr.length as u64;
        // Buffers are page-aligned.
        if attr.comp_mask != 0 || length == 0 || attr.log_align_req > 12 {
            let align = attr.log_align_req;
            return Err(invalid(format_args!(
                "length {length}, log_align_req {align}: 1 byte or more, and an alignment up to 2^12"
            )));
        }
        let fits = |used: u64| used.checked_add(length).filter(|&sum| sum <= DEVICE_MEMORY);
        let taken = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map_err(|_| Errno::NO_MEMORY)?;
        let buffer = Buffer::new(attr.length).map_err(|_| {
            USED.fetch_sub(length, Ordering::Relaxed);
            Errno::NO_MEMORY
        })?;
        let memory = Arc::new(Mutex::new(Some(Arc::new(buffer))));
        let number = lock(&open.objects).add_memory(&memory);
        Ok(give(context, open, memory, number))
    })
}

/// Allocates the handle of device memory for the program.
fn give(
    context: *mut ibv_context,
    open: &Arc<OpenDevice>,
    memory: SharedMemory,
    number: u32,
) -> *mut ibv_dm {
    let shown = Shown::new(ibv_dm {
        context,
        memcpy_to_dm: Some(copy_to),
        memcpy_from_dm: Some(copy_from),
        comp_mask: 0,
        handle: number,
    });
    DmHandle { shown, memory, open: Arc::clone(open) }.give()
}

/// The memory behind a handle, unless it was freed through another handle.
///
/// # Safety
/// As [`Handle::of`].
unsafe fn buffer_of(dm: *mut ibv_dm) -> Result<Arc<Buffer>> {
    // SAFETY: as the caller promises.
    lock(&unsafe { DmHandle::of(dm) }?.memory).clone().ok_or(Errno::INVALID)
}

pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    entry::number(|| {
        // SAFETY: the program's memory.
        let handle = unsafe { DmHandle::of(dm) }?;
        let mut memory = lock(&handle.memory);
        if let Some(buffer) = memory.take_if(|buffer| Arc::strong_count(buffer) == 1) {
            USED.fetch_sub(buffer.len() as u64, Ordering::Relaxed);
        } else if memory.is_some() {
            // MRs refer to it.
            return Err(Errno::BUSY);
        }
        drop(memory);
        // SAFETY: as above.
        lock(&handle.open.objects).remove_memory(unsafe { (*dm).handle });
        // SAFETY: as above, and it is not used again.
        drop(unsafe { DmHandle::take(dm) });
        Ok(())
    })
}

/// Checks that offset and length are multiples of a word, as devices require.
fn check_words(offset: u64, length: usize) -> Result<usize> {
    let words = offset % 4 == 0 && length % 4 == 0;
    usize::try_from(offset).ok().filter(|_| words).ok_or_else(|| {
        invalid(format_args!("offset {offset}, length {length}: multiples of 4 are needed"))
    })
}

unsafe extern "C" fn copy_to(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    entry::number(|| {
        // SAFETY: the program's memory.
        let buffer = unsafe { buffer_of(dm) }?;
        // SAFETY: the program's bytes.
        let bytes = unsafe { entry::list(from.cast::<u8>(), length) }?;
        let offset = check_words(offset, length)?;
        buffer.write(offset, bytes).map_err(|_| {
            invalid(format_args!("offset {offset}, length {length}: outside the device memory"))
        })
    })
}

unsafe extern "C" fn copy_from(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    entry::number(|| {
        // SAFETY: the program's memory.
        let buffer = unsafe { buffer_of(dm) }?;
        if to.is_null() || length == 0 {
            return if length == 0 { Ok(()) } else { Err(Errno::INVALID) };
        }
        // The program's bytes may be uninitialised.
        let mut bytes = vec![0; length];
        let offset = check_words(offset, length)?;
        buffer.read(offset, &mut bytes).map_err(|_| Errno::INVALID)?;
        // SAFETY: the program's bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), length) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: u32,
) -> *mut ibv_mr {
    entry::pointer(|| {
        // SAFETY: the program's PD.
        let domain = &unsafe { PdHandle::of(pd) }?.domain;
        // SAFETY: the program's memory.
        let buffer = unsafe { buffer_of(dm) }?;
        let access = AccessFlags::from_bits_retain(access);
        // Its addresses count from 0: the program does not know its virtual address.
        if !access.contains(AccessFlags::ZERO_BASED) {
            return Err(invalid(format_args!(
                "device memory is registered with IBV_ACCESS_ZERO_BASED only"
            )));
        }
        let offset = usize::try_from(offset).map_err(|_| Errno::INVALID)?;
        let region = domain.register_part(&buffer, offset, length, VirtualAddress(0), access)?;
        // SAFETY: as above.
        unsafe { mr::give(pd, ptr::null_mut(), length, region) }
    })
}

pub(crate) unsafe extern "C" fn import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    entry::pointer(|| {
        // SAFETY: the program's context.
        let open = &unsafe { ContextHandle::of(context) }?.open;
        let memory = lock(&open.objects).memory(handle)?;
        Ok(give(context, open, memory, handle))
    })
}

/// Frees this handle only.
pub(crate) unsafe extern "C" fn unimport_dm(dm: *mut ibv_dm) {
    entry::nothing(|| {
        // SAFETY: the program's memory.
        unsafe { DmHandle::of(dm) }?;
        // SAFETY: as above, and it is not used again.
        drop(unsafe { DmHandle::take(dm) });
        Ok(())
    });
}
