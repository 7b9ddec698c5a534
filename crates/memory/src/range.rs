//! A range of memory to register.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use crate::buffer::{Buffer, OutOfBounds};

/// What keeps the memory of a region mapped and free of other references than to atomics.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// A range of memory for one registration, which consumes it.
///
/// [`AddressRange::of`] and [`AddressRange::of_buffer`] are safe: the region holds a reference to the owner of the memory.
/// Creating one of addresses is unsafe, and the caller promises what [`AddressRange::new`] requires. Everything after that is
/// safe, so it can be passed through crates that forbid unsafe code; and it cannot be copied, because the promise is made for
/// one registration.
#[derive(Debug)]
pub struct AddressRange {
    address: usize,
    length: usize,
    owner: Option<Owner>,
}

impl AddressRange {
    /// The `length` bytes at `address`. They need not be mapped: registering checks that.
    ///
    /// # Safety
    /// While it is registered, the range stays mapped, and its bytes may change at any time: there is no Rust reference to
    /// them except to atomics or cells, and memory that a peer may write holds no value with validity requirements.
    pub const unsafe fn new(address: usize, length: usize) -> Self {
        Self { address, length, owner: None }
    }

    /// The whole address space, for an implicit on-demand region, as `ibv_reg_mr` spells it.
    ///
    /// # Safety
    /// As [`AddressRange::new`] for all memory whose address and key a work request or a peer uses, except that it may be
    /// unmapped at any time.
    pub const unsafe fn everything() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::new(0, usize::MAX) }
    }

    /// Memory of the program that consists of atomics, such as an `Arc<Vec<AtomicU8>>` or a type that owns a mapping. The
    /// region holds a reference until it is deregistered.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::AtomicU8;
    ///
    /// use ferroce_memory::AddressRange;
    ///
    /// let memory: Arc<Vec<AtomicU8>> = Arc::new((0..4096).map(|_| AtomicU8::new(0)).collect());
    /// let range = AddressRange::of(Arc::clone(&memory));
    /// assert_eq!(range.length(), 4096);
    /// ```
    pub fn of<T: AsRef<[AtomicU8]> + Send + Sync + 'static>(owner: Arc<T>) -> Self {
        // The bytes are borrowed from the owner, so they are valid as long as it is shared and exists, which the reference to
        // it ensures.
        let bytes: &[AtomicU8] = (*owner).as_ref();
        let (address, length) = (bytes.as_ptr().expose_provenance(), bytes.len());
        Self { address, length, owner: Some(owner) }
    }

    /// A part of a buffer.
    ///
    /// # Errors
    ///
    /// When it is not within the buffer.
    pub fn of_buffer(
        buffer: &Arc<Buffer>,
        offset: usize,
        length: usize,
    ) -> Result<Self, OutOfBounds> {
        offset.checked_add(length).filter(|&end| end <= buffer.len()).ok_or(OutOfBounds)?;
        let owner: Owner = Arc::<Buffer>::clone(buffer);
        Ok(Self { address: buffer.address() + offset, length, owner: Some(owner) })
    }

    /// The first address.
    pub const fn address(&self) -> usize {
        self.address
    }

    /// The length in bytes.
    pub const fn length(&self) -> usize {
        self.length
    }

    /// The buffer that it is a part of, and its offset in the buffer.
    pub fn buffer(&self) -> Option<(Arc<Buffer>, usize)> {
        let buffer = Arc::downcast::<Buffer>(Arc::clone(self.owner.as_ref()?)).ok()?;
        let offset = self.address - buffer.address();
        Some((buffer, offset))
    }

    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// Another one, for another attempt at the same registration.
    pub(crate) fn duplicate(&self) -> Self {
        Self { owner: self.owner.clone(), ..*self }
    }

    pub(crate) fn is_everything(&self) -> bool {
        (self.address, self.length) == (0, usize::MAX) && self.owner.is_none()
    }
}
