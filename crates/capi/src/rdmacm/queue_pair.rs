//! QPs and SRQs of ids, with the CQs that the library creates for them.

use std::ffi::c_int;
use std::ptr;

use ferroce::{AckTimeout, Psn, QueuePairAttributes, State};

use crate::abi::Abi;
use crate::abi::attributes::{
    ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_base, ibv_qp_init_attr_ex, ibv_srq_init_attr,
    ibv_srq_init_attr_ex,
};
use crate::abi::constants::{qp_init, qp_type, srq_init};
use crate::abi::objects::{ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp, ibv_srq};
use crate::abi::rdmacm::rdma_cm_id;
use crate::convert::service_of;
use crate::entry::{self, Errno, Result};
use crate::handle::Handle;
use crate::handle::qp::QpHandle;
use crate::rdmacm::id::IdHandle;
use crate::rdmacm::{check, devices, made};
use crate::reason::invalid;
use crate::sync::lock;
use crate::verbs::cq::{create_comp_channel, create_cq, destroy_comp_channel, destroy_cq};
use crate::verbs::qp::{create_qp_ex, destroy_qp as destroy};
use crate::verbs::qp_attributes::attributes_out;
use crate::verbs::srq::{create_srq_ex as create_shared, destroy_srq as destroy_shared};

/// The attributes that bring the QP of an id into a state.
fn change(handle: &IdHandle, to: State) -> Result<QueuePairAttributes> {
    let datagrams = handle.is_datagram();
    let mut change = match to {
        // UD needs no attributes of a peer.
        State::ReadyToReceive | State::ReadyToSend if datagrams => {
            let first = (to == State::ReadyToSend).then_some(Psn(0));
            QueuePairAttributes {
                state: Some(to),
                send_psn: first,
                ..QueuePairAttributes::default()
            }
        }
        _ => handle.id.attributes(to)?,
    };
    if let (Some(_), Some(code)) = (change.timeout, lock(&handle.details).ack_timeout) {
        change.timeout = Some(AckTimeout(code));
    }
    Ok(change)
}

/// Modifies a QP, and updates the state in its public fields.
///
/// # Safety
/// The program's queue pair.
unsafe fn modify(qp: *mut ibv_qp, change: &QueuePairAttributes) -> Result<()> {
    // SAFETY: as the caller promises.
    let queue_pair = unsafe { QpHandle::of(qp.cast()) }?;
    let state = queue_pair.queue_pair.modify(change)?;
    queue_pair.show_state(state);
    Ok(())
}

/// Brings the QP of an id to RTS, if it has one. `reads` and `peer_reads` replace the negotiated limits of READs.
pub(super) fn bring_up(handle: &IdHandle, reads: Option<u8>, peer_reads: Option<u8>) -> Result<()> {
    let qp = handle.fields().qp;
    if qp.is_null() {
        return Ok(());
    }
    let mut receive = change(handle, State::ReadyToReceive)?;
    receive.max_dest_rd_atomic =
        receive.max_dest_rd_atomic.map(|agreed| peer_reads.unwrap_or(agreed));
    let mut send = change(handle, State::ReadyToSend)?;
    send.max_rd_atomic = send.max_rd_atomic.map(|agreed| reads.unwrap_or(agreed));
    // SAFETY: the program's QP, which exists while the id refers to it.
    unsafe {
        modify(qp, &receive)?;
        modify(qp, &send)
    }
}

/// Brings the QP of an id to the error state.
pub(super) fn fail(handle: &IdHandle) {
    let qp = handle.fields().qp;
    if !qp.is_null() && !handle.is_datagram() {
        let error =
            QueuePairAttributes { state: Some(State::Error), ..QueuePairAttributes::default() };
        // SAFETY: the program's QP, which exists while the id refers to it.
        let _ = unsafe { modify(qp, &error) };
    }
}

/// Destroys the CQs that were created for an id, unless its SRQ uses them.
///
/// # Safety
/// The program's id.
unsafe fn destroy_queues(handle: &IdHandle) {
    let now = handle.fields();
    if now.qp_type == qp_type::XRC_RECV && !now.srq.is_null() {
        return;
    }
    // CQs without a channel of the library were set by the program, which destroys them.
    let queues = [(now.recv_cq, now.recv_cq_channel), (now.send_cq, now.send_cq_channel)];
    let second = usize::from(now.send_cq != now.recv_cq);
    for (queue, channel) in queues.into_iter().take(1 + second) {
        // SAFETY: the QP is destroyed, and nothing else uses these.
        unsafe {
            if !queue.is_null() {
                destroy_cq(queue);
            }
            if !channel.is_null() {
                destroy_comp_channel(channel);
            }
        }
    }
    handle.shown.change(|shown| {
        (shown.send_cq, shown.recv_cq) = (ptr::null_mut(), ptr::null_mut());
        (shown.send_cq_channel, shown.recv_cq_channel) = (ptr::null_mut(), ptr::null_mut());
    });
}

