//! Protection domains: what of a process may be used together (IBA 10.2.3).

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
    /// Regions, queue pairs and the like that are in it.
    pub(crate) users: AtomicUsize,
}

/// A protection domain. Clones are the same one.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(crate) shared: Arc<Shared>,
}

/// Counts as a user of a domain while it exists.
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

    /// The device.
    pub fn context(&self) -> &Context {
        &self.shared.context
    }

    pub(crate) fn pd(&self) -> PdId {
        self.shared.pd
    }

    /// How many regions, windows, queue pairs, shared receive queues and address handles are in it.
    pub fn users(&self) -> usize {
        self.shared.users.load(Ordering::Relaxed)
    }

    /// Registers new memory of so many bytes, all zeroes.
    ///
    /// # Errors
    ///
    /// When there is no memory, or the access flags contradict each other.
    pub fn allocate(
        &self,
        length: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, MemoryError> {
        let buffer = Buffer::new(length).map_err(|_| MemoryError::Allocate { length })?;
        self.register_buffer(&Arc::new(buffer), access)
    }

    /// Registers memory that is ours.
    ///
    /// # Errors
    ///
    /// When the access flags contradict each other.
    pub fn register_buffer(
        &self,
        buffer: &Arc<Buffer>,
        access: AccessFlags,
    ) -> Result<MemoryRegion, MemoryError> {
        let iova = VirtualAddress(buffer.address() as u64);
        self.register_part(buffer, 0, buffer.len(), iova, access)
    }

    /// Registers a part of memory that is ours, the first byte of which is to have the address `iova`.
    ///
    /// # Errors
    ///
    /// When the buffer has no such part, or the access flags contradict each other.
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

    /// Registers a program's own memory, the first byte of which is to have the address `iova` for peers and work
    /// requests.
    ///
    /// # Errors
    ///
    /// When it is not mapped, or not as the flags want it.
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

    /// A region that takes what is written and gives zeroes.
    ///
    /// # Errors
    ///
    /// When there are no keys left.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn null_region(&self) -> Result<MemoryRegion, MemoryError> {
        let keys = self.context().adapter().memory.register_null(self.pd())?;
        Ok(MemoryRegion::new(self.join(), keys, VirtualAddress(0), u64::MAX, None))
    }

    /// A memory window, not bound yet.
    ///
    /// # Errors
    ///
    /// When there are no keys left.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn window(&self, kind: WindowKind) -> Result<MemoryWindow, MemoryError> {
        let key = self.context().adapter().memory.allocate_window(self.pd(), kind)?;
        Ok(MemoryWindow::new(self.join(), key, kind))
    }

    /// Whether both are the same domain.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("domain", &self.shared.pd).finish_non_exhaustive()
    }
}
