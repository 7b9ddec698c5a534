//! Binding, resolving, listening.

use std::ffi::c_int;
use std::time::Duration;

use libc::sockaddr;

use crate::abi::rdmacm::rdma_cm_id;
use crate::handle::Handle;
use crate::rdmacm::channel::complete;
use crate::rdmacm::id::IdHandle;
use crate::sync::lock;
use crate::{entry, socket_address};

fn milliseconds(timeout: c_int) -> Duration {
    Duration::from_millis(timeout.max(0) as u64)
}

pub(crate) unsafe extern "C" fn bind_addr(id: *mut rdma_cm_id, address: *mut sockaddr) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id and address.
        let (handle, address) = unsafe { (IdHandle::of(id)?, socket_address::read(address)?) };
        handle.id.bind(address)?;
        // In Linux, an id bound to a loopback address is bound to no device (cma.c, cma_any_addr). libfabric relies on
        // that to enumerate devices with such an id; programs that listen have a channel or a port.
        let enumerates = lock(&handle.details).synchronous && address.port() == 0;
        if enumerates && address.ip().is_loopback() {
            let local = handle.id.local_address().unwrap_or(address);
            handle.shown.change(|shown| shown.route.addr.src = socket_address::write(local));
        } else {
            handle.refresh()?;
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut sockaddr,
    destination: *mut sockaddr,
    timeout: c_int,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id and addresses.
        let (handle, source, destination) = unsafe {
            (
                IdHandle::of(id)?,
                socket_address::read_optional(source)?,
                socket_address::read(destination)?,
            )
        };
        handle.id.resolve_address(source, destination, milliseconds(timeout))?;
        // The destination address is visible immediately.
        handle.shown.change(|shown| shown.route.addr.dst = socket_address::write(destination));
        // SAFETY: the program's id.
        unsafe { complete(id) }?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn resolve_route(id: *mut rdma_cm_id, timeout: c_int) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        handle.id.resolve_route(milliseconds(timeout))?;
        // SAFETY: the program's id.
        unsafe { complete(id) }?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        handle.id.listen(usize::try_from(backlog).unwrap_or(0))?;
        handle.refresh()?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program's id.
    entry::run(|| Ok(socket_address::port(&unsafe { entry::read(id) }?.route.addr.src)))
        .unwrap_or(0)
}

pub(crate) unsafe extern "C" fn get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program's id.
    entry::run(|| Ok(socket_address::port(&unsafe { entry::read(id) }?.route.addr.dst)))
        .unwrap_or(0)
}
