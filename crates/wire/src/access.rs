//! Access flags of memory regions, memory windows and queue pairs.
//!
//! The bits are those of `ibv_access_flags`. The set-up exchange carries them on the wire.

use core::fmt;

use crate::field::{Field, Show};
use crate::number::write_flag_names;

bitflags::bitflags! {
    /// Operations that a memory region (MR), a memory window (MW) or a queue pair (QP) permits.
    ///
    /// [`AccessFlags::from_bits_retain`] keeps unknown bits, so that a value from C or from the wire is passed on
    /// unchanged.
    ///
    /// ```
    /// use ferroce_wire::access::AccessFlags;
    ///
    /// let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    /// assert!(access.contains(AccessFlags::REMOTE_READ));
    /// assert_eq!(access.bits(), 0x5);
    /// ```
    #[doc(alias = "ibv_access_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// Receives, RDMA READ responses and atomic results may be written to it by its owner.
        #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
        const LOCAL_WRITE = 1 << 0;
        /// Remote RDMA WRITE. An MR needs `LOCAL_WRITE` as well (IBA 11.2.8.2).
        #[doc(alias = "IBV_ACCESS_REMOTE_WRITE")]
        const REMOTE_WRITE = 1 << 1;
        /// Remote RDMA READ.
        #[doc(alias = "IBV_ACCESS_REMOTE_READ")]
        const REMOTE_READ = 1 << 2;
        /// Remote atomics. An MR needs `LOCAL_WRITE` as well (IBA 11.2.8.2).
        #[doc(alias = "IBV_ACCESS_REMOTE_ATOMIC")]
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the MR.
        #[doc(alias = "IBV_ACCESS_MW_BIND")]
        const MW_BIND = 1 << 4;
        /// Addresses of the MR or MW start at zero.
        #[doc(alias = "IBV_ACCESS_ZERO_BASED")]
        const ZERO_BASED = 1 << 5;
        /// On-demand paging (ODP): pages are faulted in when they are accessed.
        #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
        const ON_DEMAND = 1 << 6;
        /// The memory is backed by huge pages.
        #[doc(alias = "IBV_ACCESS_HUGETLB")]
        const HUGETLB = 1 << 7;
        /// Remote FLUSH to global visibility (IBA A19).
        #[doc(alias = "IBV_ACCESS_FLUSH_GLOBAL")]
        const FLUSH_GLOBAL = 1 << 8;
        /// Remote FLUSH to persistence (IBA A19).
        #[doc(alias = "IBV_ACCESS_FLUSH_PERSISTENT")]
        const FLUSH_PERSISTENT = 1 << 9;
        /// Writes may become visible in any order.
        #[doc(alias = "IBV_ACCESS_RELAXED_ORDERING")]
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Field for AccessFlags {
    const IS_NUMBER: bool = true;

    #[inline(always)]
    fn load(bytes: &[u8], bit: usize, width: usize) -> Self {
        Self::from_bits_retain(u32::load(bytes, bit, width))
    }

    #[inline(always)]
    fn store(&self, bytes: &mut [u8], bit: usize, width: usize) {
        self.bits().store(bytes, bit, width);
    }

    #[inline(always)]
    fn number(&self) -> u64 {
        u64::from(self.bits())
    }
}

impl fmt::Display for AccessFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.bits())
    }
}

impl Show for AccessFlags {
    fn value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }

    fn meaning(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = <Self as bitflags::Flags>::FLAGS.iter();
        write_flag_names(f, self.bits(), names.map(|flag| (flag.name(), flag.value().bits())))
    }
}
