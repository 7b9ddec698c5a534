//! Buffers of a program that its peer writes to directly: `riomap`, `riounmap`, `riowrite`.

use std::ffi::{c_int, c_void};

use ferroce::AddressRange;
use ferroce_rsocket::{MapRequest, table};
use libc::{off_t, size_t};

use crate::entry::{self, Errno};

pub(crate) unsafe extern "C" fn riomap(
    number: c_int,
    buffer: *mut c_void,
    length: size_t,
    protection: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let mapped = entry::run(|| {
        let socket = table::stream(number)?;
        if protection & !(libc::PROT_WRITE | libc::PROT_NONE) != 0 {
            return Err(Errno::INVALID);
        }
        let address = buffer.expose_provenance();
        // SAFETY: riomap's contract: the buffer exists until it is unmapped or the socket closed, and the peer writes
        // to it.
        let range = unsafe { AddressRange::new(address, length) };
        let request = MapRequest {
            address,
            length,
            writable: protection & libc::PROT_WRITE != 0,
            // rsocket(7): −1 stands for the buffer's address.
            offset: (offset != -1).then_some(offset as u64),
        };
        Ok(socket.map(request, range)? as off_t)
    });
    mapped.unwrap_or_else(|error| {
        error.set();
        -1
    })
}

pub(crate) unsafe extern "C" fn riounmap(
    number: c_int,
    buffer: *mut c_void,
    length: size_t,
) -> c_int {
    entry::count(|| {
        table::stream(number)?.unmap(buffer.addr(), length)?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn riowrite(
    number: c_int,
    buffer: *const c_void,
    count: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    let written = entry::run(|| {
        let socket = table::stream(number)?;
        // SAFETY: the program's buffer.
        let bytes = unsafe { entry::list(buffer.cast::<u8>(), count) }?;
        Ok(socket.write_at(bytes, offset as u64, flags)?)
    });
    written.unwrap_or_else(|error| {
        error.set();
        usize::MAX
    })
}
