//! Integers in either byte order, read from arrays.

/// The byte order a file, or a section of it, was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    #[inline]
    pub(super) fn u16<const N: usize>(self, bytes: &[u8; N], at: usize) -> u16 {
        let field = [bytes[at], bytes[at + 1]];
        match self {
            ByteOrder::Little => u16::from_le_bytes(field),
            ByteOrder::Big => u16::from_be_bytes(field),
        }
    }

    #[inline]
    pub(super) fn u32<const N: usize>(self, bytes: &[u8; N], at: usize) -> u32 {
        let field = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            ByteOrder::Little => u32::from_le_bytes(field),
            ByteOrder::Big => u32::from_be_bytes(field),
        }
    }

    #[inline]
    pub(super) fn u64(self, field: [u8; 8]) -> u64 {
        match self {
            ByteOrder::Little => u64::from_le_bytes(field),
            ByteOrder::Big => u64::from_be_bytes(field),
        }
    }

    #[inline]
    pub(super) fn i64(self, field: [u8; 8]) -> i64 {
        match self {
            ByteOrder::Little => i64::from_le_bytes(field),
            ByteOrder::Big => i64::from_be_bytes(field),
        }
    }
}

/// `length` rounded up to the 32-bit boundary that pcapng pads everything to.
#[inline]
pub(super) fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}
