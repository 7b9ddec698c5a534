//! Completion queues, their channels, and polling.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock};

use ferroce::{CompletionChannel, CompletionKind, Source, Status, WorkCompletion};

use crate::abi::Abi;
use crate::abi::constants::{status, wc, wc_flags};
use crate::abi::context::ibv_context;
use crate::abi::extended::ibv_cq_ex;
use crate::abi::objects::{ibv_comp_channel, ibv_cq};
use crate::abi::work::ibv_wc;
use crate::acknowledge::{self, Unacknowledged};
use crate::entry::{self, Errno, Next, Result};
use crate::fd::{is_blocking, make_blocking, until_readable};
use crate::handle::context::ContextHandle;
use crate::handle::cq::{ChannelEvents, ChannelHandle, CqHandle};
use crate::handle::{Handle, Shown};
use crate::reason::invalid;
use crate::sync::lock;

pub(crate) unsafe extern "C" fn create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    entry::pointer(|| {
        // SAFETY: the program's context.
        let open = Arc::clone(&unsafe { ContextHandle::of(context) }?.open);
        let channel = CompletionChannel::new()?;
        let fd = make_blocking(channel.as_fd())?;
        let shown = Shown::new(ibv_comp_channel { context, fd, refcnt: 0 });
        let events = Arc::new(ChannelEvents { channel, queues: Mutex::default() });
        Ok(ChannelHandle { shown, events, open }.give())
    })
}

pub(crate) unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    entry::number(|| {
        // SAFETY: the program's channel.
        let handle = unsafe { ChannelHandle::of(channel) }?;
        if !lock(&handle.events.queues).is_empty() {
            return Err(Errno::BUSY);
        }
        // SAFETY: as above, and it is not used again.
        drop(unsafe { ChannelHandle::take(channel) });
        Ok(())
    })
}

/// The parameters of a new CQ.
pub(crate) struct NewCq {
    pub(crate) context: *mut ibv_context,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) capacity: usize,
    pub(crate) vector: u32,
}

/// The number of completion vectors: one for each CPU, as in rdma_rxe, because programs spread their CQs over vectors by the
/// number of a CPU or thread. There are no interrupts behind them: all vectors are equal.
pub(crate) fn vectors() -> u32 {
    static VECTORS: OnceLock<u32> = OnceLock::new();
    *VECTORS.get_or_init(|| {
        // SAFETY: the call takes no pointers.
        u32::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1).max(1)
    })
}

/// A number of entries.
fn entries(cqe: c_int) -> Result<usize> {
    usize::try_from(cqe).map_err(|_| invalid(format_args!("a completion queue of {cqe} entries")))
}

/// Creates a CQ.
///
/// # Safety
/// Context and channel are the program's, or null.
pub(crate) unsafe fn create(new: &NewCq, table: ibv_cq_ex) -> Result<*mut ibv_cq_ex> {
    if new.vector >= vectors() {
        return Err(invalid(format_args!(
            "comp_vector {}: the device has {}",
            new.vector,
            vectors()
        )));
    }
    // SAFETY: as the caller promises.
    let open = &unsafe { ContextHandle::of(new.context) }?.open;
    // SAFETY: as the caller promises.
    let channel = unsafe { ChannelHandle::of(new.channel) }.ok();
    let events = channel.map(|channel| Arc::clone(&channel.events));
    let queue =
        open.context.completion_queue(new.capacity, events.as_ref().map(|one| &one.channel))?;
    let base = ibv_cq {
        context: new.context,
        channel: new.channel,
        cq_context: new.cq_context,
        cqe: c_int::try_from(queue.capacity()).unwrap_or(c_int::MAX),
        ..Abi::zeroed()
    };
    let shown = Shown::new(ibv_cq_ex { base, ..table });
    let (id, unacknowledged) = (queue.id(), Arc::<Unacknowledged>::default());
    let handle = CqHandle {
        shown,
        queue,
        events: Arc::clone(&unacknowledged),
        errors: Arc::default(),
        open: Arc::clone(open),
        current: Mutex::default(),
        channel: events.clone(),
    };
    let errors = Arc::clone(&handle.errors);
    let pointer = handle.give::<ibv_cq_ex>();
    open.add_source(Source::CompletionQueue(id), pointer.expose_provenance(), &errors);
    if let (Some(channel), Some(events)) = (channel, events) {
        lock(&events.queues).insert(id, (pointer.expose_provenance(), unacknowledged));
        channel.shown.change(|shown| shown.refcnt += 1);
    }
    Ok(pointer)
}

