//! Protection domains (PD): which resources may be used together (IBA 10.2.3).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferroce_memory::{AddressRange, Buffer, WindowKind};
use ferroce_proto::memory::{AccessFlags, PdId};
use ferroce_wire::number::VirtualAddress;

use crate::context::Context;
use crate::error::MemoryError;
use crate::region::{MemoryRegion, MemoryWindow};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) context: Context,
    pub(crate) pd: PdId,
    /// Resources in the PD.
    pub(crate) users: AtomicUsize,
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

impl ProtectionDomain {
    pub(crate) fn new(context: Context) -> Self {
        let pd = context.adapter().new_pd();
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

    /// Allocates and registers zeroed memory.
    ///
    /// # Errors
    ///
    /// When memory is exhausted, or the access flags are inconsistent.
    pub fn allocate(
        &self,
        length: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, MemoryError> {
        let buffer = Buffer::new(length).map_err(|_| MemoryError::Allocate { length })?;
        self.register_buffer(&Arc::new(buffer), access)
    }

    /// Registers a [`Buffer`].
    ///
    /// # Errors
    ///
    /// When the access flags are inconsistent.
    pub fn register_buffer(
        &self,
        buffer: &Arc<Buffer>,
        access: AccessFlags,
    ) -> Result<MemoryRegion, MemoryError> {
        let iova = VirtualAddress(buffer.address() as u64);
        self.register_part(buffer, 0, buffer.len(), iova, access)
    }

    /// Registers a part of a [`Buffer`] at the address `iova`.
    ///
    /// # Errors
    ///
    /// When the part is out of bounds, or the access flags are inconsistent.
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn register_part(
        &self,
        buffer: &Arc<Buffer>,
        offset: usize,
        length: usize,
        iova: VirtualAddress,
        access: AccessFlags,
    ) -> Result<MemoryRegion, MemoryError> {
        let memory = &self.context().adapter().memory;
        let keys = memory.register_buffer(self.pd(), buffer, offset, length, iova, access)?;
        let buffer = Some(Arc::clone(buffer));
        Ok(MemoryRegion::new(self.join(), keys, iova, length as u64, buffer))
    }

    /// Registers memory of the program at the address `iova`, which work requests and peers use.
    ///
    /// # Errors
    ///
    /// When the range is not mapped, or not with the permissions that the access flags need.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(
        &self,
        range: AddressRange,
        iova: VirtualAddress,
        access: AccessFlags,
    ) -> Result<MemoryRegion, MemoryError> {
        let length = range.length() as u64;
        let keys = self.context().adapter().memory.register(self.pd(), range, iova, access)?;
        Ok(MemoryRegion::new(self.join(), keys, iova, length, None))
    }

    /// Creates a null MR: writes to it are discarded, and reads return zeroes.
    ///
    /// # Errors
    ///
    /// When no memory key is left.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn null_region(&self) -> Result<MemoryRegion, MemoryError> {
        let keys = self.context().adapter().memory.register_null(self.pd())?;
        Ok(MemoryRegion::new(self.join(), keys, VirtualAddress(0), u64::MAX, None))
    }

    /// Allocates an unbound memory window (MW).
    ///
    /// # Errors
    ///
    /// When no memory key is left.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn window(&self, kind: WindowKind) -> Result<MemoryWindow, MemoryError> {
        let key = self.context().adapter().memory.allocate_window(self.pd(), kind)?;
        Ok(MemoryWindow::new(self.join(), key, kind))
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
