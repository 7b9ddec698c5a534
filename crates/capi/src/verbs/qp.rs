//! Queue pairs: creation, destruction and multicast groups. Their attributes are in [`super::qp_attributes`].

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use ferroce::{Capabilities, QueuePair, QueuePairOptions, ServiceType, Source};

use crate::abi::Abi;
use crate::abi::attributes::{ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_open_attr};
use crate::abi::constants::{qp_init, qp_type};
use crate::abi::context::ibv_context;
use crate::abi::extended::ibv_qp_ex;
use crate::abi::objects::{ibv_pd, ibv_qp, ibv_xrcd};
use crate::abi::work::ibv_sge;
use crate::acknowledge::Unacknowledged;
use crate::calls;
use crate::convert::{capabilities_in, capabilities_out, gid_in, service_of};
use crate::entry::{self, Errno, Result};
use crate::handle::context::{ContextHandle, OpenDevice};
use crate::handle::cq::queue_of;
use crate::handle::pd::PdHandle;
use crate::handle::qp::{Batch, QpHandle};
use crate::handle::srq::SrqHandle;
use crate::handle::xrcd::XrcdHandle;
use crate::handle::{Handle, Shown};
use crate::reason::invalid;
use crate::verbs::{post_ex, xrc};

/// The inline capacity is at least the size of the SG list that it replaces, as in rdma_rxe: programs such as
/// rdma_xclient request none and use it.
fn inline_of(cap: &ibv_qp_cap) -> u32 {
    let sg_list = cap.max_send_sge.saturating_mul(size_of::<ibv_sge>() as u32);
    cap.max_inline_data.max(sg_list)
}

/// Allocates the handle of a QP for the program.
pub(crate) fn give(
    open: &Arc<OpenDevice>,
    base: ibv_qp,
    queue_pair: QueuePair,
    signal_all: bool,
    operations: Option<u64>,
) -> *mut ibv_qp {
    let number = queue_pair.number();
    let qp_base = ibv_qp { handle: number.0, qp_num: number.0, ..base };
    let mut table = if operations.is_some() { post_ex::table() } else { Abi::zeroed() };
    calls::queue_pair(&mut table);
    let events = Arc::<Unacknowledged>::default();
    let handle = QpHandle {
        shown: Shown::new(ibv_qp_ex { qp_base, ..table }),
        service: queue_pair.service(),
        queue_pair,
        signal_all,
        events: Arc::clone(&events),
        batch: operations.map(|operations| Mutex::new(Batch::new(operations))),
        open: Arc::clone(open),
    };
    let pointer = handle.give::<ibv_qp>();
    open.add_source(Source::QueuePair(number), pointer.expose_provenance(), &events);
    pointer
}

/// Creates a QP, and writes its capabilities back.
///
/// # Safety
/// All pointers are the program's, or null.
unsafe fn create(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    xrcd: *mut ibv_xrcd,
    attr: &mut ibv_qp_init_attr,
    operations: Option<u64>,
) -> Result<*mut ibv_qp> {
    let service = service_of(attr.qp_type)?;
    // SAFETY: as the caller promises.
    let open = &unsafe { ContextHandle::of(context) }?.open;
    let none;
    // SAFETY: as the caller promises.
    let (sends, receives) = unsafe { (queue_of(attr.send_cq), queue_of(attr.recv_cq)) };
    let (sends, receives) = match service {
        // An XRC target has no SQ and no RQ, so it has no completions.
        ServiceType::XrcTarget => {
            none = open.context.completion_queue(1, None)?;
            (&none, &none)
        }
        ServiceType::XrcInitiator => (sends?, sends?),
        _ => (sends?, receives?),
    };
    // SAFETY: as the caller promises.
    let shared = unsafe { SrqHandle::of(attr.srq) }.ok();
    // ibv_create_qp(3): only RC and UD take an SRQ here. XRC addresses SRQs by number.
    if shared.is_some() && service == ServiceType::UnreliableConnection {
        return Err(invalid(format_args!("a UC queue pair takes no SRQ")));
    }
    let requested = capabilities_in(&attr.cap);
    let options = QueuePairOptions {
        recv_cq: receives,
        capabilities: Capabilities { max_inline_data: inline_of(&attr.cap), ..requested },
        srq: shared.map(|shared| &shared.queue),
        signal_all: attr.sq_sig_all != 0,
        ..QueuePairOptions::new(service, sends)
    };
    let queue_pair = if service == ServiceType::XrcTarget {
        // SAFETY: as the caller promises.
        unsafe { XrcdHandle::of(xrcd) }?.domain.target(&options)?
    } else {
        // SAFETY: as the caller promises.
        unsafe { PdHandle::of(pd) }?.domain.queue_pair(&options)?
    };
    attr.cap = capabilities_out(&queue_pair.capabilities());
    let base = ibv_qp {
        context,
        qp_context: attr.qp_context,
        pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        qp_type: attr.qp_type,
        ..Abi::zeroed()
    };
    if service == ServiceType::XrcTarget {
        xrc::register_target(&queue_pair);
    }
    Ok(give(open, base, queue_pair, options.signal_all, operations))
}