pub(crate) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    entry::pointer(|| {
        let capacity = entries(cqe)?;
        let vector = u32::try_from(vector).map_err(|_| {
            invalid(format_args!("comp_vector {vector}: the device has {}", vectors()))
        })?;
        let new = NewCq { context, channel, cq_context, capacity, vector };
        // SAFETY: the program's context and channel.
        Ok(unsafe { create(&new, Abi::zeroed()) }?.cast())
    })
}

pub(crate) unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue.
        let handle = unsafe { CqHandle::of(cq.cast()) }?;
        let capacity = entries(cqe)?;
        let max = handle.queue.context().limits().max_cqe as usize;
        if capacity == 0 || capacity > max {
            return Err(invalid(format_args!(
                "a completion queue holds 1 to {max} entries, not {capacity}"
            )));
        }
        handle.queue.resize(capacity)?;
        // SAFETY: the program's queue. No reference: another thread may be counting events in the same structure.
        unsafe { (&raw mut (*cq).cqe).write(cqe) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue.
        let handle = unsafe { CqHandle::of(cq.cast()) }?;
        if handle.queue.users() > 0 {
            return Err(Errno::BUSY);
        }
        if let Some(events) = &handle.channel {
            handle.queue.forget_events();
            let channel = lock(&events.queues).remove(&handle.queue.id());
            // SAFETY: the channel cannot be destroyed before its queues.
            let shown = unsafe { ChannelHandle::of((*cq).channel) };
            if let (Some(_), Ok(channel)) = (channel, shown) {
                channel.shown.change(|shown| shown.refcnt -= 1);
            }
        }
        handle.open.remove_source(Source::CompletionQueue(handle.queue.id()));
        handle.events.wait();
        handle.errors.wait();
        // SAFETY: as above, and it is not used again.
        drop(unsafe { CqHandle::take(cq.cast()) });
        Ok(())
    })
}

pub(crate) unsafe extern "C-unwind" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // What this thread waits for, if for packets. Nothing to drop: the thread may be cancelled while it waits.
    let leads = Cell::new(None);
    let result = entry::waiting(|| {
        // SAFETY: the program's channel.
        let handle = unsafe { ChannelHandle::of(channel) }?;
        let events = &handle.events;
        let context = &handle.open.context;
        if let Some(leading) = leads.take() {
            events.channel.stop_leading(context, &leading);
        }
        let fd = events.channel.as_raw_fd();
        let mut next = events.channel.try_event()?;
        if next.is_none() && is_blocking(fd) {
            next = events.channel.serve(context)?;
        }
        while let Some(id) = next {
            let queues = lock(&events.queues);
            // The CQ may have been destroyed.
            let Some((object, unacknowledged)) = queues.get(&id) else {
                next = events.channel.try_event()?;
                continue;
            };
            unacknowledged.add();
            let found = ptr::with_exposed_provenance_mut::<ibv_cq>(*object);
            // SAFETY: the program's pointers; the CQ exists while it is in the list.
            unsafe {
                *entry::write(cq)? = found;
                *entry::write(cq_context)? = (*found).cq_context;
            }
            return Ok(Next::Done);
        }
        let waits = until_readable(fd);
        if waits.is_err() {
            // The program waits for the descriptor by other means.
            events.channel.set_served(false);
            context.stop_polling();
            return waits;
        }
        match CompletionChannel::lead([(&events.channel, context)]) {
            None => waits,
            Some(leading) => {
                leads.set(Some(leading));
                Ok(Next::AnyReadable(fd, leading))
            }
        }
    });
    if let Some(leading) = leads.take() {
        // A signal ended the wait.
        entry::nothing(|| {
            // SAFETY: the program's channel.
            let handle = unsafe { ChannelHandle::of(channel) }?;
            handle.events.channel.stop_leading(&handle.open.context, &leading);
            Ok(())
        });
    }
    result
}

