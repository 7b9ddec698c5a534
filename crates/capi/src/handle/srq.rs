//! The handle of a shared receive queue (SRQ).

use std::sync::Arc;

use ferroce::SharedReceiveQueue;

use super::context::OpenDevice;
use super::{Shown, handle};
use crate::abi::objects::ibv_srq;
use crate::acknowledge::Unacknowledged;

#[repr(C)]
pub(crate) struct SrqHandle {
    pub(crate) shown: Shown<ibv_srq>,
    pub(crate) queue: SharedReceiveQueue,
    pub(crate) events: Arc<Unacknowledged>,
    pub(crate) max_sge: u32,
    pub(crate) open: Arc<OpenDevice>,
}

handle!(SrqHandle, shown, ibv_srq);
