//! Protection domains (PD): which resources may be used together (IBA 10.2.3).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferroce_proto::memory::PdId;

use crate::context::Context;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) context: Context,
    pub(crate) pd: PdId,
    /// Resources in the PD.
    pub(crate) users: AtomicUsize,
}

impl Drop for Shared {
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
#[derive(Clone)]
#[doc(alias = "ibv_pd")]
pub struct ProtectionDomain {
    pub(crate) shared: Arc<Shared>,
}

/// A reference to a PD, counted in [`ProtectionDomain::users`].
#[derive(Debug)]
pub(crate) struct Membership(pub(crate) Arc<Shared>);

impl Membership {
    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Context {
    /// Creates a protection domain (PD).
    #[doc(alias = "ibv_alloc_pd")]
    pub fn protection_domain(&self) -> ProtectionDomain {
        ProtectionDomain::new(self.clone())
    }
}

impl ProtectionDomain {
    fn new(context: Context) -> Self {
        let pd = context.adapter().tables.new_pd();
        context.adapter().counters.pds().fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::new(Shared { context, pd, users: AtomicUsize::new(0) }) }
    }

    pub(crate) fn join(&self) -> Membership {
        self.shared.users.fetch_add(1, Ordering::Relaxed);
        Membership(Arc::clone(&self.shared))
    }

    /// Returns the context it was created from.
    pub fn context(&self) -> &Context {
        &self.shared.context
    }

    pub(crate) fn pd(&self) -> PdId {
        self.shared.pd
    }

    /// Returns the number of memory regions, windows, queue pairs, shared receive queues and address handles in the PD.
    pub fn users(&self) -> usize {
        self.shared.users.load(Ordering::Relaxed)
    }

    /// Whether both are the same PD.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("pd", &self.shared.pd).finish_non_exhaustive()
    }
}
