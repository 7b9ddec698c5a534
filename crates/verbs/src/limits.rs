//! What a device allows: the fields of `ibv_device_attr` that have a meaning here.

use crate::device::Device;

/// The limits of a device. They are those of numbers on the wire and of memory, not of silicon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs of one process.
    pub queue_pairs: u32,
    /// Work requests of one queue.
    pub requests: u32,
    /// Spans of one work request.
    pub spans: u32,
    /// Bytes of inline data.
    pub inline_bytes: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Completions of one queue.
    pub completions: u32,
    /// Memory regions and windows.
    pub regions: u32,
    /// Bytes of one region.
    pub region_bytes: u64,
    /// Protection domains.
    pub domains: u32,
    /// READs and atomics that one queue pair may have under way, either way.
    pub reads: u8,
    /// Shared receive queues.
    pub receive_queues: u32,
    /// Multicast groups of one queue pair.
    pub groups: u32,
    /// Places in the table of GIDs, of which those that are not in use are empty.
    pub gids: u16,
}

/// There is room for more addresses than an interface has, as every device has it.
const GIDS: u16 = 128;

impl Limits {
    /// Most inline bytes of a work request, of any device and queue pair.
    pub const INLINE_BYTES: u32 = 1024;

    pub(crate) fn of(device: &Device) -> Self {
        Self {
            queue_pairs: 65_520,
            requests: 1 << 20,
            spans: 32,
            inline_bytes: Self::INLINE_BYTES,
            completion_queues: 1 << 20,
            completions: 1 << 22,
            regions: 1 << 20,
            region_bytes: u64::MAX,
            domains: 1 << 20,
            reads: 128,
            receive_queues: 65_520,
            groups: 256,
            gids: u16::try_from(device.gids().len()).unwrap_or(u16::MAX).max(GIDS),
        }
    }
}
