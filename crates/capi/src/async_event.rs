//! Events that no completion tells.

use std::ffi::c_int;
use std::ptr;

use ferroce::{Source, What};

use crate::abi::constants::event;
use crate::abi::context::ibv_context;
use crate::abi::objects::{ibv_async_event, ibv_cq, ibv_qp, ibv_srq};
use crate::completion::QueueHandle;
use crate::context::{ContextHandle, until_readable};
use crate::entry::{self, Next, Result};
use crate::handle::Handle;
use crate::queue_pair::QueuePairHandle;
use crate::shared_receive::ReceiveHandle;

fn code(what: What) -> u32 {
    match what {
        What::Established => event::COMM_EST,
        What::SendQueueDrained => event::SQ_DRAINED,
        What::LastReceiveReached => event::QP_LAST_WQE_REACHED,
        What::RequestRefused => event::QP_REQ_ERR,
        What::AccessRefused => event::QP_ACCESS_ERR,
        What::LimitReached => event::SRQ_LIMIT_REACHED,
        What::CompletionLost => event::CQ_ERR,
        What::PortActive => event::PORT_ACTIVE,
        What::PortError => event::PORT_ERR,
        What::DeviceFatal => event::DEVICE_FATAL,
        // Whatever comes to be known later ends a queue pair, as far as a program of today can tell.
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
            // What it is about may be gone.
            let Some(element) = element else { continue };
            // SAFETY: the program's structure.
            *unsafe { entry::write(out) }? =
                ibv_async_event { element, event_type: code(found.what) };
            return Ok(Next::Done);
        }
        open.context.rest();
        until_readable(fd)
    })
}

pub(crate) unsafe extern "C" fn ack_async_event(what: *mut ibv_async_event) {
    entry::nothing(|| {
        // SAFETY: the program's structure.
        let what = unsafe { entry::read(what) }?;
        // SAFETY: the object is not destroyed before its events are acknowledged.
        unsafe { acknowledge(what) }
    });
}

/// # Safety
/// The event came from us, and was not acknowledged before.
unsafe fn acknowledge(what: &ibv_async_event) -> Result<()> {
    let events = match what.event_type {
        event::SRQ_LIMIT_REACHED => {
            let object = ptr::with_exposed_provenance::<ibv_srq>(what.element);
            // SAFETY: as the caller says.
            &unsafe { ReceiveHandle::of(object) }?.events
        }
        event::CQ_ERR => {
            let object = ptr::with_exposed_provenance::<ibv_cq>(what.element);
            // SAFETY: as the caller says.
            &unsafe { QueueHandle::of(object.cast()) }?.errors
        }
        event::DEVICE_FATAL | event::PORT_ACTIVE | event::PORT_ERR => return Ok(()),
        _ => {
            let object = ptr::with_exposed_provenance::<ibv_qp>(what.element);
            // SAFETY: as the caller says.
            &unsafe { QueuePairHandle::of(object.cast()) }?.events
        }
    };
    events.acknowledge(1);
    Ok(())
}
