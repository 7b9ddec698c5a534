//! Connecting, accepting, rejecting, disconnecting.

use std::ffi::{c_int, c_void};

use ferroce::cm::{ConnectParameters, RejectReason};
use ferroce::{Qpn, RnrRetry};

use crate::abi::constants::event as async_event;
use crate::abi::rdmacm::{DEVICE_MAX, cm_event, port_space, rdma_cm_id, rdma_conn_param};
use crate::entry::{self, Errno, Result};
use crate::handle::Handle;
use crate::rdmacm::channel::{self, complete};
use crate::rdmacm::id::{Details, IdHandle};
use crate::rdmacm::queue_pair;
use crate::reason::invalid;
use crate::sync::lock;

/// The device's limit of outstanding READs and atomics.
fn max_rd_atomic(handle: &IdHandle) -> u8 {
    handle.id.context().map_or(0, |context| context.limits().max_rd_atomic)
}

/// A value that the program chose, unless it left the choice to the library.
fn chosen(param: Option<&rdma_conn_param>, field: fn(&rdma_conn_param) -> u8) -> Option<u8> {
    param.map(field).filter(|&value| value != DEVICE_MAX)
}

/// Checks the parameters of rdma_connect(3) and rdma_accept(3).
fn check(handle: &IdHandle, param: Option<&rdma_conn_param>) -> Result<()> {
    let shown = handle.fields();
    if shown.ps != port_space::TCP {
        return Ok(());
    }
    let numbers: [fn(&rdma_conn_param) -> u8; 2] =
        [|param| param.responder_resources, |param| param.initiator_depth];
    let fit =
        numbers.iter().all(|&field| chosen(param, field).unwrap_or(0) <= max_rd_atomic(handle));
    // One of the two identifies the QP.
    if !fit {
        let max = max_rd_atomic(handle);
        return Err(invalid(format_args!(
            "responder_resources or initiator_depth is over {max}, the maximum of the device"
        )));
    }
    match param.is_some() || !shown.qp.is_null() {
        true => Ok(()),
        false => Err(invalid(format_args!("neither a queue pair nor parameters with qp_num"))),
    }
}

/// The private data of the program's parameters.
///
/// # Safety
/// The data has this length, or is null.
unsafe fn bytes<'a>(data: *const c_void, length: u8) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { entry::list(data.cast::<u8>(), length.into()) }.unwrap_or(&[])
}

/// Converts the connection parameters.
///
/// # Safety
/// The program's parameters with their private data.
unsafe fn parameters(
    handle: &IdHandle,
    details: &Details,
    param: Option<&rdma_conn_param>,
) -> ConnectParameters {
    let shown = handle.fields();
    // SAFETY: the program's queue pair, or null.
    let own = unsafe { shown.qp.as_ref() };
    let number = own.map_or(param.map_or(0, |param| param.qp_num), |qp| qp.qp_num);
    let shared = own.map_or(param.is_some_and(|param| param.srq != 0), |qp| !qp.srq.is_null());
    let mut private_data = details.connect_data.clone();
    if let Some(param) = param {
        // SAFETY: as the caller promises.
        private_data
            .extend_from_slice(unsafe { bytes(param.private_data, param.private_data_len) });
    }
    let plain = ConnectParameters::default();
    ConnectParameters {
        private_data,
        responder_resources: details.responder_resources,
        initiator_depth: details.initiator_depth,
        flow_control: param.is_some_and(|param| param.flow_control != 0),
        retry_count: param.map_or(7, |param| param.retry_count.min(7)),
        rnr_retry: RnrRetry(param.map_or(7, |param| param.rnr_retry_count.min(7))),
        ack_timeout: details.round_trip().unwrap_or(plain.ack_timeout),
        service: handle.service(),
        queue_pair: Some(Qpn(number)),
        shared_receives: shared,
        enhancements: details.local,
        ..plain
    }
}