/// Creates a CQ with a channel and the id as its context: rdma_get_send_comp(3) waits on it.
unsafe fn queue(
    id: *mut rdma_cm_id,
    handle: &IdHandle,
    size: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq)> {
    let verbs = handle.fields().verbs;
    let size = c_int::try_from(size).map_err(|_| Errno::INVALID)?;
    // SAFETY: the id's context, which is never closed.
    unsafe {
        let channel = made(create_comp_channel(verbs))?;
        let queue = made(create_cq(verbs, size, id.cast(), channel, 0));
        if queue.is_err() {
            destroy_comp_channel(channel);
        }
        Ok((channel, queue?))
    }
}

/// Creates CQs of these sizes; none for 0.
unsafe fn create_queues(id: *mut rdma_cm_id, send: u32, receive: u32) -> Result<()> {
    // SAFETY: the program's id.
    let handle = unsafe { IdHandle::of(id) }?;
    if receive > 0 {
        // SAFETY: as above.
        let (channel, made) = unsafe { queue(id, handle, receive) }?;
        handle.shown.change(|shown| (shown.recv_cq_channel, shown.recv_cq) = (channel, made));
    }
    if send > 0 {
        // SAFETY: as above.
        let made = unsafe { queue(id, handle, send) };
        if made.is_err() && receive > 0 {
            // SAFETY: as above.
            unsafe { destroy_queues(handle) };
        }
        let (channel, made) = made?;
        handle.shown.change(|shown| (shown.send_cq_channel, shown.send_cq) = (channel, made));
    }
    Ok(())
}

/// Brings a new QP to INIT, or to RTS for UD.
///
/// # Safety
/// The program's queue pair.
unsafe fn prepare(handle: &IdHandle, qp: *mut ibv_qp) -> Result<()> {
    let states: &[State] = match handle.is_datagram() {
        true => &[State::Init, State::ReadyToReceive, State::ReadyToSend],
        false => &[State::Init],
    };
    for &state in states {
        // SAFETY: as the caller promises.
        unsafe { modify(qp, &change(handle, state)?) }?;
    }
    Ok(())
}

/// # Safety
/// The program's id and structure.
unsafe fn create_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> Result<()> {
    // SAFETY: as the caller promises.
    let (handle, attr) = unsafe { (IdHandle::of(id)?, entry::write(attr)?) };
    let now = handle.fields();
    if !now.qp.is_null() || now.verbs.is_null() {
        return Err(invalid(format_args!(
            "the id has a queue pair already, or no device yet (rdma_resolve_addr)"
        )));
    }
    if attr.comp_mask & qp_init::PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= qp_init::PD;
        attr.pd = now.pd;
    // SAFETY: the program's PD.
    } else if unsafe { (*attr.pd).context } != now.verbs {
        return Err(Errno::INVALID);
    }
    let mut base = attr.base;
    let differs = |ours: *mut ibv_cq, theirs: *mut ibv_cq| {
        !ours.is_null() && !theirs.is_null() && ours != theirs
    };
    if differs(now.send_cq, base.send_cq) || differs(now.recv_cq, base.recv_cq) {
        return Err(Errno::INVALID);
    }
    // The type of the id determines the connection, that of the structure the QP: rdma_create_qp(3).
    let kind = base.qp_type;
    if kind == qp_type::XRC_RECV && (attr.comp_mask & qp_init::XRCD == 0 || attr.xrcd.is_null()) {
        attr.xrcd = devices::xrc_domain(now.verbs)?;
        attr.comp_mask |= qp_init::XRCD;
    }
    let missing = |theirs: *mut ibv_cq, ours: *mut ibv_cq, size: u32| {
        if theirs.is_null() && ours.is_null() { size } else { 0 }
    };
    let cap = base.cap;
    let send = missing(base.send_cq, now.send_cq, cap.max_send_wr);
    let receive = missing(base.recv_cq, now.recv_cq, cap.max_recv_wr);
    // SAFETY: as the caller promises.
    unsafe { create_queues(id, send, receive) }?;
    let now = handle.fields();
    let undo = |error| {
        if send > 0 || receive > 0 {
            // SAFETY: nothing uses them.
            unsafe { destroy_queues(handle) };
        }
        error
    };
    if base.send_cq.is_null() {
        base.send_cq = now.send_cq;
    }
    if base.recv_cq.is_null() {
        base.recv_cq = now.recv_cq;
    }
    if base.srq.is_null() {
        base.srq = now.srq;
    }
    attr.base = base;
    handle.id.set_service(service_of(kind)?);
    // SAFETY: as the caller promises.
    let qp = made(unsafe { create_qp_ex(now.verbs, attr) }).map_err(undo)?;
    handle.shown.change(|shown| shown.qp = qp);
    // SAFETY: just created.
    if let Err(error) = unsafe { prepare(handle, qp) } {
        handle.shown.change(|shown| shown.qp = ptr::null_mut());
        // SAFETY: as above.
        unsafe { destroy(qp) };
        return Err(undo(error));
    }
    let pd = attr.pd;
    handle.shown.change(|shown| shown.pd = pd);
    Ok(())
}

