//! Options of ids, and enhanced connection establishment (ECE).

use std::ffi::{c_int, c_void};

use ferroce::cm::{Enhancements, VendorId};

use crate::abi::Abi;
use crate::abi::attributes::ibv_ece;
use crate::abi::rdmacm::rdma_cm_id;
use crate::entry::{self, Errno, Result};
use crate::handle::Handle;
use crate::rdmacm::id::IdHandle;
use crate::rdmacm::path;
use crate::sync::lock;

/// The level `RDMA_OPTION_ID` and its options.
const ID: c_int = 0;
const TYPE_OF_SERVICE: c_int = 0;
const REUSE_ADDRESS: c_int = 1;
const ONE_FAMILY: c_int = 2;
const ACK_TIMEOUT: c_int = 3;

/// The level `RDMA_OPTION_IB` and its option.
const IB: c_int = 1;
const PATH: c_int = 1;

/// The value of an option.
///
/// # Safety
/// The value has this length.
unsafe fn value<T: Copy>(value: *const c_void, length: usize) -> Result<T> {
    if length != size_of::<T>() || value.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises; it may be unaligned.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

pub(crate) unsafe extern "C" fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    data: *mut c_void,
    length: usize,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        if (level, name) == (IB, PATH) {
            // SAFETY: the program's value.
            unsafe { path::set(handle, data, length) }?;
            return Ok(0);
        }
        // SAFETY: the program's value.
        let (byte, number) = unsafe { (value::<u8>(data, length), value::<c_int>(data, length)) };
        match (level, name) {
            (ID, TYPE_OF_SERVICE) => handle.id.set_type_of_service(byte?),
            // An address that is bound already stays as it is.
            (ID, REUSE_ADDRESS | ONE_FAMILY) if handle.id.local_address().is_some() => {
                number?;
                return Err(Errno::INVALID);
            }
            (ID, REUSE_ADDRESS) => handle.id.set_port_sharing(number? != 0),
            (ID, ONE_FAMILY) => handle.id.set_one_family(number? != 0),
            (ID, ACK_TIMEOUT) => {
                // Five bits, as in the QP attributes.
                let code = byte?;
                if code > 31 || handle.is_datagram() {
                    return Err(Errno::INVALID);
                }
                lock(&handle.details).ack_timeout = Some(code);
            }
            _ => return Err(Errno(libc::ENOSYS)),
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id and structure.
        let (handle, ece) = unsafe { (IdHandle::of(id)?, entry::read(ece)?) };
        // Only for QPs that the program creates itself.
        if !handle.fields().qp.is_null() || ece.vendor_id == 0 || ece.comp_mask != 0 {
            return Err(Errno::INVALID);
        }
        lock(&handle.details).local =
            Enhancements { vendor: VendorId(ece.vendor_id & 0xff_ffff), options: ece.options };
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id and structure.
        let (handle, ece) = unsafe { (IdHandle::of(id)?, entry::write(ece)?) };
        if !handle.fields().qp.is_null() || ece.comp_mask != 0 {
            return Err(Errno::INVALID);
        }
        let remote = lock(&handle.details).remote;
        *ece = ibv_ece { vendor_id: remote.vendor.0, options: remote.options, ..Abi::zeroed() };
        Ok(0)
    })
}
