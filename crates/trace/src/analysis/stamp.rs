//! Position of a packet in the file and in a conversation, shared by all trackers.

/// Position and time of a packet in the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp {
    /// Number in the file.
    pub(super) frame: u64,
    /// Packet within that frame, counted from 1, if it holds several; otherwise 0.
    pub(super) segment: u32,
    /// Nanoseconds since the file's first packet.
    pub(super) time: i64,
}

/// One direction of one conversation, by its index in the flow table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) conversation: usize,
    /// Whether the sender is the side whose packet was seen first.
    pub(super) from_a: bool,
}