pub(crate) unsafe extern "C" fn connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id and parameters.
        let (handle, param) = unsafe { (IdHandle::of(id)?, param.as_ref()) };
        if handle.fields().verbs.is_null() {
            return Err(invalid(format_args!(
                "the id has no device yet: call rdma_resolve_addr first"
            )));
        }
        check(handle, param)?;
        let request = {
            let mut details = lock(&handle.details);
            details.check_partition()?;
            let max = max_rd_atomic(handle);
            details.responder_resources =
                chosen(param, |param| param.responder_resources).unwrap_or(max);
            details.initiator_depth = chosen(param, |param| param.initiator_depth).unwrap_or(max);
            // SAFETY: the program's parameters.
            unsafe { parameters(handle, &details, param) }
        };
        handle.id.connect(&request)?;
        lock(&handle.details).connect_data = Vec::new();
        // SAFETY: the program's id.
        unsafe { complete(id) }?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id and parameters.
        let (handle, param) = unsafe { (IdHandle::of(id)?, param.as_ref()) };
        let shown = handle.fields();
        if shown.qp.is_null() && param.is_none() {
            return Err(invalid(format_args!("neither a queue pair nor parameters with qp_num")));
        }
        check(handle, param)?;
        if !handle.id.is_requested() {
            return Err(Errno::INVALID);
        }
        let max = max_rd_atomic(handle);
        let reply = {
            let mut details = lock(&handle.details);
            let (requested, offered) = (details.responder_resources, details.initiator_depth);
            details.responder_resources =
                chosen(param, |param| param.responder_resources).unwrap_or(requested.min(max));
            details.initiator_depth =
                chosen(param, |param| param.initiator_depth).unwrap_or(offered.min(max));
            // SAFETY: the program's parameters.
            let reply = unsafe { parameters(handle, &details, param) };
            let vendor = details.remote.vendor;
            ConnectParameters {
                enhancements: ferroce::cm::Enhancements { vendor, ..reply.enhancements },
                ..reply
            }
        };
        let datagrams = handle.is_datagram();
        if !datagrams && !shown.qp.is_null() {
            let (reads, peer_reads) = (reply.initiator_depth, reply.responder_resources);
            queue_pair::bring_up(handle, Some(reads), Some(peer_reads))?;
        }
        if let Err(error) = handle.id.accept(&reply) {
            if !datagrams {
                queue_pair::fail(handle);
            }
            return Err(error.into());
        }
        // SAFETY: the program's id.
        unsafe {
            match (datagrams, is_synchronous(handle)) {
                // UD has no further events.
                (true, true) => channel::acknowledge_own(id),
                (true, false) => {}
                (false, _) => complete(id)?,
            }
        }
        Ok(0)
    })
}

fn is_synchronous(handle: &IdHandle) -> bool {
    lock(&handle.details).synchronous
}

/// # Safety
/// The program's id and data of this length.
unsafe fn reject_for(
    id: *mut rdma_cm_id,
    reason: RejectReason,
    data: *const c_void,
    length: u8,
) -> c_int {
    entry::count(|| {
        // SAFETY: as the caller promises.
        let (handle, data) = unsafe { (IdHandle::of(id)?, bytes(data, length)) };
        handle.id.reject_for(reason, data)?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    length: u8,
) -> c_int {
    // SAFETY: the program's id and bytes.
    unsafe { reject_for(id, RejectReason::CONSUMER_REJECT, data, length) }
}

pub(crate) unsafe extern "C" fn reject_ece(
    id: *mut rdma_cm_id,
    data: *const c_void,
    length: u8,
) -> c_int {
    // SAFETY: the program's id and bytes.
    unsafe { reject_for(id, RejectReason::VENDOR_OPTION_NOT_SUPPORTED, data, length) }
}

pub(crate) unsafe extern "C" fn establish(id: *mut rdma_cm_id) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        // For a QP of the id, taking the event does this.
        if !handle.fields().qp.is_null() {
            return Err(Errno::INVALID);
        }
        handle.id.establish()?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn notify(id: *mut rdma_cm_id, event: u32) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        match event {
            // The connection is established already.
            async_event::COMM_EST if handle.id.is_connected() => Err(Errno(libc::EISCONN)),
            async_event::COMM_EST => Ok(handle.id.notify_established().map(|()| 0)?),
            _ => Err(Errno::INVALID),
        }
    })
}

pub(crate) unsafe extern "C" fn disconnect(id: *mut rdma_cm_id) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        if handle.fields().verbs.is_null() {
            return Err(Errno::INVALID);
        }
        queue_pair::fail(handle);
        {
            let mut details = lock(&handle.details);
            // After the peer disconnected, one call confirms it: rdma_disconnect(3) requires it of both sides.
            let over = details.over;
            if std::mem::replace(&mut details.disconnected, over) {
                return Err(Errno::INVALID);
            }
            // The event was taken before: there is no other.
            if over {
                return Ok(0);
            }
        }
        handle.id.disconnect()?;
        lock(&handle.details).disconnected = true;
        // SAFETY: the program's id.
        unsafe { complete(id) }?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C-unwind" fn get_request(
    listen: *mut rdma_cm_id,
    out: *mut *mut rdma_cm_id,
) -> c_int {
    entry::waiting(|| {
        // SAFETY: the program's id and pointer.
        let (handle, out) = unsafe { (IdHandle::of(listen)?, entry::write(out)?) };
        if !is_synchronous(handle) {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program's id.
        unsafe { channel::acknowledge_own(listen) };
        // A synchronous id has a channel of its own.
        channel::attempt(handle.fields().channel, |event| {
            // SAFETY: just taken.
            let got = unsafe { entry::read(event) }?;
            let checked = match (got.event, got.status) {
                (cm_event::CONNECT_REQUEST, 0) => Ok(()),
                (cm_event::REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
                (_, 0) => Err(Errno::INVALID),
                (_, status) => Err(Errno(status.abs())),
            };
            let template = lock(&handle.details).template;
            let ready = checked.and_then(|()| match template {
                // SAFETY: the new id is not passed to the program yet, and the structure is a copy.
                Some(mut attr) => unsafe {
                    queue_pair::create(got.id, handle.fields().pd, &raw mut attr)
                },
                None => Ok(()),
            });
            if let Err(error) = ready {
                handle.shown.change(|shown| shown.event = event);
                return Err(error);
            }
            // SAFETY: the new id.
            unsafe { IdHandle::of(got.id) }?.shown.change(|shown| shown.event = event);
            *out = got.id;
            Ok(())
        })
    })
}
