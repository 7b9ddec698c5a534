//! Asynchronous events.

use std::ffi::c_int;
use std::ptr;

use ferroce::{EventKind, Source};

use crate::abi::constants::event;
use crate::abi::context::ibv_context;
use crate::abi::objects::{ibv_async_event, ibv_cq, ibv_qp, ibv_srq};
use crate::acknowledge;
use crate::entry::{self, Next, Result};
use crate::fd::until_readable;
use crate::handle::Handle;
use crate::handle::context::ContextHandle;
use crate::handle::cq::CqHandle;
use crate::handle::qp::QpHandle;
use crate::handle::srq::SrqHandle;

fn code(kind: EventKind) -> u32 {
    match kind {
        EventKind::Established => event::COMM_EST,
        EventKind::SendQueueDrained => event::SQ_DRAINED,
        EventKind::LastReceiveReached => event::QP_LAST_WQE_REACHED,
        EventKind::RequestRefused => event::QP_REQ_ERR,
        EventKind::AccessRefused => event::QP_ACCESS_ERR,
        EventKind::LimitReached => event::SRQ_LIMIT_REACHED,
        EventKind::CompletionLost => event::CQ_ERR,
        EventKind::PortActive => event::PORT_ACTIVE,
        EventKind::PortError => event::PORT_ERR,
        EventKind::DeviceFatal => event::DEVICE_FATAL,
        // Kinds that are added later are reported as fatal for the QP.
        _ => event::QP_FATAL,
    }
}

pub(crate) unsafe extern "C-unwind" fn get_async_event(
    context: *mut ibv_context,
    out: *mut ibv_async_event,
) -> c_int {
    entry::waiting(|| {
        // SAFETY: the program's context, and its descriptor.
        let (open, fd) = unsafe { (&ContextHandle::of(context)?.open, (*context).async_fd) };
        while let Some(found) = open.context.try_event()? {
            let element = match found.source {
                Source::Device => Some(1),
                source => open.source(source),
            };
            // The object may have been destroyed.
            let Some(element) = element else { continue };
            // SAFETY: the program's structure.
            *unsafe { entry::write(out) }? =
                ibv_async_event { element, event_type: code(found.kind) };
            return Ok(Next::Done);
        }
        open.context.stop_polling();
        until_readable(fd)
    })
}

pub(crate) unsafe extern "C" fn ack_async_event(kind: *mut ibv_async_event) {
    entry::nothing(|| {
        // SAFETY: the program's structure.
        let kind = unsafe { entry::read(kind) }?;
        // SAFETY: the object is not destroyed before its events are acknowledged.
        unsafe { count(kind) }
    });
}

/// # Safety
/// The event came from this library, and was not acknowledged before.
unsafe fn count(kind: &ibv_async_event) -> Result<()> {
    // SAFETY: as the caller promises; an object is not destroyed before its events are acknowledged.
    let (unacknowledged, mutex, cond, counter) = unsafe {
        match kind.event_type {
            event::SRQ_LIMIT_REACHED => {
                let srq = ptr::with_exposed_provenance_mut::<ibv_srq>(kind.element);
                let events = &SrqHandle::of(srq)?.events;
                let counter = &raw mut (*srq).events_completed;
                (events, &raw mut (*srq).mutex, &raw mut (*srq).cond, counter)
            }
            event::CQ_ERR => {
                let cq = ptr::with_exposed_provenance_mut::<ibv_cq>(kind.element);
                let events = &CqHandle::of(cq.cast())?.errors;
                let counter = &raw mut (*cq).async_events_completed;
                (events, &raw mut (*cq).mutex, &raw mut (*cq).cond, counter)
            }
            event::DEVICE_FATAL | event::PORT_ACTIVE | event::PORT_ERR => return Ok(()),
            _ => {
                let qp = ptr::with_exposed_provenance_mut::<ibv_qp>(kind.element);
                let events = &QpHandle::of(qp.cast())?.events;
                let counter = &raw mut (*qp).events_completed;
                (events, &raw mut (*qp).mutex, &raw mut (*qp).cond, counter)
            }
        }
    };
    // SAFETY: as above.
    unsafe { acknowledge::show(mutex, cond, counter, 1) };
    unacknowledged.acknowledge(1);
    Ok(())
}