/// # Safety
/// The program's id, PD and structure.
pub(super) unsafe fn create(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<()> {
    // SAFETY: as the caller promises.
    let attr = unsafe { entry::write(attr) }?;
    let base = ibv_qp_init_attr_base {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    let mut extended = ibv_qp_init_attr_ex { base, comp_mask: qp_init::PD, pd, ..Abi::zeroed() };
    // SAFETY: as the caller promises.
    unsafe { create_ex(id, &raw mut extended) }?;
    let base = extended.base;
    attr.cap = base.cap;
    (attr.send_cq, attr.recv_cq, attr.srq) = (base.send_cq, base.recv_cq, base.srq);
    Ok(())
}

pub(crate) unsafe extern "C" fn create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program's id, domain and structure.
    entry::count(|| unsafe { create(id, pd, attr) }.map(|()| 0))
}

pub(crate) unsafe extern "C" fn create_id_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    // SAFETY: the program's id and structure.
    entry::count(|| unsafe { create_ex(id, attr) }.map(|()| 0))
}

pub(crate) unsafe extern "C" fn destroy_qp(id: *mut rdma_cm_id) {
    entry::nothing(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        let qp = handle.fields().qp;
        if !qp.is_null() {
            // SAFETY: the program's queue pair, which is not used again.
            check(unsafe { destroy(qp) })?;
        }
        handle.shown.change(|shown| shown.qp = ptr::null_mut());
        // SAFETY: the program's id.
        unsafe { destroy_queues(handle) };
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id, structure and mask.
        let (handle, attr, mask) =
            unsafe { (IdHandle::of(id)?, entry::write(attr)?, entry::write(mask)?) };
        if handle.fields().verbs.is_null() {
            return Err(invalid(format_args!(
                "the id has no device yet: call rdma_resolve_addr first"
            )));
        }
        let code = attr.qp_state;
        let state = State::from_code(code)
            .ok_or_else(|| invalid(format_args!("qp_state {code} is unknown")))?;
        let change = change(handle, state)?;
        *attr = attributes_out(&change, state);
        *mask = change.attributes().bits() as c_int;
        Ok(0)
    })
}

/// # Safety
/// The program's id and structure.
unsafe fn create_shared_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> Result<()> {
    /// `IBV_SRQT_XRC`.
    const XRC: u32 = 1;
    // SAFETY: as the caller promises.
    let (handle, attr) = unsafe { (IdHandle::of(id)?, entry::write(attr)?) };
    let now = handle.fields();
    if attr.comp_mask & srq_init::TYPE == 0 || now.verbs.is_null() {
        return Err(Errno::INVALID);
    }
    if attr.comp_mask & srq_init::PD == 0 || attr.pd.is_null() {
        attr.pd = now.pd;
        attr.comp_mask |= srq_init::PD;
    }
    let mut own = false;
    if attr.srq_type == XRC {
        if attr.comp_mask & srq_init::XRCD == 0 || attr.xrcd.is_null() {
            attr.xrcd = devices::xrc_domain(now.verbs)?;
        }
        if attr.comp_mask & srq_init::CQ == 0 || attr.cq.is_null() {
            // SAFETY: as the caller promises.
            unsafe { create_queues(id, 0, attr.attr.max_wr) }?;
            own = true;
            attr.cq = handle.fields().recv_cq;
        }
        attr.comp_mask |= srq_init::XRCD | srq_init::CQ;
    }
    // SAFETY: as the caller promises.
    let shared: Result<*mut ibv_srq> = made(unsafe { create_shared(now.verbs, attr) });
    if shared.is_err() && own {
        // SAFETY: nothing uses them.
        unsafe { destroy_queues(handle) };
    }
    let shared = shared?;
    let pd = attr.pd;
    handle.shown.change(|shown| {
        shown.srq = shared;
        if shown.pd.is_null() {
            shown.pd = pd;
        }
    });
    Ok(())
}

pub(crate) unsafe extern "C" fn create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id and structure.
        let (handle, plain) = unsafe { (IdHandle::of(id)?, entry::read(attr)?) };
        let mut extended = ibv_srq_init_attr_ex {
            srq_context: plain.srq_context,
            attr: plain.attr,
            comp_mask: srq_init::TYPE | srq_init::PD,
            srq_type: u32::from(handle.fields().qp_type == qp_type::XRC_RECV),
            pd,
            ..Abi::zeroed()
        };
        // SAFETY: as above.
        unsafe { create_shared_ex(id, &raw mut extended) }?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    // SAFETY: the program's id and structure.
    entry::count(|| unsafe { create_shared_ex(id, attr) }.map(|()| 0))
}

pub(crate) unsafe extern "C" fn destroy_srq(id: *mut rdma_cm_id) {
    entry::nothing(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        let shared = handle.fields().srq;
        if !shared.is_null() {
            // SAFETY: the program's queue, which is not used again.
            check(unsafe { destroy_shared(shared) })?;
        }
        handle.shown.change(|shown| shown.srq = ptr::null_mut());
        // SAFETY: the program's id.
        unsafe { destroy_queues(handle) };
        Ok(())
    });
}
