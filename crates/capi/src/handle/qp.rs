//! The handle of a queue pair (QP), with the WRs that the extended interface is assembling.

use std::sync::{Arc, Mutex};

use ferroce::{QKey, Qpn, QueuePair, SendRequest, ServiceType, State};

use super::context::OpenDevice;
use super::{Shown, handle};
use crate::abi::extended::ibv_qp_ex;
use crate::acknowledge::Unacknowledged;
use crate::entry::Errno;

/// A queue pair. All are as large as an extended one, so that there is a single kind of handle.
#[repr(C)]
pub(crate) struct QpHandle {
    pub(crate) shown: Shown<ibv_qp_ex>,
    pub(crate) queue_pair: QueuePair,
    pub(crate) service: ServiceType,
    pub(crate) signal_all: bool,
    pub(crate) events: Arc<Unacknowledged>,
    /// The batch of the extended interface; `None` if the QP was created without it.
    pub(crate) batch: Option<Mutex<Batch>>,
    pub(crate) open: Arc<OpenDevice>,
}

handle!(QpHandle, shown, ibv_qp_ex);

impl QpHandle {
    /// Writes the public `state`, as rdma-core does when a program changes the state or queries it. A change that the
    /// program did not request, to the error state for instance, leaves the field as it is: UCX relies on that.
    pub(crate) fn show_state(&self, state: State) {
        let shown = self.shown.pointer();
        // SAFETY: the handle's own field. No reference: another thread may be counting events in the same structure.
        unsafe { (&raw mut (*shown).qp_base.state).write(state.code()) };
    }
}

/// The WRs between `ibv_wr_start` and `ibv_wr_complete`.
pub(crate) struct Batch {
    /// The operations that the QP was created for.
    pub(crate) operations: u64,
    pub(crate) requests: Vec<BatchedRequest>,
    /// The first error, reported by `ibv_wr_complete`.
    pub(crate) failed: Option<Errno>,
}

pub(crate) struct BatchedRequest {
    pub(crate) request: SendRequest,
    /// UD: the address of the AH, the remote QPN and the Q_Key.
    pub(crate) datagram: Option<(usize, Qpn, QKey)>,
}

impl Batch {
    pub(crate) fn new(operations: u64) -> Self {
        Self { operations, requests: Vec::new(), failed: None }
    }
}
