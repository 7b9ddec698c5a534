//! A range of the program's memory.

/// A range of addresses of this process that may be registered.
///
/// Creating one is unsafe, and the caller promises what [`AddressRange::new`] requires. Everything after that is safe, so
/// it can be passed through crates that forbid unsafe code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    address: usize,
    length: usize,
}

impl AddressRange {
    /// The whole address space, as `ibv_reg_mr` spells it for an implicit region.
    const EVERYTHING: Self = Self { address: 0, length: usize::MAX };

    /// The `length` bytes at `address`. They need not be mapped: registering checks that.
    ///
    /// # Safety
    /// While it is registered, the range stays mapped, and its bytes may change at any time: there is no Rust reference to
    /// them except to atomics or cells, and memory that a peer may write holds no value with validity requirements.
    pub const unsafe fn new(address: usize, length: usize) -> Self {
        Self { address, length }
    }

    /// The whole address space, for an implicit on-demand region.
    ///
    /// # Safety
    /// As [`AddressRange::new`] for all memory whose address and key a work request or a peer uses, except that it may be
    /// unmapped at any time.
    pub const unsafe fn everything() -> Self {
        Self::EVERYTHING
    }

    /// The first address.
    pub const fn address(self) -> usize {
        self.address
    }

    /// The length in bytes.
    pub const fn length(self) -> usize {
        self.length
    }

    pub(crate) fn is_everything(self) -> bool {
        self == Self::EVERYTHING
    }
}
