//! What two rsockets say to each other: private data when they connect, and 32 bits of immediate data with every message
//! (rdma-core, `librdmacm/docs/rsocket`). Knows nothing of the rest, and depends on nothing.

/// The one version that there is.
const VERSION: u8 = 1;
/// The host is of network byte order.
const FLAG_NETWORK_ORDER: u8 = 1;
/// A table of mapped buffers follows the list of targets.
const FLAG_MAPS: u8 = 2;

/// Bytes of the private data.
pub(crate) const CONNECT_BYTES: usize = 40;
/// Bytes of a [`Target`] in memory.
pub(crate) const TARGET_BYTES: usize = 16;
/// Bytes of a [`Map`] in memory.
pub(crate) const MAP_BYTES: usize = 24;
/// Bytes that one message says to have written, at most.
pub(crate) const MOST_BYTES: u32 = (1 << 29) - 1;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// So many bytes were written to the receive buffer.
    Data(u32),
    /// Data messages may be sent up to this number; and if bytes came along, they are a new target.
    Credits(u16),
    /// This entry of the table of mapped buffers was written.
    Mapped(u16),
    /// Neither side sends any more.
    Disconnect,
    /// Nothing: to find out whether the peer is there.
    KeepAlive,
    /// The peer sends no more.
    Shutdown,
    /// What a later version says. Nobody has to understand it.
    Unknown(u32),
}

/// The kinds of messages, in the upper three bits.
mod kind {
    pub(super) const DATA: u32 = 0;
    pub(super) const CREDITS: u32 = 4;
    pub(super) const MAPPED: u32 = 6;
    pub(super) const CONTROL: u32 = 7;
}

impl Message {
    const SHIFT: u32 = 29;

    pub(crate) fn from_immediate(immediate: u32) -> Self {
        let value = immediate & MOST_BYTES;
        match (immediate >> Self::SHIFT, value) {
            (kind::DATA, bytes) => Self::Data(bytes),
            // Numbers of messages are 16 bits wide; rdma-core leaves a carry above them.
            (kind::CREDITS, value) => Self::Credits(value as u16),
            (kind::MAPPED, value) => Self::Mapped(value as u16),
            (kind::CONTROL, 0) => Self::Disconnect,
            (kind::CONTROL, 1) => Self::KeepAlive,
            (kind::CONTROL, 2) => Self::Shutdown,
            _ => Self::Unknown(immediate),
        }
    }

    pub(crate) fn immediate(self) -> u32 {
        let of = |kind: u32, value: u32| kind << Self::SHIFT | value & MOST_BYTES;
        match self {
            Self::Data(bytes) => of(kind::DATA, bytes),
            Self::Credits(up_to) => of(kind::CREDITS, up_to.into()),
            Self::Mapped(index) => of(kind::MAPPED, index.into()),
            Self::Disconnect => of(kind::CONTROL, 0),
            Self::KeepAlive => of(kind::CONTROL, 1),
            Self::Shutdown => of(kind::CONTROL, 2),
            Self::Unknown(immediate) => immediate,
        }
    }
}

/// The byte order of what is written into a peer's memory: the peer's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    pub(crate) const HERE: Self =
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

/// Memory of a side that the other may write to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: u64,
    pub(crate) key: u32,
    /// Bytes; in the private data also the number of entries of a list.
    pub(crate) length: u32,
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

impl Target {
    pub(crate) fn read(bytes: &[u8; TARGET_BYTES], order: Order) -> Self {
        Self {
            address: order.u64(part(bytes, 0)),
            key: order.u32(part(bytes, 8)),
            length: order.u32(part(bytes, 12)),
        }
    }

    pub(crate) fn write(&self, order: Order) -> [u8; TARGET_BYTES] {
        let mut bytes = [0; TARGET_BYTES];
        bytes[..8].copy_from_slice(&order.bytes64(self.address));
        bytes[8..12].copy_from_slice(&order.bytes32(self.key));
        bytes[12..].copy_from_slice(&order.bytes32(self.length));
        bytes
    }
}

/// A buffer of a side's program that the other may write to by its offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) offset: u64,
    pub(crate) target: Target,
}

impl Map {
    pub(crate) fn read(bytes: &[u8; MAP_BYTES], order: Order) -> Self {
        Self { offset: order.u64(part(bytes, 0)), target: Target::read(&part(bytes, 8), order) }
    }

