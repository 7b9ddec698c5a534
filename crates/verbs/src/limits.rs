//! Device limits: the fields of `ibv_device_attr` that apply to this device.

/// The limits of a device. They follow from the wire format and from memory, not from hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_device_attr")]
#[non_exhaustive]
pub struct Limits {
    /// Queue pairs (QP) of a process.
    pub max_qp: u32,
    /// Work requests (WR) of a queue.
    pub max_qp_wr: u32,
    /// SGEs of a work request.
    pub max_sge: u32,
    /// Bytes of inline data of a work request.
    pub max_inline_data: u32,
    /// Completion queues (CQ).
    pub max_cq: u32,
    /// Entries (CQE) of a completion queue.
    pub max_cqe: u32,
    /// Memory regions (MR) and windows (MW).
    pub max_mr: u32,
    /// Bytes of a memory region.
    pub max_mr_size: u64,
    /// Protection domains (PD).
    pub max_pd: u32,
    /// Outstanding READs and atomics of a queue pair, in each direction.
    pub max_rd_atomic: u8,
    /// Shared receive queues (SRQ).
    pub max_srq: u32,
    /// Multicast groups of a queue pair.
    pub max_mcast_grp: u32,
    /// Entries of the GID table; unused ones are empty.
    pub gid_tbl_len: u16,
}

/// The smallest GID table: most devices have more entries than their interface has addresses.
const MIN_GID_TABLE_LEN: u16 = 128;

impl Limits {
    /// Maximum inline data of a work request, for any device and queue pair.
    pub const MAX_INLINE_DATA: u32 = 1024;

    /// Returns the limits of a device with so many GIDs.
    pub(crate) fn new(gids: usize) -> Self {
        Self {
            max_qp: 65_520,
            max_qp_wr: 1 << 20,
            max_sge: 32,
            max_inline_data: Self::MAX_INLINE_DATA,
            max_cq: 1 << 20,
            max_cqe: 1 << 22,
            max_mr: 1 << 20,
            max_mr_size: u64::MAX,
            max_pd: 1 << 20,
            max_rd_atomic: 128,
            max_srq: 65_520,
            max_mcast_grp: 256,
            gid_tbl_len: u16::try_from(gids).unwrap_or(u16::MAX).max(MIN_GID_TABLE_LEN),
        }
    }
}
