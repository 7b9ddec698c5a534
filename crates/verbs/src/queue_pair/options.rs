//! Options for creating a queue pair.

use ferroce_proto::qp::{Capabilities, ServiceType};

use crate::completion::CompletionQueue;
use crate::shared_receive::SharedReceiveQueue;

/// Options for creating a queue pair (QP).
///
/// ```
/// use ferroce::{Capabilities, QueuePairOptions, ServiceType};
/// # use ferroce::{Context, Device, Options};
///
/// # fn main() -> Result<(), ferroce::Error> {
/// # let context = Context::open(&Device::named("lo")?, &Options::default())?;
/// # let pd = context.protection_domain();
/// # let cq = context.completion_queue(16, None)?;
/// let options = QueuePairOptions::new(ServiceType::ReliableConnection, &cq);
/// let capabilities = Capabilities { max_send_wr: 512, ..options.capabilities };
/// let qp = pd.queue_pair(&QueuePairOptions { capabilities, ..options })?;
/// assert_eq!(qp.capabilities().max_send_wr, 512);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_qp_init_attr")]
pub struct QueuePairOptions<'a> {
    /// The transport service.
    pub service: ServiceType,
    /// The CQ of the send queue.
    pub send_cq: &'a CompletionQueue,
    /// The CQ of the receive queue.
    pub recv_cq: &'a CompletionQueue,
    /// Sizes of the queues; 0 is the smallest possible size.
    pub capabilities: Capabilities,
    /// A shared receive queue (SRQ) that replaces the QP's own receive queue.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// Whether all send requests generate a completion, signaled or not.
    #[doc(alias = "sq_sig_all")]
    pub signal_all: bool,
}

impl<'a> QueuePairOptions<'a> {
    /// Returns the options of a QP whose queues hold 128 requests each and complete in one CQ.
    pub fn new(service: ServiceType, cq: &'a CompletionQueue) -> Self {
        Self {
            service,
            send_cq: cq,
            recv_cq: cq,
            capabilities: Capabilities {
                max_send_wr: 128,
                max_recv_wr: 128,
                max_send_sge: 16,
                max_recv_sge: 16,
                max_inline_data: 256,
            },
            srq: None,
            signal_all: false,
        }
    }
}
