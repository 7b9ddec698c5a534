//! The wire format of streams: private data of the connection manager, and 32 bits of immediate data with every RDMA
//! WRITE (rdma-core, `librdmacm/docs/rsocket`). Depends on no other module.

/// The only version of the private data.
const VERSION: u8 = 1;
/// Flag: the host's byte order is big-endian.
const FLAG_NETWORK_ORDER: u8 = 1;
/// Flag: a table of mapped buffers follows the target list.
const FLAG_MAPS: u8 = 2;

/// Length of the private data.
pub(crate) const CONNECT_BYTES: usize = 40;
/// Length of a [`Target`] in memory.
pub(crate) const TARGET_BYTES: usize = 16;
/// Length of an [`IoMap`] in memory.
pub(crate) const MAP_BYTES: usize = 24;
/// The largest number of bytes that one message can announce.
pub(crate) const MAX_MESSAGE_BYTES: u32 = (1 << 29) - 1;

/// A message of a stream, carried as immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamMessage {
    /// This number of bytes was written to the receive buffer.
    Data(u32),
    /// The receiver may send data messages up to this sequence number. If the message carried bytes, they are a new
    /// target.
    Credits(u16),
    /// This entry of the table of mapped buffers was written.
    Mapped(u16),
    /// Neither side sends any more.
    Disconnect,
    /// No effect: checks that the peer is reachable.
    KeepAlive,
    /// The sender sends no more.
    Shutdown,
    /// A message of a later version, ignored.
    Unknown(u32),
}

/// Message types, in the upper three bits.
mod kind {
    pub(super) const DATA: u32 = 0;
    pub(super) const CREDITS: u32 = 4;
    pub(super) const MAPPED: u32 = 6;
    pub(super) const CONTROL: u32 = 7;
}

impl StreamMessage {
    const SHIFT: u32 = 29;

    /// Parses immediate data.
    pub(crate) fn from_immediate(immediate: u32) -> Self {
        let value = immediate & MAX_MESSAGE_BYTES;
        match (immediate >> Self::SHIFT, value) {
            (kind::DATA, bytes) => Self::Data(bytes),
            // Sequence numbers have 16 bits; rdma-core leaves a carry above them.
            (kind::CREDITS, value) => Self::Credits(value as u16),
            (kind::MAPPED, value) => Self::Mapped(value as u16),
            (kind::CONTROL, 0) => Self::Disconnect,
            (kind::CONTROL, 1) => Self::KeepAlive,
            (kind::CONTROL, 2) => Self::Shutdown,
            _ => Self::Unknown(immediate),
        }
    }

    /// Encodes the message as immediate data.
    pub(crate) fn immediate(self) -> u32 {
        let encode = |kind: u32, value: u32| kind << Self::SHIFT | value & MAX_MESSAGE_BYTES;
        match self {
            Self::Data(bytes) => encode(kind::DATA, bytes),
            Self::Credits(limit) => encode(kind::CREDITS, limit.into()),
            Self::Mapped(index) => encode(kind::MAPPED, index.into()),
            Self::Disconnect => encode(kind::CONTROL, 0),
            Self::KeepAlive => encode(kind::CONTROL, 1),
            Self::Shutdown => encode(kind::CONTROL, 2),
            Self::Unknown(immediate) => immediate,
        }
    }
}

/// The byte order of structures written into a peer's memory: the peer's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    pub(crate) const NATIVE: Self =
        if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    fn u32(self, bytes: [u8; 4]) -> u32 {
        if self == Self::Big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn u64(self, bytes: [u8; 8]) -> u64 {
        if self == Self::Big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
    }

    fn bytes32(self, value: u32) -> [u8; 4] {
        if self == Self::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn bytes64(self, value: u64) -> [u8; 8] {
        if self == Self::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
}

/// A remote buffer that the peer may write to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: u64,
    pub(crate) key: u32,
    /// Length in bytes; of the target list in the private data, the number of entries.
    pub(crate) length: u32,
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

impl Target {
    pub(crate) fn read(bytes: &[u8; TARGET_BYTES], order: ByteOrder) -> Self {
        Self {
            address: order.u64(field(bytes, 0)),
            key: order.u32(field(bytes, 8)),
            length: order.u32(field(bytes, 12)),
        }
    }

    pub(crate) fn write(&self, order: ByteOrder) -> [u8; TARGET_BYTES] {
        let mut bytes = [0; TARGET_BYTES];
        bytes[..8].copy_from_slice(&order.bytes64(self.address));
        bytes[8..12].copy_from_slice(&order.bytes32(self.key));
        bytes[12..].copy_from_slice(&order.bytes32(self.length));
        bytes
    }
}

/// An entry of the table of mapped buffers: a program's buffer that the peer writes to by offset (`riomap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IoMap {
    pub(crate) offset: u64,
    pub(crate) target: Target,
}

impl IoMap {
    pub(crate) fn read(bytes: &[u8; MAP_BYTES], order: ByteOrder) -> Self {
        Self { offset: order.u64(field(bytes, 0)), target: Target::read(&field(bytes, 8), order) }
    }

    pub(crate) fn write(&self, order: ByteOrder) -> [u8; MAP_BYTES] {
        let mut bytes = [0; MAP_BYTES];
        bytes[..8].copy_from_slice(&order.bytes64(self.offset));
        bytes[8..].copy_from_slice(&self.target.write(order));
        bytes
    }
}

/// The private data of REQ and REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectData {
    pub(crate) order: ByteOrder,
    /// Initial credits: data messages that the peer may send.
    pub(crate) credits: u16,
    /// Entries of the table of mapped buffers, which follows the target list; `None` if the sender has no such table.
    pub(crate) maps: Option<u16>,
    /// The target list, with the number of its entries.
    pub(crate) targets: Target,
    /// The first target.
    pub(crate) buffer: Target,
}

impl ConnectData {
    /// Parses private data. Returns `None` if it is too short or of another version.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..CONNECT_BYTES)?;
        let flags = bytes[1];
        let order =
            if flags & FLAG_NETWORK_ORDER != 0 { ByteOrder::Big } else { ByteOrder::Little };
        (bytes[0] == VERSION).then(|| Self {
            order,
            credits: u16::from_be_bytes(field(bytes, 2)),
            maps: (flags & FLAG_MAPS != 0).then(|| from_scale(bytes[7])),
            targets: Target::read(&field(bytes, 8), ByteOrder::Big),
            buffer: Target::read(&field(bytes, 24), ByteOrder::Big),
        })
    }

    pub(crate) fn write(&self) -> [u8; CONNECT_BYTES] {
        let mut bytes = [0; CONNECT_BYTES];
        bytes[0] = VERSION;
        if self.order == ByteOrder::Big {
            bytes[1] |= FLAG_NETWORK_ORDER;
        }
        if let Some(maps) = self.maps {
            bytes[1] |= FLAG_MAPS;
            bytes[7] = to_scale(maps);
        }
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[8..24].copy_from_slice(&self.targets.write(ByteOrder::Big));
        bytes[24..].copy_from_slice(&self.buffer.write(ByteOrder::Big));
        bytes
    }
}

/// Encodes a number of entries in eight bits: exact up to 128, in steps of 256 above.
fn to_scale(value: u16) -> u8 {
    if value <= 128 { value as u8 } else { 128 | (value >> 8) as u8 }
}

fn from_scale(scale: u8) -> u16 {
    if scale <= 128 { scale.into() } else { u16::from(scale & 127) << 8 }
}

/// Rounds a number of table entries down to one that the private data can carry.
pub(crate) fn round_to_scale(value: u16) -> u16 {
    from_scale(to_scale(value))
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
