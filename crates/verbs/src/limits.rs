//! What a device allows: the fields of `ibv_device_attr` that have a meaning here.

use crate::device::Device;

/// The limits of a device. They are those of numbers on the wire and of memory, not of silicon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs of one process.
    pub max_qp: u32,
    /// Work requests of one queue.
    pub max_qp_wr: u32,
    /// SGEs of one work request.
    pub max_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Completions of one queue.
    pub max_cqe: u32,
    /// Memory regions and windows.
    pub max_mr: u32,
    /// Bytes of one region.
    pub max_mr_size: u64,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics that one queue pair may have under way, either way.
    pub max_rd_atomic: u8,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Multicast groups of one queue pair.
    pub max_mcast_grp: u32,
    /// Places in the table of GIDs, of which those that are not in use are empty.
    pub gid_tbl_len: u16,
}

/// There is room for more addresses than an interface has, as every device has it.
const GIDS: u16 = 128;

impl Limits {
    /// Most inline bytes of a work request, of any device and queue pair.
    pub const MAX_INLINE_DATA: u32 = 1024;

    pub(crate) fn of(device: &Device) -> Self {
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
            gid_tbl_len: u16::try_from(device.gids().len()).unwrap_or(u16::MAX).max(GIDS),
        }
    }
}
