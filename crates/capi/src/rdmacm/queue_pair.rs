//! Queue pairs of ids, with completion queues and shared receive queues where the program has none of its own.

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
use crate::attributes::answer;
use crate::completion::{create_comp_channel, create_cq, destroy_comp_channel, destroy_cq};
use crate::context::lock;
use crate::entry::{self, Errno, Result};
use crate::handle::Handle;
use crate::queue_pair::{QueuePairHandle, create_qp_ex, destroy_qp as destroy, service_of};
use crate::rdmacm::id::IdHandle;
use crate::rdmacm::{check, devices, made};
use crate::shared_receive::{create_srq_ex as create_shared, destroy_srq as destroy_shared};

/// The change that brings a queue pair of this id into a state.
fn change(handle: &IdHandle, to: State) -> Result<QueuePairAttributes> {
    let datagrams = handle.is_datagram();
    let mut change = match to {
        // Datagrams have no peer to be told of.
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

/// Changes a queue pair, and shows its state.
///
/// # Safety
/// The program's queue pair.
unsafe fn modify(qp: *mut ibv_qp, change: &QueuePairAttributes) -> Result<()> {
    // SAFETY: as the caller says.
    let queue_pair = unsafe { QueuePairHandle::of(qp.cast()) }?;
    let state = queue_pair.queue_pair.modify(change)?;
    queue_pair.shown.change(|shown| shown.qp_base.state = state.code());
    Ok(())
}

/// Brings the queue pair of an id up, if it has one, with these numbers of READs where they are not as agreed.
pub(super) fn bring_up(handle: &IdHandle, reads: Option<u8>, peer_reads: Option<u8>) -> Result<()> {
    let qp = handle.look().qp;
    if qp.is_null() {
        return Ok(());
    }
    let mut receive = change(handle, State::ReadyToReceive)?;
    receive.max_dest_rd_atomic =
        receive.max_dest_rd_atomic.map(|agreed| peer_reads.unwrap_or(agreed));
    let mut send = change(handle, State::ReadyToSend)?;
    send.max_rd_atomic = send.max_rd_atomic.map(|agreed| reads.unwrap_or(agreed));
    // SAFETY: the program's queue pair, which is there while the id has it.
    unsafe {
        modify(qp, &receive)?;
        modify(qp, &send)
    }
}

/// Ends what the queue pair of an id is at.
pub(super) fn fail(handle: &IdHandle) {
    let qp = handle.look().qp;
    if !qp.is_null() && !handle.is_datagram() {
        let error =
            QueuePairAttributes { state: Some(State::Error), ..QueuePairAttributes::default() };
        // SAFETY: the program's queue pair, which is there while the id has it.
        let _ = unsafe { modify(qp, &error) };
    }
}

/// Destroys the completion queues that were made for an id, except where its shared receive queue uses them.
///
/// # Safety
/// The program's id.
unsafe fn destroy_queues(handle: &IdHandle) {
    let now = handle.look();
    if now.qp_type == qp_type::XRC_RECV && !now.srq.is_null() {
        return;
    }
    // Those that a program has put there itself have no channel of ours, and are the program's.
    let queues = [(now.recv_cq, now.recv_cq_channel), (now.send_cq, now.send_cq_channel)];
    let second = usize::from(now.send_cq != now.recv_cq);
    for (queue, channel) in queues.into_iter().take(1 + second) {
        // SAFETY: the program's queue pair is gone, and nothing else was given these.
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

/// A completion queue with a channel, whose context is the id: what rdma_get_send_comp(3) waits for.
unsafe fn queue(
    id: *mut rdma_cm_id,
    handle: &IdHandle,
    size: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq)> {
    let verbs = handle.look().verbs;
    let size = c_int::try_from(size).map_err(|_| Errno::INVALID)?;
    // SAFETY: the id's context, which stays.
    unsafe {
        let channel = made(create_comp_channel(verbs))?;
        let queue = made(create_cq(verbs, size, id.cast(), channel, 0));
        if queue.is_err() {
            destroy_comp_channel(channel);
        }
        Ok((channel, queue?))
    }
}

/// Makes completion queues of these sizes; none where it is 0.
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

/// Makes a new queue pair ready for the connection; one of datagrams is ready for all.
///
/// # Safety
/// The program's queue pair.
unsafe fn prepare(handle: &IdHandle, qp: *mut ibv_qp) -> Result<()> {
    let states: &[State] = match handle.is_datagram() {
        true => &[State::Init, State::ReadyToReceive, State::ReadyToSend],
        false => &[State::Init],
    };
    for &state in states {
        // SAFETY: as the caller says.
        unsafe { modify(qp, &change(handle, state)?) }?;
    }
    Ok(())
}

/// # Safety
/// The program's id and structure.
unsafe fn create_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> Result<()> {
    // SAFETY: as the caller says.
    let (handle, attr) = unsafe { (IdHandle::of(id)?, entry::write(attr)?) };
    let now = handle.look();
    if !now.qp.is_null() || now.verbs.is_null() {
        return Err(Errno::INVALID);
    }
    if attr.comp_mask & qp_init::PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= qp_init::PD;
        attr.pd = now.pd;
    // SAFETY: the program's domain.
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
    // The id's kind decides about connections, the structure's about the queue pair: rdma_create_qp(3).
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
    // SAFETY: as the caller says.
    unsafe { create_queues(id, send, receive) }?;
    let now = handle.look();
    let undo = |error| {
        if send > 0 || receive > 0 {
            // SAFETY: nothing was given them.
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
    // SAFETY: as the caller says.
    let qp = made(unsafe { create_qp_ex(now.verbs, attr) }).map_err(undo)?;
    handle.shown.change(|shown| shown.qp = qp);
    // SAFETY: just made.
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
/// The program's id, domain and structure.
pub(super) unsafe fn create(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<()> {
    // SAFETY: as the caller says.
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
    // SAFETY: as the caller says.
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
        let qp = handle.look().qp;
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
        if handle.look().verbs.is_null() {
            return Err(Errno::INVALID);
        }
        let state = State::from_code(attr.qp_state).ok_or(Errno::INVALID)?;
        let change = change(handle, state)?;
        *attr = answer(&change, state);
        *mask = change.attributes().bits() as c_int;
        Ok(0)
    })
}

/// # Safety
/// The program's id and structure.
unsafe fn create_shared_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> Result<()> {
    /// `IBV_SRQT_XRC`.
    const XRC: u32 = 1;
    // SAFETY: as the caller says.
    let (handle, attr) = unsafe { (IdHandle::of(id)?, entry::write(attr)?) };
    let now = handle.look();
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
            // SAFETY: as the caller says.
            unsafe { create_queues(id, 0, attr.attr.max_wr) }?;
            own = true;
            attr.cq = handle.look().recv_cq;
        }
        attr.comp_mask |= srq_init::XRCD | srq_init::CQ;
    }
    // SAFETY: as the caller says.
    let shared: Result<*mut ibv_srq> = made(unsafe { create_shared(now.verbs, attr) });
    if shared.is_err() && own {
        // SAFETY: nothing was given them.
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
            srq_type: u32::from(handle.look().qp_type == qp_type::XRC_RECV),
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
        let shared = handle.look().srq;
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
