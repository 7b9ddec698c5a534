//! The pcapng format (draft-ietf-opsawg-pcapng): sections of blocks.

mod batch;
mod options;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use batch::Batch;
pub(super) use read::Reader;
pub use write::PcapngWriter;

/// The type of a Section Header Block as bytes: the same in either byte order (section 4.1).
pub(super) const SECTION_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Indicates the byte order of a section (section 4.1).
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Section length -1: unknown (section 4.1).
const SECTION_LENGTH_UNKNOWN: i64 = -1;

/// Block types (section 10.1).
mod block_type {
    pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
    pub(super) const PACKET: u32 = 2;
    pub(super) const SIMPLE_PACKET: u32 = 3;
    pub(super) const INTERFACE_STATISTICS: u32 = 5;
    pub(super) const ENHANCED_PACKET: u32 = 6;
}

/// Options (sections 3.5, 4.1, 4.2, 4.3, 4.6). Their codes have a meaning per block type.
mod option_code {
    pub(super) const END: u16 = 0;
    pub(super) const COMMENT: u16 = 1;
    /// In a Section Header Block.
    pub(super) const SECTION_APPLICATION: u16 = 4;
    /// In an Interface Description Block.
    pub(super) const INTERFACE_NAME: u16 = 2;
    pub(super) const INTERFACE_DESCRIPTION: u16 = 3;
    pub(super) const INTERFACE_RESOLUTION: u16 = 9;
    pub(super) const INTERFACE_TIME_OFFSET: u16 = 14;
    /// In an Enhanced Packet Block, and in the obsolete Packet Block.
    pub(super) const PACKET_FLAGS: u16 = 2;
    /// In an Enhanced Packet Block.
    pub(super) const PACKET_DROP_COUNT: u16 = 4;
    /// In an Interface Statistics Block.
    pub(super) const PACKETS_RECEIVED: u16 = 4;
    pub(super) const PACKETS_DROPPED: u16 = 5;
    pub(super) const PACKETS_DROPPED_BY_SYSTEM: u16 = 7;
}

/// The type and length at a block's start (section 3.1).
const BLOCK_HEADER_LEN: usize = 8;
/// The length repeated at its end.
const BLOCK_TRAILER_LEN: usize = 4;
/// A block without a body.
const MIN_BLOCK_LEN: usize = BLOCK_HEADER_LEN + BLOCK_TRAILER_LEN;

/// From the start of the block to its options or, for packets, to the data.
const SECTION_FIXED_LEN: usize = 24;
const INTERFACE_FIXED_LEN: usize = 16;
const PACKET_FIXED_LEN: usize = 28;
const SIMPLE_PACKET_FIXED_LEN: usize = 12;
const STATISTICS_FIXED_LEN: usize = 20;

/// The direction in a packet's flags (section 4.3.1).
const DIRECTION_MASK: u32 = 0b11;
const DIRECTION_INBOUND: u32 = 0b01;
const DIRECTION_OUTBOUND: u32 = 0b10;