pub(crate) unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, events: c_uint) {
    entry::nothing(|| {
        // SAFETY: the program's queue.
        let handle = unsafe { CqHandle::of(cq.cast()) }?;
        // SAFETY: as above; it is not destroyed before its events are acknowledged.
        unsafe {
            let counter = &raw mut (*cq).comp_events_completed;
            acknowledge::show(&raw mut (*cq).mutex, &raw mut (*cq).cond, counter, events);
        }
        handle.events.acknowledge(events.into());
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue.
        unsafe { CqHandle::of(cq.cast()) }?.queue.arm(solicited_only != 0);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, max: c_int, out: *mut ibv_wc) -> c_int {
    let poll = || {
        // SAFETY: the program's queue.
        let queue = &unsafe { CqHandle::of(cq.cast()) }?.queue;
        let max = usize::try_from(max).map_err(|_| Errno::INVALID)?;
        let mut next = out;
        let each = |one: WorkCompletion| {
            // SAFETY: the program's array has `max` entries.
            unsafe {
                next.write(translate(&one));
                next = next.add(1);
            }
        };
        Ok(queue.poll_with(max, each) as c_int)
    };
    entry::run_without_cancellation_points(poll).unwrap_or_else(|error| -error.0)
}

#[inline]
pub(crate) fn translate(one: &WorkCompletion) -> ibv_wc {
    ibv_wc {
        wr_id: one.id.0,
        status: status_of(one.status),
        opcode: opcode_of(one.kind),
        vendor_err: one.vendor_error.into(),
        byte_len: one.length,
        imm_data: immediate_of(one),
        qp_num: one.queue_pair.0,
        src_qp: one.source.map_or(0, |source| source.0),
        wc_flags: flags_of(one),
        pkey_index: 0,
        slid: 0,
        sl: level_of(one),
        dlid_path_bits: 0,
    }
}

/// Immediate data in network byte order, or the invalidated key.
pub(crate) fn immediate_of(one: &WorkCompletion) -> u32 {
    match (one.immediate, one.invalidated) {
        (Some(immediate), _) => immediate.0.to_be(),
        (None, Some(key)) => key.0,
        (None, None) => 0,
    }
}

pub(crate) fn flags_of(one: &WorkCompletion) -> u32 {
    let mut flags = 0;
    if one.immediate.is_some() {
        flags |= wc_flags::WITH_IMM;
    } else if one.invalidated.is_some() {
        flags |= wc_flags::WITH_INV;
    }
    // RoCE packets always have a GRH, which is reported for every receive, connected services included: from rdma_rxe's
    // and mlx5's behaviour. Only datagrams have the GRH in front of their data.
    let received =
        matches!(one.kind, CompletionKind::Receive | CompletionKind::ReceiveWriteImmediate);
    if received && one.status == Status::Success {
        flags |= wc_flags::GRH;
    }
    flags
}

/// The service level. Ethernet has none, so for datagrams it is the type of the header in front of the data: 2 for
/// IPv4, 1 for IPv6. UCX, which checks the destination address, reads it to find that address.
pub(crate) fn level_of(one: &WorkCompletion) -> u8 {
    match one.source {
        Some(_) if one.over_ipv4 => 2,
        Some(_) => 1,
        None => 0,
    }
}

pub(crate) fn opcode_of(kind: CompletionKind) -> u32 {
    match kind {
        CompletionKind::Send => wc::SEND,
        CompletionKind::Write => wc::RDMA_WRITE,
        CompletionKind::Read => wc::RDMA_READ,
        CompletionKind::CompareSwap => wc::COMP_SWAP,
        CompletionKind::FetchAdd => wc::FETCH_ADD,
        CompletionKind::Flush => wc::FLUSH,
        CompletionKind::AtomicWrite => wc::ATOMIC_WRITE,
        CompletionKind::LocalInvalidate => wc::LOCAL_INV,
        CompletionKind::Bind => wc::BIND_MW,
        CompletionKind::Receive => wc::RECV,
        CompletionKind::ReceiveWriteImmediate => wc::RECV_RDMA_WITH_IMM,
    }
}

pub(crate) fn status_of(value: Status) -> u32 {
    match value {
        Status::Success => status::SUCCESS,
        Status::LocalLength => status::LOC_LEN_ERR,
        Status::LocalOperation => status::LOC_QP_OP_ERR,
        Status::LocalProtection => status::LOC_PROT_ERR,
        Status::LocalAccess => status::LOC_ACCESS_ERR,
        Status::Binding => status::MW_BIND_ERR,
        Status::Flushed => status::WR_FLUSH_ERR,
        Status::BadResponse => status::BAD_RESP_ERR,
        Status::RemoteInvalidRequest => status::REM_INV_REQ_ERR,
        Status::RemoteAccess => status::REM_ACCESS_ERR,
        Status::RemoteOperation => status::REM_OP_ERR,
        Status::RetryExceeded => status::RETRY_EXC_ERR,
        Status::RnrRetryExceeded => status::RNR_RETRY_EXC_ERR,
    }
}