    pub(crate) fn write(&self, order: Order) -> [u8; MAP_BYTES] {
        let mut bytes = [0; MAP_BYTES];
        bytes[..8].copy_from_slice(&order.bytes64(self.offset));
        bytes[8..].copy_from_slice(&self.target.write(order));
        bytes
    }
}

/// The private data of REQ and REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectData {
    pub(crate) order: Order,
    /// Data messages that may be sent at first.
    pub(crate) credits: u16,
    /// Entries of the table of mapped buffers, behind the list of targets. `None` of a side that has no such table.
    pub(crate) maps: Option<u16>,
    /// The list of targets, with the number of its entries.
    pub(crate) targets: Target,
    /// The first target.
    pub(crate) buffer: Target,
}

impl ConnectData {
    /// `None` when it is nothing that an rsocket says, or of a version that we do not know.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..CONNECT_BYTES)?;
        let flags = bytes[1];
        let order = if flags & FLAG_NETWORK_ORDER != 0 { Order::Big } else { Order::Little };
        (bytes[0] == VERSION).then(|| Self {
            order,
            credits: u16::from_be_bytes(part(bytes, 2)),
            maps: (flags & FLAG_MAPS != 0).then(|| from_scale(bytes[7])),
            targets: Target::read(&part(bytes, 8), Order::Big),
            buffer: Target::read(&part(bytes, 24), Order::Big),
        })
    }

    pub(crate) fn write(&self) -> [u8; CONNECT_BYTES] {
        let mut bytes = [0; CONNECT_BYTES];
        bytes[0] = VERSION;
        if self.order == Order::Big {
            bytes[1] |= FLAG_NETWORK_ORDER;
        }
        if let Some(maps) = self.maps {
            bytes[1] |= FLAG_MAPS;
            bytes[7] = to_scale(maps);
        }
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[8..24].copy_from_slice(&self.targets.write(Order::Big));
        bytes[24..].copy_from_slice(&self.buffer.write(Order::Big));
        bytes
    }
}

/// A number of entries in eight bits: as it is up to 128, and in steps of 256 above.
fn to_scale(value: u16) -> u8 {
    if value <= 128 { value as u8 } else { 128 | (value >> 8) as u8 }
}

fn from_scale(scale: u8) -> u16 {
    if scale <= 128 { scale.into() } else { u16::from(scale & 127) << 8 }
}

/// The next number of entries that a peer can be told of.
pub(crate) fn scaled(value: u16) -> u16 {
    from_scale(to_scale(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_they_were() {
        let all = [
            Message::Data(0),
            Message::Data(MOST_BYTES),
            Message::Credits(0xffff),
            Message::Mapped(7),
            Message::Disconnect,
            Message::KeepAlive,
            Message::Shutdown,
            Message::Unknown(0xe000_0003),
            Message::Unknown(0x4000_0000),
        ];
        for message in all {
            assert_eq!(Message::from_immediate(message.immediate()), message);
        }
        assert_eq!(Message::from_immediate(0x8001_0005), Message::Credits(5));
    }

    #[test]
    fn entries_are_in_the_byte_order_of_who_reads_them() {
        let target = Target { address: 0x0102_0304_0506_0708, key: 0x0a0b_0c0d, length: 0x1000 };
        let map = Map { offset: 0x1122, target };
        for order in [Order::Little, Order::Big] {
            assert_eq!(Map::read(&map.write(order), order), map);
        }
        assert_eq!(target.write(Order::Big)[..2], [1, 2]);
        assert_eq!(target.write(Order::Little)[..2], [8, 7]);
    }

    #[test]
    fn private_data_of_another_version_is_none() {
        let data = ConnectData {
            order: Order::Little,
            credits: 384,
            maps: Some(16),
            targets: Target { address: 4096, key: 1, length: 2 },
            buffer: Target { address: 8192, key: 2, length: 65536 },
        };
        let mut bytes = data.write();
        assert_eq!(ConnectData::read(&bytes), Some(data));
        assert_eq!(ConnectData::read(&bytes[1..]), None);
        bytes[0] = 2;
        assert_eq!(ConnectData::read(&bytes), None);
    }

    #[test]
    fn sizes_of_tables_that_a_byte_can_tell() {
        assert_eq!([0, 1, 128, 129, 256, 1000].map(scaled), [0, 1, 128, 128, 256, 768]);
    }
}
