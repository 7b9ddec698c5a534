//! XRC domains (IBA A14).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_proto::receive;

use crate::context::Context;

static NEXT: AtomicU32 = AtomicU32::new(1);

/// An XRC domain (XRCD): its target QPs deliver to its shared receive queues. Clones share it.
///
/// ```
/// use ferroce::*;
///
/// # fn main() -> Result<(), Error> {
/// # let context = Context::open(&Device::named("lo")?, &Options::default())?;
/// # let pd = context.protection_domain();
/// # let cq = context.completion_queue(16, None)?;
/// let xrc = context.xrc_domain();
/// // A message of the peer's XRC initiator names the SRQ that it is for: one connection reaches all of them.
/// let queues = [pd.xrc_receive_queue(16, &xrc, &cq)?, pd.xrc_receive_queue(16, &xrc, &cq)?];
/// let target = xrc.target(&QueuePairOptions::new(ServiceType::XrcTarget, &cq))?;
/// assert_ne!(queues[0].number(), queues[1].number());
/// assert_eq!(target.state(), State::Reset);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_xrcd")]
#[derive(Clone, Debug)]
pub struct XrcDomain {
    shared: Arc<(Context, receive::XrcDomain)>,
}

impl Context {
    /// Creates an XRC domain of this process.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn xrc_domain(&self) -> XrcDomain {
        XrcDomain::new(self.clone())
    }
}

impl XrcDomain {
    fn new(context: Context) -> Self {
        let domain = receive::XrcDomain(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { shared: Arc::new((context, domain)) }
    }

    /// Returns the context it was created from.
    pub fn context(&self) -> &Context {
        &self.shared.0
    }

    /// Returns the number of target QPs, shared receive queues and other handles that refer to it.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }

    pub(crate) fn xrcd(&self) -> receive::XrcDomain {
        self.shared.1
    }
}
