//! Buffers that the library allocates (`ibv_alloc_buf`), and `ibv_reg_mr_ex`, which registers them and other memory.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::abi::Abi;
use crate::abi::attributes::ibv_mr_init_attr;
use crate::abi::objects::{ibv_mr, ibv_pd};
use crate::entry::{self, Errno, Result};
use crate::handle::Handle;
use crate::handle::pd::PdHandle;
use crate::verbs::mr;

/// `ibv_mr_init_attr_mask`: which fields of `ibv_mr_init_attr` the program has set.
mod mask {
    pub(super) const IOVA: u64 = 1;
    pub(super) const ADDR: u64 = 1 << 1;
    pub(super) const FD: u64 = 1 << 2;
    pub(super) const FD_OFFSET: u64 = 1 << 3;
    pub(super) const BUF: u64 = 1 << 5;
}

/// The buffer behind the opaque `ibv_buf`.
pub(crate) struct Buffer {
    /// Only compared: memory is registered in the PD that it was allocated from.
    pd: *mut ibv_pd,
    address: *mut c_void,
    size: usize,
}

impl Buffer {
    /// Whether the range lies within the buffer.
    fn contains(&self, address: *mut c_void, length: usize) -> bool {
        let offset = address.addr().checked_sub(self.address.addr());
        offset.and_then(|offset| self.size.checked_sub(offset)).is_some_and(|left| length <= left)
    }
}

pub(crate) unsafe extern "C" fn alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    out: *mut *mut Buffer,
) -> *mut c_void {
    entry::pointer(|| {
        // SAFETY: the program's PD.
        unsafe { PdHandle::of(pd) }?;
        // SAFETY: the program's pointer.
        let out = unsafe { entry::write(out) }?;
        // SAFETY: the call takes no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| Errno::last())?;
        let mut address = ptr::null_mut();
        // SAFETY: a local pointer.
        let error = unsafe { libc::posix_memalign(&raw mut address, page, size) };
        if error != 0 {
            return Err(Errno(error));
        }
        *out = Box::into_raw(Box::new(Buffer { pd, address, size }));
        Ok(address)
    })
}

pub(crate) unsafe extern "C" fn free_buf(buffer: *mut Buffer) {
    entry::nothing(|| {
        if !buffer.is_null() {
            // SAFETY: the program's buffer, which came from `alloc_buf` and is not used again.
            unsafe {
                let buffer = Box::from_raw(buffer);
                libc::free(buffer.address);
            }
        }
        Ok(())
    });
}

/// ibv_alloc_buf(3): ENODATA if the buffer is not backed by a DMA-buf, and it never is.
pub(crate) unsafe extern "C" fn export_buf_dmabuf_fd(buffer: *mut Buffer) -> c_int {
    entry::count(|| {
        // SAFETY: the program's buffer.
        unsafe { entry::read(buffer) }?;
        Err(Errno(libc::ENODATA))
    })
}

pub(crate) unsafe extern "C" fn reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut Buffer,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let comp_mask = mask::BUF | mask::ADDR;
    let buf = buf.cast();
    let attr = ibv_mr_init_attr { length, access, comp_mask, addr, buf, ..Abi::zeroed() };
    // SAFETY: the program's PD and buffer, and a local structure.
    unsafe { reg_mr_ex(pd, &raw const attr) }
}

/// Reads only the fields that the mask names: `buf` was added by a later release, so a program's structure may be
/// shorter.
///
/// # Safety
/// The structure is the program's, and contains the fields of its mask.
unsafe fn range(
    pd: *mut ibv_pd,
    attr: *const ibv_mr_init_attr,
) -> Result<(*mut c_void, usize, u64)> {
    // SAFETY: as the caller promises; only the fields are read.
    let (has, length) = unsafe { ((*attr).comp_mask, (*attr).length) };
    if has & mask::BUF != 0 {
        // SAFETY: as the caller promises.
        let (buffer, address) =
            unsafe { (entry::read((*attr).buf.cast::<Buffer>())?, (*attr).addr) };
        if pd != buffer.pd
            || has & mask::ADDR == 0
            || has & (mask::FD | mask::FD_OFFSET) != 0
            || !buffer.contains(address, length)
        {
            return Err(Errno::INVALID);
        }
    }
    if has & !(mask::IOVA | mask::ADDR | mask::FD | mask::FD_OFFSET | mask::BUF) != 0 {
        // DMA handles, and fields of later releases.
        return Err(Errno::UNSUPPORTED);
    }
    if has & mask::FD != 0 {
        // ibv_reg_mr(3): an address and a descriptor exclude each other.
        let needed = mask::FD_OFFSET | mask::IOVA;
        let complete = has & mask::ADDR == 0 && has & needed == needed;
        // DMA-bufs as in `ibv_reg_dmabuf_mr`.
        return Err(if complete { Errno::UNSUPPORTED } else { Errno::INVALID });
    }
    if has & mask::ADDR == 0 || has & mask::FD_OFFSET != 0 {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises.
    unsafe {
        let address = (*attr).addr;
        let iova = if has & mask::IOVA != 0 { (*attr).iova } else { address.addr() as u64 };
        Ok((address, length, iova))
    }
}

pub(crate) unsafe extern "C" fn reg_mr_ex(
    pd: *mut ibv_pd,
    attr: *const ibv_mr_init_attr,
) -> *mut ibv_mr {
    let found = entry::run(|| {
        if attr.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program's structure.
        unsafe { range(pd, attr) }
    });
    match found {
        // SAFETY: the program's arguments.
        Ok((address, length, iova)) => unsafe {
            mr::reg_mr_iova2(pd, address, length, iova, (*attr).access as c_uint)
        },
        Err(error) => {
            error.set();
            ptr::null_mut()
        }
    }
}
