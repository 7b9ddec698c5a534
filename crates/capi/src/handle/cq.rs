//! The handles of a completion queue (CQ) and of a completion channel.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ferroce::{CompletionChannel, CompletionQueue, WorkCompletion};

use super::context::OpenDevice;
use super::{Handle, Shown, handle};
use crate::abi::extended::ibv_cq_ex;
use crate::abi::objects::{ibv_comp_channel, ibv_cq};
use crate::acknowledge::Unacknowledged;
use crate::entry::Result;

/// A completion queue. All are as large as an extended one, so that there is a single kind of handle.
#[repr(C)]
pub(crate) struct CqHandle {
    pub(crate) shown: Shown<ibv_cq_ex>,
    pub(crate) queue: CompletionQueue,
    pub(crate) events: Arc<Unacknowledged>,
    /// Asynchronous events that report an overrun of the CQ.
    pub(crate) errors: Arc<Unacknowledged>,
    pub(crate) open: Arc<OpenDevice>,
    /// The CQE at which a poll of the extended interface is positioned.
    pub(crate) current: Mutex<Option<WorkCompletion>>,
    pub(crate) channel: Option<Arc<ChannelEvents>>,
}

handle!(CqHandle, shown, ibv_cq_ex);

#[repr(C)]
pub(crate) struct ChannelHandle {
    pub(crate) shown: Shown<ibv_comp_channel>,
    pub(crate) events: Arc<ChannelEvents>,
    pub(crate) open: Arc<OpenDevice>,
}

handle!(ChannelHandle, shown, ibv_comp_channel);

/// The part of a channel that its CQs keep alive if the program destroys the channel first.
pub(crate) struct ChannelEvents {
    pub(crate) channel: CompletionChannel,
    /// The channel's CQs by id: the address of the program's object, and its unacknowledged events.
    pub(crate) queues: Mutex<HashMap<u64, (usize, Arc<Unacknowledged>)>>,
}

/// Returns the CQ behind a program's pointer, or `EINVAL` for null.
///
/// # Safety
/// The pointer is the program's CQ, or null.
pub(crate) unsafe fn queue_of<'a>(cq: *mut ibv_cq) -> Result<&'a CompletionQueue> {
    // SAFETY: as the caller promises.
    Ok(&unsafe { CqHandle::of(cq.cast()) }?.queue)
}
