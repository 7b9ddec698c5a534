//! Queue pairs: creating, destroying, and groups. Their attributes are in [`crate::attributes`].

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use ferroce::{Capabilities, QueuePair, QueuePairOptions, ServiceType, Source};

use crate::abi::Abi;
use crate::abi::attributes::{ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex};
use crate::abi::constants::{qp_init, qp_type};
use crate::abi::context::ibv_context;
use crate::abi::extended::ibv_qp_ex;
use crate::abi::objects::{ibv_pd, ibv_qp, ibv_xrcd};
use crate::abi::work::ibv_sge;
use crate::acknowledge::Unacknowledged;
use crate::completion::queue_of;
use crate::context::{ContextHandle, Open};
use crate::entry::{self, Errno, Result};
use crate::handle::{Handle, Shown, handle};
use crate::pd::PdHandle;
use crate::post_ex::{self, Batch};
use crate::query::gid_in;
use crate::shared_receive::ReceiveHandle;
use crate::trace;
use crate::xrc::{self, XrcHandle};

/// A queue pair. All have the room of extended ones, so that there is one kind only.
#[repr(C)]
pub(crate) struct QueuePairHandle {
    pub(crate) shown: Shown<ibv_qp_ex>,
    pub(crate) queue_pair: QueuePair,
    pub(crate) service: ServiceType,
    pub(crate) signal_all: bool,
    pub(crate) events: Arc<Unacknowledged>,
    /// What the extended interface has gathered; `None` when it was not asked for.
    pub(crate) batch: Option<Mutex<Batch>>,
    open: Arc<Open>,
}

handle!(QueuePairHandle, shown, ibv_qp_ex);

pub(crate) fn service_of(kind: u32) -> Result<ServiceType> {
    Ok(match kind {
        qp_type::RC => ServiceType::ReliableConnection,
        qp_type::UC => ServiceType::UnreliableConnection,
        qp_type::UD => ServiceType::UnreliableDatagram,
        qp_type::XRC_SEND => ServiceType::XrcInitiator,
        qp_type::XRC_RECV => ServiceType::XrcTarget,
        _ => return Err(Errno::UNSUPPORTED),
    })
}

pub(crate) fn capabilities_in(cap: &ibv_qp_cap) -> Capabilities {
    Capabilities {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// Inline data has the room of the list of SGEs that it stands for, whatever was asked for: so it is with rdma_rxe, and
/// there are programs that ask for none and use it, as rdma_xclient does.
fn inline_of(cap: &ibv_qp_cap) -> u32 {
    let sg_list = cap.max_send_sge.saturating_mul(size_of::<ibv_sge>() as u32);
    cap.max_inline_data.max(sg_list)
}

pub(crate) fn capabilities_out(capabilities: &Capabilities) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: capabilities.max_send_wr,
        max_recv_wr: capabilities.max_recv_wr,
        max_send_sge: capabilities.max_send_sge,
        max_recv_sge: capabilities.max_recv_sge,
        max_inline_data: capabilities.max_inline_data,
    }
}

/// Gives a queue pair to the program.
pub(crate) fn give(
    open: &Arc<Open>,
    base: ibv_qp,
    queue_pair: QueuePair,
    signal_all: bool,
    operations: Option<u64>,
) -> *mut ibv_qp {
    let number = queue_pair.number();
    let qp_base = ibv_qp { handle: number.0, qp_num: number.0, ..base };
    let mut table = if operations.is_some() { post_ex::table() } else { Abi::zeroed() };
    trace::queue_pair(&mut table);
    let events = Arc::<Unacknowledged>::default();
    let handle = QueuePairHandle {
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

/// Makes a queue pair, and tells what it got.
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
    // SAFETY: as the caller says.
    let open = &unsafe { ContextHandle::of(context) }?.open;
    let none;
    // SAFETY: as the caller says.
    let (sends, receives) = unsafe { (queue_of(attr.send_cq), queue_of(attr.recv_cq)) };
    let (sends, receives) = match service {
        // A target has no queue, so nothing of it completes.
        ServiceType::XrcTarget => {
            none = open.context.completion_queue(1, None)?;
            (&none, &none)
        }
        ServiceType::XrcInitiator => (sends?, sends?),
        _ => (sends?, receives?),
    };
    // SAFETY: as the caller says.
    let shared = unsafe { ReceiveHandle::of(attr.srq) }.ok();
    // `ibv_create_qp(3)`: RC and UD alone share receives. XRC has them by their number, and needs none here.
    if shared.is_some() && service == ServiceType::UnreliableConnection {
        return Err(Errno::INVALID);
    }
    let asked = capabilities_in(&attr.cap);
    let options = QueuePairOptions::new(service, sends)
        .with_recv_cq(receives)
        .with_capabilities(Capabilities { max_inline_data: inline_of(&attr.cap), ..asked })
        .with_srq(shared.map(|shared| &shared.queue))
        .with_signal_all(attr.sq_sig_all != 0);
    let queue_pair = if service == ServiceType::XrcTarget {
        // SAFETY: as the caller says.
        unsafe { XrcHandle::of(xrcd) }?.domain.target(&options)?
    } else {
        // SAFETY: as the caller says.
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
        xrc::remember(&queue_pair);
    }
    Ok(give(open, base, queue_pair, options.signal_all, operations))
}

pub(crate) unsafe extern "C" fn create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    entry::pointer(|| {
        // SAFETY: the program's domain and structure.
        let (context, attr) = unsafe { (entry::read(pd)?.context, entry::write(attr)?) };
        // SAFETY: as the program says.
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
        // SAFETY: as the program says.
        let made = unsafe { create(context, pd, xrcd, &mut plain, operations) }?;
        attr.base.cap = plain.cap;
        Ok(made)
    })
}

pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue pair.
        let handle = unsafe { QueuePairHandle::of(qp.cast()) }?;
        // As `ibv_create_qp(3)` has it.
        if handle.queue_pair.is_attached() {
            return Err(Errno::BUSY);
        }
        handle.open.remove_source(Source::QueuePair(handle.queue_pair.number()));
        handle.events.wait();
        // An XRC target lives as long as one of those who opened it has it.
        if handle.service != ServiceType::XrcTarget {
            handle.queue_pair.destroy();
        }
        // SAFETY: as above, and it is not used again.
        drop(unsafe { QueuePairHandle::take(qp.cast()) });
        xrc::forget_targets();
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    entry::run(|| {
        // SAFETY: the program's queue pair.
        let handle = unsafe { QueuePairHandle::of(qp.cast()) }?;
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
        let (handle, gid) = unsafe { (QueuePairHandle::of(qp.cast())?, entry::read(gid)?) };
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
        let (handle, gid) = unsafe { (QueuePairHandle::of(qp.cast())?, entry::read(gid)?) };
        if handle.queue_pair.detach(gid_in(*gid)) { Ok(()) } else { Err(Errno::INVALID) }
    })
}

/// Whether the bytes of a message appear in the order of their addresses: nobody promises that.
pub(crate) unsafe extern "C" fn query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _operation: u32,
    _flags: u32,
) -> c_int {
    0
}
