//! Connecting, accepting, rejecting, disconnecting.

use std::ffi::{c_int, c_void};

use ferroce::cm::{ConnectParameters, RejectReason};
use ferroce::{Qpn, RnrRetry};

use crate::abi::constants::event as async_event;
use crate::abi::rdmacm::{MOST, cm_event, port_space, rdma_cm_id, rdma_conn_param};
use crate::context::lock;
use crate::entry::{self, Errno, Result};
use crate::handle::Handle;
use crate::rdmacm::channel::{self, complete};
use crate::rdmacm::id::{Details, IdHandle};
use crate::rdmacm::queue_pair;

/// How many READs and atomics the device allows at once.
fn most(handle: &IdHandle) -> u8 {
    handle.id.context().map_or(0, |context| context.limits().max_rd_atomic)
}

/// A number that the program chose, unless it left that to the library.
fn chosen(param: Option<&rdma_conn_param>, field: fn(&rdma_conn_param) -> u8) -> Option<u8> {
    param.map(field).filter(|&value| value != MOST)
}

/// rdma_connect(3), rdma_accept(3): what must hold of the parameters.
fn check(handle: &IdHandle, param: Option<&rdma_conn_param>) -> Result<()> {
    let shown = handle.look();
    if shown.ps != port_space::TCP {
        return Ok(());
    }
    let numbers: [fn(&rdma_conn_param) -> u8; 2] =
        [|param| param.responder_resources, |param| param.initiator_depth];
    let fit = numbers.iter().all(|&field| chosen(param, field).unwrap_or(0) <= most(handle));
    // A queue pair is named by one of the two.
    if fit && (param.is_some() || !shown.qp.is_null()) { Ok(()) } else { Err(Errno::INVALID) }
}

/// The private data of the program's parameters.
///
/// # Safety
/// There are so many bytes there, or it is null.
unsafe fn bytes<'a>(data: *const c_void, length: u8) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { entry::list(data.cast::<u8>(), length.into()) }.unwrap_or(&[])
}

/// The parameters as the library has them.
///
/// # Safety
/// The program's parameters, whose private data is there.
unsafe fn parameters(
    handle: &IdHandle,
    details: &Details,
    param: Option<&rdma_conn_param>,
) -> ConnectParameters {
    let shown = handle.look();
    // SAFETY: the program's queue pair, or null.
    let own = unsafe { shown.qp.as_ref() };
    let number = own.map_or(param.map_or(0, |param| param.qp_num), |qp| qp.qp_num);
    let shared = own.map_or(param.is_some_and(|param| param.srq != 0), |qp| !qp.srq.is_null());
    let mut private_data = details.connect_data.clone();
    if let Some(param) = param {
        // SAFETY: as the caller says.
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
        if handle.look().verbs.is_null() {
            return Err(Errno::INVALID);
        }
        check(handle, param)?;
        let wish = {
            let mut details = lock(&handle.details);
            details.check_partition()?;
            let most = most(handle);
            details.responder_resources =
                chosen(param, |param| param.responder_resources).unwrap_or(most);
            details.initiator_depth = chosen(param, |param| param.initiator_depth).unwrap_or(most);
            // SAFETY: the program's parameters.
            unsafe { parameters(handle, &details, param) }
        };
        handle.id.connect(&wish)?;
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
        let shown = handle.look();
        if shown.qp.is_null() && param.is_none() {
            return Err(Errno::INVALID);
        }
        check(handle, param)?;
        if !handle.id.is_requested() {
            return Err(Errno::INVALID);
        }
        let most = most(handle);
        let answer = {
            let mut details = lock(&handle.details);
            let (asked, offered) = (details.responder_resources, details.initiator_depth);
            details.responder_resources =
                chosen(param, |param| param.responder_resources).unwrap_or(asked.min(most));
            details.initiator_depth =
                chosen(param, |param| param.initiator_depth).unwrap_or(offered.min(most));
            // SAFETY: the program's parameters.
            let answer = unsafe { parameters(handle, &details, param) };
            let vendor = details.remote.vendor;
            ConnectParameters {
                enhancements: ferroce::cm::Enhancements { vendor, ..answer.enhancements },
                ..answer
            }
        };
        let datagrams = handle.is_datagram();
        if !datagrams && !shown.qp.is_null() {
            let (reads, peer_reads) = (answer.initiator_depth, answer.responder_resources);
            queue_pair::bring_up(handle, Some(reads), Some(peer_reads))?;
        }
        if let Err(error) = handle.id.accept(&answer) {
            if !datagrams {
                queue_pair::fail(handle);
            }
            return Err(error.into());
        }
        // SAFETY: the program's id.
        unsafe {
            match (datagrams, lock_synchronous(handle)) {
                // With datagrams nothing follows.
                (true, true) => channel::acknowledge_own(id),
                (true, false) => {}
                (false, _) => complete(id)?,
            }
        }
        Ok(0)
    })
}

fn lock_synchronous(handle: &IdHandle) -> bool {
    lock(&handle.details).synchronous
}

/// # Safety
/// The program's id, and so many bytes.
unsafe fn reject_for(
    id: *mut rdma_cm_id,
    reason: RejectReason,
    data: *const c_void,
    length: u8,
) -> c_int {
    entry::count(|| {
        // SAFETY: as the caller says.
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
        // Of a queue pair that the id has made, this is done by taking the event.
        if !handle.look().qp.is_null() {
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
            // A connection that is up already takes no notice.
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
        if handle.look().verbs.is_null() {
            return Err(Errno::INVALID);
        }
        queue_pair::fail(handle);
        {
            let mut details = lock(&handle.details);
            // Whom the peer has disconnected confirms that once, as rdma_disconnect(3) wants both sides to.
            let over = details.over;
            if std::mem::replace(&mut details.disconnected, over) {
                return Err(Errno::INVALID);
            }
            // Its event was taken before: no other will come.
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
        if !lock_synchronous(handle) {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program's id.
        unsafe { channel::acknowledge_own(listen) };
        // Its channel is its own.
        channel::attempt(handle.look().channel, |event| {
            // SAFETY: just got.
            let got = unsafe { entry::read(event) }?;
            let checked = match (got.event, got.status) {
                (cm_event::CONNECT_REQUEST, 0) => Ok(()),
                (cm_event::REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
                (_, 0) => Err(Errno::INVALID),
                (_, status) => Err(Errno(status.abs())),
            };
            let template = lock(&handle.details).template;
            let ready = checked.and_then(|()| match template {
                // SAFETY: the new id is ours to give, and the structure is a copy.
                Some(mut attr) => unsafe {
                    queue_pair::create(got.id, handle.look().pd, &raw mut attr)
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
