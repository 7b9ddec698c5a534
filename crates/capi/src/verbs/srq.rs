//! Shared receive queues.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce::{SharedReceiveQueue, Source};

use crate::abi::Abi;
use crate::abi::attributes::{ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use crate::abi::constants::srq_init;
use crate::abi::context::ibv_context;
use crate::abi::objects::{ibv_pd, ibv_srq};
use crate::abi::work::ibv_recv_wr;
use crate::acknowledge::Unacknowledged;
use crate::entry::{self, Errno, Result};
use crate::handle::context::{ContextHandle, OpenDevice};
use crate::handle::cq::queue_of;
use crate::handle::pd::PdHandle;
use crate::handle::srq::SrqHandle;
use crate::handle::xrcd::XrcdHandle;
use crate::handle::{Handle, Shown};
use crate::reason::invalid;
use crate::verbs::post::post_receives;

const MAX_WR: c_int = 1;
const LIMIT: c_int = 1 << 1;
const BASIC: u32 = 0;
const XRC: u32 = 1;

fn check(open: &OpenDevice, attr: &ibv_srq_attr) -> Result<()> {
    let limits = open.context.limits();
    let fits = attr.max_wr > 0 && attr.max_wr <= limits.max_qp_wr && attr.max_sge <= limits.max_sge;
    if fits {
        return Ok(());
    }
    let ibv_srq_attr { max_wr, max_sge, .. } = *attr;
    Err(invalid(format_args!(
        "max_wr {max_wr}, max_sge {max_sge}: the device allows 1 to {} and 0 to {}",
        limits.max_qp_wr, limits.max_sge
    )))
}

/// Allocates the handle of an SRQ for the program.
fn give(
    open: &Arc<OpenDevice>,
    base: ibv_srq,
    queue: SharedReceiveQueue,
    max_sge: u32,
) -> *mut ibv_srq {
    let number = queue.number();
    let events = Arc::<Unacknowledged>::default();
    let handle = SrqHandle {
        shown: Shown::new(ibv_srq { handle: number.0, ..base }),
        queue,
        events: Arc::clone(&events),
        max_sge,
        open: Arc::clone(open),
    };
    let pointer = handle.give::<ibv_srq>();
    let source = Source::SharedReceiveQueue(number);
    open.add_source(source, pointer.expose_provenance(), &events);
    pointer
}

pub(crate) unsafe extern "C" fn create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    entry::pointer(|| {
        // SAFETY: the program's PD and structure.
        let (domain, attr) = unsafe { (&PdHandle::of(pd)?.domain, entry::read(attr)?) };
        // SAFETY: as above.
        let context = unsafe { (*pd).context };
        // SAFETY: the context of the PD.
        let open = &unsafe { ContextHandle::of(context) }?.open;
        check(open, &attr.attr)?;
        let queue = domain.shared_receive_queue(attr.attr.max_wr as usize)?;
        let base = ibv_srq { context, srq_context: attr.srq_context, pd, ..Abi::zeroed() };
        Ok(give(open, base, queue, attr.attr.max_sge.max(1)))
    })
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    entry::pointer(|| {
        // SAFETY: the program's structure.
        let attr = unsafe { entry::read(attr) }?;
        let has = |bit: u32| attr.comp_mask & bit != 0;
        let kind = if has(srq_init::TYPE) { attr.srq_type } else { BASIC };
        if attr.comp_mask & !(srq_init::TYPE | srq_init::PD | srq_init::XRCD | srq_init::CQ) != 0
            || kind > XRC
        {
            return Err(Errno::UNSUPPORTED);
        }
        if !has(srq_init::PD) {
            return Err(invalid(format_args!("comp_mask lacks IBV_SRQ_INIT_ATTR_PD")));
        }
        // SAFETY: the program's context.
        let open = &unsafe { ContextHandle::of(context) }?.open;
        // SAFETY: the program's PD.
        let domain = &unsafe { PdHandle::of(attr.pd) }?.domain;
        check(open, &attr.attr)?;
        let capacity = attr.attr.max_wr as usize;
        let queue = if kind == XRC {
            if !has(srq_init::XRCD) || !has(srq_init::CQ) {
                return Err(invalid(format_args!(
                    "an XRC SRQ needs IBV_SRQ_INIT_ATTR_XRCD and IBV_SRQ_INIT_ATTR_CQ in comp_mask"
                )));
            }
            // SAFETY: the program's PD and queue.
            let (xrc, queue) = unsafe { (XrcdHandle::of(attr.xrcd)?, queue_of(attr.cq)?) };
            domain.xrc_receive_queue(capacity, &xrc.domain, queue)?
        } else {
            domain.shared_receive_queue(capacity)?
        };
        let base = ibv_srq { context, srq_context: attr.srq_context, pd: attr.pd, ..Abi::zeroed() };
        Ok(give(open, base, queue, attr.attr.max_sge.max(1)))
    })
}

pub(crate) unsafe extern "C" fn modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue and structure.
        let (handle, attr) = unsafe { (SrqHandle::of(srq)?, entry::read(attr)?) };
        if mask & !(MAX_WR | LIMIT) != 0 {
            return Err(invalid(format_args!("srq_attr_mask {mask:#x} has unknown bits")));
        }
        let (resizes, limits) = (mask & MAX_WR != 0, mask & LIMIT != 0);
        let capacity = if resizes { attr.max_wr as usize } else { handle.queue.capacity() };
        if resizes {
            check(&handle.open, &ibv_srq_attr { max_sge: 0, ..*attr })?;
        }
        if limits && attr.srq_limit as usize > capacity {
            let limit = attr.srq_limit;
            return Err(invalid(format_args!(
                "srq_limit {limit}: the SRQ holds {capacity} requests"
            )));
        }
        if resizes {
            handle.queue.resize(capacity)?;
        }
        if limits {
            handle.queue.arm_limit(attr.srq_limit as usize);
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue and structure.
        let (handle, attr) = unsafe { (SrqHandle::of(srq)?, entry::write(attr)?) };
        *attr = ibv_srq_attr {
            max_wr: handle.queue.capacity() as u32,
            max_sge: handle.max_sge,
            srq_limit: handle.queue.limit().unwrap_or(0) as u32,
        };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue and number.
        let (handle, number) = unsafe { (SrqHandle::of(srq)?, entry::write(number)?) };
        *number = handle.queue.number().0;
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue.
        let handle = unsafe { SrqHandle::of(srq) }?;
        if handle.queue.users() > 0 {
            return Err(Errno::BUSY);
        }
        handle.open.remove_source(Source::SharedReceiveQueue(handle.queue.number()));
        handle.events.wait();
        // SAFETY: as above, and it is not used again.
        drop(unsafe { SrqHandle::take(srq) });
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue.
        let handle = unsafe { SrqHandle::of(srq) }?;
        let max_sge = handle.max_sge as usize;
        // SAFETY: the program's list.
        unsafe {
            post_receives(list, bad, |request| {
                let given = request.sg_list.as_slice().len();
                if given > max_sge {
                    return Err(invalid(format_args!(
                        "{given} SGEs; the SRQ was created for {max_sge}"
                    )));
                }
                Ok(handle.queue.post(request)?)
            })
        }
    })
}