pub(crate) unsafe extern "C" fn create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    entry::pointer(|| {
        // SAFETY: the program's PD and structure.
        let (context, attr) = unsafe { (entry::read(pd)?.context, entry::write(attr)?) };
        // SAFETY: the program's arguments.
        unsafe { create(context, pd, std::ptr::null_mut(), attr, None) }
    })
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    const KNOWN: u32 =
        qp_init::PD | qp_init::XRCD | qp_init::CREATE_FLAGS | qp_init::SEND_OPS_FLAGS;
    entry::pointer(|| {
        // SAFETY: the program's structure.
        let attr = unsafe { entry::write(attr) }?;
        let has = |bit: u32| attr.comp_mask & bit != 0;
        if attr.comp_mask & !KNOWN != 0 || has(qp_init::CREATE_FLAGS) && attr.create_flags != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let operations = has(qp_init::SEND_OPS_FLAGS).then_some(attr.send_ops_flags);
        let pd = if has(qp_init::PD) { attr.pd } else { std::ptr::null_mut() };
        let xrcd = if has(qp_init::XRCD) { attr.xrcd } else { std::ptr::null_mut() };
        let base = attr.base;
        if let Some(operations) = operations {
            post_ex::check_operations(service_of(base.qp_type)?, operations)?;
        }
        let mut plain = ibv_qp_init_attr {
            qp_context: base.qp_context,
            send_cq: base.send_cq,
            recv_cq: base.recv_cq,
            srq: base.srq,
            cap: base.cap,
            qp_type: base.qp_type,
            sq_sig_all: base.sq_sig_all,
        };
        // SAFETY: the program's arguments.
        let made = unsafe { create(context, pd, xrcd, &mut plain, operations) }?;
        attr.base.cap = plain.cap;
        Ok(made)
    })
}

pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue pair.
        let handle = unsafe { QpHandle::of(qp.cast()) }?;
        // ibv_create_qp(3): a QP attached to a multicast group cannot be destroyed.
        if handle.queue_pair.is_attached() {
            return Err(Errno::BUSY);
        }
        handle.open.remove_source(Source::QueuePair(handle.queue_pair.number()));
        handle.events.wait();
        // An XRC target exists until the last handle to it is destroyed.
        if handle.service != ServiceType::XrcTarget {
            handle.queue_pair.destroy();
        }
        // SAFETY: as above, and it is not used again.
        drop(unsafe { QpHandle::take(qp.cast()) });
        xrc::prune_targets();
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    entry::run(|| {
        // SAFETY: the program's queue pair.
        let handle = unsafe { QpHandle::of(qp.cast()) }?;
        handle.batch.as_ref().map(|_| qp.cast()).ok_or(Errno::INVALID)
    })
    .unwrap_or(std::ptr::null_mut())
}

pub(crate) unsafe extern "C" fn attach_mcast(
    qp: *mut ibv_qp,
    gid: *const [u64; 2],
    _lid: u16,
) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue pair and GID.
        let (handle, gid) = unsafe { (QpHandle::of(qp.cast())?, entry::read(gid)?) };
        Ok(handle.queue_pair.attach(gid_in(*gid))?)
    })
}

pub(crate) unsafe extern "C" fn detach_mcast(
    qp: *mut ibv_qp,
    gid: *const [u64; 2],
    _lid: u16,
) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue pair and GID.
        let (handle, gid) = unsafe { (QpHandle::of(qp.cast())?, entry::read(gid)?) };
        match handle.queue_pair.detach(gid_in(*gid)) {
            true => Ok(()),
            false => Err(invalid(format_args!("the queue pair is not attached to this group"))),
        }
    })
}

/// Whether the bytes of a message are written in address order: this is not guaranteed.
pub(crate) unsafe extern "C" fn query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _operation: u32,
    _flags: u32,
) -> c_int {
    0
}
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    const NUMBER: u32 = 1;
    const XRCD: u32 = 1 << 1;
    const CONTEXT: u32 = 1 << 2;
    const TYPE: u32 = 1 << 3;
    entry::pointer(|| {
        // SAFETY: the program's context and structure.
        let (open, attr) = unsafe { (&ContextHandle::of(context)?.open, entry::read(attr)?) };
        let needed = NUMBER | XRCD | TYPE;
        if attr.comp_mask & !CONTEXT != needed || attr.qp_type != qp_type::XRC_RECV {
            return Err(invalid(format_args!(
                "comp_mask needs NUM, XRCD and TYPE, and qp_type XRC_RECV"
            )));
        }
        let number = attr.qp_num;
        let target = xrc::find_target(number)
            .ok_or_else(|| invalid(format_args!("there is no XRC target QP {number:#08x}")))?;
        let has_context = attr.comp_mask & CONTEXT != 0;
        let base = ibv_qp {
            context,
            qp_context: if has_context { attr.qp_context } else { std::ptr::null_mut() },
            qp_type: attr.qp_type,
            state: target.state().code(),
            ..Abi::zeroed()
        };
        Ok(give(open, base, target, false, None))
    })
}
