//! Protection domains (PD): which resources may be used together (IBA 10.2.3).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_proto::memory::PdId;

use crate::context::Context;

/// What a resource in a PD keeps of it.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) context: Context,
    pub(crate) pd: PdId,
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.context.adapter().counters.pds().fetch_sub(1, Ordering::Relaxed);
    }
}

/// A protection domain (PD): memory regions and queue pairs of different PDs do not work together. Clones share it.
///
/// ```
/// use ferroce::{AccessFlags, Context, Device, Options, QueuePairOptions, ServiceType};
///
/// # fn main() -> Result<(), ferroce::Error> {
/// # let context = Context::open(&Device::named("lo")?, &Options::default())?;
/// let pd = context.protection_domain();
/// let cq = context.completion_queue(16, None)?;
/// let mr = pd.allocate(4096, AccessFlags::LOCAL_WRITE)?;
/// let qp = pd.queue_pair(&QueuePairOptions::new(ServiceType::ReliableConnection, &cq))?;
/// assert_eq!(pd.users(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_pd")]
pub struct ProtectionDomain {
    /// The handles share the outer reference; each resource in the PD has an inner one, by which it is counted.
    #[allow(clippy::redundant_allocation)]
    pub(crate) domain: Arc<Arc<Domain>>,
}

impl Context {
    /// Creates a protection domain (PD).
    #[doc(alias = "ibv_alloc_pd")]
    pub fn protection_domain(&self) -> ProtectionDomain {
        let pd = self.adapter().tables.new_pd();
        self.adapter().counters.pds().fetch_add(1, Ordering::Relaxed);
        ProtectionDomain { domain: Arc::new(Arc::new(Domain { context: self.clone(), pd })) }
    }
}

impl ProtectionDomain {
    /// Returns a reference for a resource in the PD.
    pub(crate) fn join(&self) -> Arc<Domain> {
        Arc::clone(&self.domain)
    }

    /// Returns the context it was created from.
    pub fn context(&self) -> &Context {
        &self.domain.context
    }

    /// Returns the number of memory regions, windows, queue pairs, shared receive queues and address handles in the PD.
    pub fn users(&self) -> usize {
        Arc::<Domain>::strong_count(&self.domain) - 1
    }
}
