//! A program's own memory, named.

/// Addresses of this process that may be registered.
///
/// This is where trust begins: to make one is unsafe, and whoever makes it promises what [`AddressRange::new`] asks for.
/// All that is done with it afterwards needs no further promise, so it can travel through code that forbids unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    address: usize,
    length: usize,
}

impl AddressRange {
    /// The whole address space, as `ibv_reg_mr` spells it for an implicit region.
    const EVERYTHING: Self = Self { address: 0, length: usize::MAX };

    /// `length` bytes from `address` on. They need not be mapped: registering looks.
    ///
    /// # Safety
    /// From the time it is registered until the end of its deregistration (see [`crate::Draining`]), the range stays
    /// mapped, and everything that uses it lets the bytes change at any time: no Rust reference to them is in use unless
    /// it is to atomics or cells, and what a peer may write holds no value that has to stay valid.
    pub const unsafe fn new(address: usize, length: usize) -> Self {
        Self { address, length }
    }

    /// The whole address space, to be registered on demand.
    ///
    /// # Safety
    /// As [`AddressRange::new`] for all memory that a work request or peer is given the key and an address for, except
    /// that it may be unmapped at any time.
    pub const unsafe fn everything() -> Self {
        Self::EVERYTHING
    }

    /// The first address.
    pub const fn address(self) -> usize {
        self.address
    }

    /// Bytes.
    pub const fn length(self) -> usize {
        self.length
    }

    pub(crate) fn is_everything(self) -> bool {
        self == Self::EVERYTHING
    }
}
